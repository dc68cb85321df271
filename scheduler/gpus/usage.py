"""What observations of GPUs mean: how much each run uses, and which processes are foreign. Pure.

A driver knows only processes. The run of a process is found where it runs: by the process tree on
a bare machine, by the cgroup in a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.fast_replace import replace
from scheduler.core.model import Gpu, GpuKey, RunKey, Share, Time

STEP_MIB = (
    64  # foreign memory is rounded up to these, so that not every allocation causes a new plan
)

# What limits a run to its memory. No agent of ours reports DRIVER yet: see ADR 16.
LIBRARY, WATCHDOG, DRIVER = "library", "watchdog", "driver"


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU, of one of our runs or foreign."""

    pid: int
    memory_mib: int
    pod: str = ""  # the uid of its pod; "": it is in none
    name: str = ""  # of its program; "": the agent cannot see it
    busy: float = 0.0  # from 0 to 1: the part of the time in which its kernels ran


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as its driver reports it; `gpu.memory_mib` is its total memory."""

    gpu: Gpu
    used_mib: int = 0
    busy: float = 0.0  # from 0 to 1
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What an agent observes on its node, and what limits runs there to their memory."""

    node: str
    at: Time
    cards: tuple[GpuReading, ...] = ()
    keeps: str = LIBRARY


@dataclass(frozen=True, slots=True)
class Usage:
    """One GPU of ours as users see it, and the run of each process. No decision depends on this."""

    reading: GpuReading
    runs: tuple[RunKey | None, ...]  # of each process; None: it is foreign
    at: Time
    keeps: str


class UsageLedger:
    """Keeps the last observation, so that foreign memory counts only if two observations show it:
    the driver may still list a process that has just ended, and the run of a process that has just
    begun may not be known yet.
    """

    def __init__(self, allowed_mib: int = 0) -> None:
        """`allowed_mib`: what foreign processes may use of each GPU. Runs cannot have it."""
        self._allowed_mib = allowed_mib
        self._foreign: dict[GpuKey, tuple[tuple[Time, int], tuple[Time, int]]] = {}
        self.usage: Mapping[GpuKey, Usage] = {}

    def enter(
        self,
        reports: Iterable[GpuReport],
        run_of: Callable[[Process], RunKey | None],
        granted: Mapping[RunKey, Sequence[Share]],
    ) -> tuple[dict[GpuKey, Gpu], dict[RunKey, tuple[Share, ...]]]:
        """Returns each GPU, with a fault if foreign processes use it, and what each run uses.
        `granted`: the shares of all runs that may have processes."""
        gpus: dict[GpuKey, Gpu] = {}
        used: dict[RunKey, dict[GpuKey, int]] = {}
        usage: dict[GpuKey, Usage] = {}
        for report in reports:
            for reading in report.cards:
                key = (report.node, reading.gpu.uuid)
                runs = tuple(run_of(process) for process in reading.processes)
                usage[key] = Usage(reading, runs, report.at, report.keeps)
                for process, run in zip(reading.processes, runs, strict=True):
                    if run is not None:
                        taken = used.setdefault(run, {})
                        taken[key] = taken.get(key, 0) + process.memory_mib
                foreign = foreign_mib(
                    reading, runs, _unseen_mib(key, runs, granted), self._allowed_mib
                )
                gpu = reserve_foreign(reading.gpu, self._allowed_mib)
                gpus[key] = mark_foreign(gpu, self._confirm_foreign(key, report.at, foreign))
        self.usage = usage
        return gpus, {
            run: tuple(Share(*key, mib) for key, mib in sorted(taken.items()))
            for run, taken in used.items()
        }

    def _confirm_foreign(self, key: GpuKey, at: Time, mib: int) -> int:
        """Returns the foreign memory that both this report and the one before it show."""
        before, last = self._foreign.get(key, ((at, 0), (at, 0)))
        if at > last[0]:
            before = last
        self._foreign[key] = before, (at, mib)
        return min(before[1], mib)


def foreign_mib(
    reading: GpuReading, runs: Sequence[RunKey | None], unseen_mib: int = 0, allowed_mib: int = 0
) -> int:
    """Returns the memory of this GPU that none of our runs holds; 0 if it is within `allowed_mib`
    and the reserve of the GPU. `unseen_mib`: what runs of ours may hold whose processes cannot be
    seen there, e.g. from a container."""
    pairs = zip(reading.processes, runs, strict=True)
    others = [process for process, run in pairs if run is None]
    theirs = sum(process.memory_mib for process in others if process.name)
    known_mib = sum(process.memory_mib for process in reading.processes)
    # If a driver does not report what it reserves, its own use is unknown.
    nameless = max(0, reading.used_mib - known_mib) if reading.gpu.reserved_mib else 0
    nameless += sum(process.memory_mib for process in others if not process.name)
    mib = theirs + max(0, nameless - unseen_mib)
    return -(-mib // STEP_MIB) * STEP_MIB if mib > reading.gpu.headroom_mib + allowed_mib else 0


def reserve_foreign(gpu: Gpu, foreign_mib: int) -> Gpu:
    if not foreign_mib:
        return gpu
    kept = max(gpu.reserved_mib, gpu.headroom_mib) + foreign_mib
    return replace(gpu, reserved_mib=min(kept, gpu.memory_mib))


def mark_foreign(gpu: Gpu, foreign_mib: int) -> Gpu:
    """Nothing is started beside foreign processes: they may take more memory at any time."""
    if not foreign_mib:
        return gpu
    fault = gpu.fault or f"foreign processes use {foreign_mib} MiB"
    return replace(gpu, strange_mib=foreign_mib, fault=fault)


def _unseen_mib(
    key: GpuKey, seen: Iterable[RunKey | None], granted: Mapping[RunKey, Sequence[Share]]
) -> int:
    there = set(seen)
    return sum(
        share.memory_mib
        for run, shares in granted.items()
        if run not in there
        for share in shares
        if share.key == key
    )
