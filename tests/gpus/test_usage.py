"""Which processes hold the memory of GPUs: our own, foreign ones, or unknown ones."""

from __future__ import annotations

import pytest

from scheduler.core.model import Gpu, JobId, RunKey, Share
from scheduler.gpus.usage import WATCHDOG, GpuReading, GpuReport, Process, UsageLedger, foreign_mib

GPU = Gpu("GPU-a", 0, "t4", 16384, 512)
KEY = ("n1", "GPU-a")
A: RunKey = (JobId("a"), 1)
B: RunKey = (JobId("b"), 1)
OWNERS = {1: A, 2: A, 3: B}


def run_of(process: Process) -> RunKey | None:
    return OWNERS.get(process.pid)


def report(at: float, *processes: Process, used: int | None = None) -> GpuReport:
    mib = sum(process.memory_mib for process in processes) if used is None else used
    return GpuReport("n1", at, (GpuReading(GPU, mib, 0.5, processes),), WATCHDOG)


def mine(pid: int, mib: int) -> Process:
    return Process(pid, mib, name="python")


def test_the_processes_of_a_run_are_taken_together() -> None:
    books = UsageLedger()
    gpus, used = books.enter([report(1.0, mine(1, 3000), mine(2, 500), mine(3, 70))], run_of, {})
    assert gpus == {KEY: GPU}
    assert used == {A: (Share("n1", "GPU-a", 3500),), B: (Share("n1", "GPU-a", 70),)}
    assert books.usage[KEY].runs == (A, A, B)


def test_foreign_memory_counts_when_two_reports_show_it() -> None:
    books, ghost = UsageLedger(), mine(99, 5000)
    faults = []
    for at, processes in ((1.0, [ghost]), (1.0, [ghost]), (2.0, [ghost]), (3.0, []), (4.0, [])):
        gpus, _ = books.enter([report(at, *processes)], run_of, {})
        faults.append((gpus[KEY].strange_mib, gpus[KEY].fault))
    told = (5056, "foreign processes use 5056 MiB")
    assert faults == [(0, ""), (0, ""), told, (0, ""), (0, "")]


@pytest.mark.parametrize(
    ("processes", "used", "unseen", "strange"),
    [
        ([mine(1, 3000)], 3000, 0, 0),
        ([mine(1, 3000)], 3491, 0, 0),  # what prudence keeps back: 3 % of 16384
        ([mine(1, 3000)], 3492, 0, 512),  # in steps of 64
        ([mine(1, 3000), mine(99, 600)], 3600, 0, 640),
        ([], 4000, 0, 4032),  # of processes that not even the driver knows
        ([], 4000, 4000, 0),  # of a run of ours of which no process is seen
        ([Process(99, 4000)], 4000, 4000, 0),  # so may be one that cannot be seen from here,
        ([mine(99, 4000)], 4000, 4000, 4032),  # but not a foreign one that can be seen
    ],
)
def test_foreign_memory_is_what_none_of_our_runs_holds(
    processes: list[Process], used: int, unseen: int, strange: int
) -> None:
    (reading,) = report(1.0, *processes, used=used).cards
    assert foreign_mib(reading, [run_of(process) for process in processes], unseen) == strange


def test_an_old_driver_uses_what_it_does_not_tell_of() -> None:
    reading = GpuReading(Gpu("GPU-a", 0, "t4", 16384, 0), 900)
    assert foreign_mib(reading, ()) == 0


def test_a_run_that_begins_takes_its_share_before_its_processes_are_seen() -> None:
    books = UsageLedger()
    for at in (1.0, 2.0):
        granted = {A: (Share("n1", "GPU-a", 4000),)}
        gpus, _ = books.enter([report(at, used=3000)], run_of, granted)
    assert gpus[KEY] == GPU


def test_memory_allowed_to_foreign_processes_is_for_no_run() -> None:
    books = UsageLedger(allowed_mib=1000)
    for at in (1.0, 2.0):
        gpus, _ = books.enter([report(at, mine(99, 1400))], run_of, {})
    assert gpus[KEY].fault == ""
    assert gpus[KEY].capacity_mib == GPU.capacity_mib - 1000
    for at in (3.0, 4.0):
        gpus, _ = books.enter([report(at, mine(99, 1600))], run_of, {})
    assert gpus[KEY].fault == "foreign processes use 1600 MiB"
