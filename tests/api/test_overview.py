"""What people see of cards: what is held, what is really used, and by whom."""

from __future__ import annotations

from scheduler.api import overview
from scheduler.api.status import State
from scheduler.core.model import Job
from scheduler.gpus.usage import WATCHDOG, GpuReading, Process, Usage
from tests.builders import NOW, job, node, pod, share, view, with_run

A = with_run(job("a", 4000), share(4000))


def running(_: Job) -> State:
    return State.RUNNING


def test_where_nobody_looks_only_what_is_held_is_told() -> None:
    (gpu,) = overview.gpu_messages(view(A, pods=[pod(A)]), running, {})
    assert gpu.reserved_mib == 4000
    assert not gpu.HasField("used_mib")
    assert not gpu.jobs[0].HasField("used_mib")


def test_what_processes_use_is_told_with_whose_they_are() -> None:
    processes = (Process(7, 3000, name="python"), Process(8, 500, name="python"), Process(9, 900))
    card = GpuReading(node().gpus[0], 4400, 0.5, processes)
    run = (A.id, 1)
    seen = {("n1", "gpu0"): Usage(card, (run, run, None), NOW, WATCHDOG)}
    (gpu,) = overview.gpu_messages(view(A, pods=[pod(A)]), running, seen)
    assert (gpu.used_mib, gpu.busy, gpu.keeps) == (4400, 0.5, "watchdog")
    assert gpu.jobs[0].used_mib == 3500
    assert [(each.pid, each.job_id) for each in gpu.processes] == [(7, "a"), (8, "a"), (9, "")]
