"""The GPUs of this machine, from NVML or simulated, and the agent that observes them.

It knows nothing about jobs. An agent runs in the daemon for the daemon's own machine, and as a
program on each node of a cluster, from where it reports (agent_command.py).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from scheduler.core.errors import ConfigError
from scheduler.core.model import PRETENDED, Gpu, Time
from scheduler.gpus.nvml import Nvml, Xids
from scheduler.gpus.usage import LIBRARY, WATCHDOG, GpuReading, GpuReport, Process

SILENT_SECONDS = 60.0  # a driver that is silent for longer hangs
LEAVE_SECONDS = 1.0  # for a thread that may be waiting for a driver that hangs
ALL_PIDS = 0xEFFFFFFC  # the kernel's number of the namespace that contains all processes
NVML = "nvml:"  # then GPUs of this machine
_GROUP = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,8})", re.ASCII)
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")

log = structlog.get_logger("scheduler.gpus.watcher")


class GpuWatcher:
    """Observes the GPUs of this machine in separate threads: a driver may hang, and no other thread
    must wait for it."""

    def __init__(
        self,
        node: str,
        clock: Callable[[], Time],
        every_seconds: float = 5.0,
        only: Sequence[str] = (),
    ) -> None:
        """`only`: the GPUs that it observes, by index or uuid; none are named: all of them."""
        self._node, self._clock, self._every_seconds = node, clock, every_seconds
        self._nvml = Nvml(only)
        self._xids = Xids(self._nvml, self.look_again)
        self._due, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="agent", daemon=True)
        self._told: Callable[[GpuReport], None] = lambda _: None
        self._newest = self.look()  # replaced, never edited
        names = {name for gpu in self.gpus for name in (str(gpu.index), gpu.uuid)}
        if missing := [name for name in only if name not in names]:
            raise ConfigError(f"gpus: {NVML}{missing[0]}: NVML shows no such GPU on this machine")

    def start(self, told: Callable[[GpuReport], None]) -> None:
        """`told` is called with each report that differs from the one before."""
        self._told = told
        self._thread.start()
        self._xids.start()

    @property
    def report(self) -> GpuReport:
        """The newest report; its GPUs have a fault if it is too old."""
        newest = self._newest
        if self._clock() - newest.at <= SILENT_SECONDS:
            return newest
        return replace(newest, cards=tuple(map(_silent, newest.cards)))

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(reading.gpu for reading in self.report.cards)

    def look_again(self) -> None:
        """Observes soon, before the next regular time."""
        self._due.set()

    def stop(self) -> None:
        self._stopped.set()
        self._due.set()
        self._thread.join(LEAVE_SECONDS)
        self._xids.stop()
        self._nvml.close()

    def look(self) -> GpuReport:
        at = self._clock()
        readings = tuple(map(_with_names, self._nvml.read()))
        keeps = WATCHDOG if readings and _sees(readings) else LIBRARY
        return GpuReport(self._node, at, readings, keeps)

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._due.wait(self._every_seconds)
            self._due.clear()
            try:
                before, self._newest = self._newest, self.look()
                if self._newest.cards != before.cards:
                    self._told(self._newest)
            except Exception:  # a thread's entry: the last report stays, and the next one is tried
                log.exception("look_failed")


def _sees(readings: Sequence[GpuReading]) -> bool:
    """Whether the owner of a process can be found out from here. To a container, a driver lists
    only the container's own processes; so all others may be hidden even if the list is empty."""
    processes = [process for reading in readings for process in reading.processes]
    return any(process.name for process in processes) if processes else among_all_pids()


def among_all_pids(own: Path = Path("/proc/self/ns/pid")) -> bool:
    try:
        return own.stat().st_ino == ALL_PIDS
    except OSError:
        return False


def _silent(reading: GpuReading) -> GpuReading:
    fault = reading.gpu.fault or "its driver does not answer"
    return replace(reading, gpu=replace(reading.gpu, fault=fault))


def _with_names(reading: GpuReading) -> GpuReading:
    """Adds program and pod of each process, as far as they can be found out from here."""
    return replace(reading, processes=tuple(map(_add_name, reading.processes)))


def _add_name(process: Process) -> Process:
    folder = Path(f"/proc/{process.pid}")
    try:
        name = (folder / "comm").read_text(errors="replace").strip()
        return replace(process, name=name, pod=pod_of((folder / "cgroup").read_text()))
    except OSError:  # it has ended, or belongs to another container
        return process


def pod_of(cgroup: str) -> str:
    """Returns the uid of the pod to which a process in this cgroup belongs; empty: none."""
    match = _POD.search(cgroup)
    return match[1].replace("_", "-") if match else ""


def named_gpus(text: str) -> tuple[str, ...]:
    """The GPUs of this machine that `nvml:0,2` names, by index or uuid; none: the text is about
    simulated GPUs."""
    if not text.startswith(NVML):
        return ()
    names = tuple(name.strip() for name in text.removeprefix(NVML).split(","))
    if not all(names):
        raise ConfigError(f"gpus: {text[:100]!r} names no GPU, as {NVML}0,2 does")
    return names


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Simulated GPUs: `4x16384` is four of 16384 MiB, `2x16384,1x81920` is three, `0` is none."""
    if text.strip() == "0":
        return ()
    sizes: list[int] = []
    for group in text.split(","):
        match = _GROUP.fullmatch(group.strip())
        if match is None:
            raise ConfigError(
                f"gpus: {text[:100]!r} is not COUNTxMIB[,COUNTxMIB...], e.g. 4x16384, or 0 for none"
            )
        sizes += [int(match[2])] * int(match[1])
    gpus = tuple(
        Gpu(f"gpu{index}", index, PRETENDED, mib, mib // 32) for index, mib in enumerate(sizes)
    )
    if useless := [gpu for gpu in gpus if gpu.capacity_mib == 0]:
        raise ConfigError(f"gpus: a GPU of {useless[0].memory_mib} MiB is too small for any job")
    return gpus
