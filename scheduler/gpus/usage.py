"""What is seen on cards, and what it means: which run takes how much, and who else is there. Pure.

A driver knows processes. Whose they are is known where they run: a process tree tells it on a bare
machine, a cgroup in a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.fast_replace import replace
from scheduler.core.model import Gpu, GpuKey, RunKey, Share, Time

STEP_MIB = 64  # what strangers hold is rounded up to these: not each allocation is worth a new plan

# What keeps a run to its memory. Of the driver no agent of ours says so yet: see ADR 16.
LIBRARY, WATCHDOG, DRIVER = "library", "watchdog", "driver"


@dataclass(frozen=True, slots=True)
class Process:
    """Somebody's, on a card."""

    pid: int
    memory_mib: int
    pod: str = ""  # the uid of the pod that it is in; "": it is in none
    name: str = ""  # of its program; "": from where the agent is, it cannot be seen


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One card as its driver tells of it, `gpu.memory_mib` being all that it has."""

    gpu: Gpu
    used_mib: int = 0
    busy: float = 0.0  # from 0 to 1
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What an agent sees of its node, and what there keeps a run to its memory."""

    node: str
    at: Time
    cards: tuple[GpuReading, ...] = ()
    keeps: str = LIBRARY


@dataclass(frozen=True, slots=True)
class Usage:
    """One card of ours as people are told of it, and whose each process is. No decision rests on
    this."""

    reading: GpuReading
    runs: tuple[RunKey | None, ...]  # of each process; None: it is a stranger's
    at: Time
    keeps: str


class UsageLedger:
    """Keeps what was seen last, so that strangers who have shown but once are not believed: a
    process that has just ended may still be told of, and one that has just begun be nobody's yet.
    """

    def __init__(self, allowed_mib: int = 0) -> None:
        """`allowed_mib`: what strangers may use of each card. Runs cannot have it."""
        self._allowed_mib = allowed_mib
        self._foreign: dict[GpuKey, tuple[tuple[Time, int], tuple[Time, int]]] = {}
        self.usage: Mapping[GpuKey, Usage] = {}

    def enter(
        self,
        reports: Iterable[GpuReport],
        run_of: Callable[[Process], RunKey | None],
        granted: Mapping[RunKey, Sequence[Share]],
    ) -> tuple[dict[GpuKey, Gpu], dict[RunKey, tuple[Share, ...]]]:
        """Each card, with a fault if it is not ours alone, and what each run takes. `granted`: to
        all runs of which there may be processes."""
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
        """What strangers hold by this report, and held by the one before it."""
        before, last = self._foreign.get(key, ((at, 0), (at, 0)))
        if at > last[0]:
            before = last
        self._foreign[key] = before, (at, mib)
        return min(before[1], mib)


def foreign_mib(
    reading: GpuReading, runs: Sequence[RunKey | None], unseen_mib: int = 0, allowed_mib: int = 0
) -> int:
    """What none of ours holds of this card; 0: no more than they may, or what prudence keeps back.
    `unseen_mib`: what may be held by runs of ours of which no process is seen there, as from a
    container."""
    pairs = zip(reading.processes, runs, strict=True)
    others = [process for process, run in pairs if run is None]
    theirs = sum(process.memory_mib for process in others if process.name)
    known_mib = sum(process.memory_mib for process in reading.processes)
    # Of a driver that does not say what it reserves, nobody can tell what it uses itself.
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
    """Nothing is started beside strangers: nobody knows what they will take next."""
    if not foreign_mib:
        return gpu
    fault = gpu.fault or f"others use {foreign_mib} MiB of it"
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
