"""What users see of GPUs: what is held, what is really used, and by which jobs."""

from __future__ import annotations

from dataclasses import replace

from scheduler.api import overview
from scheduler.api.status import State
from scheduler.core.model import Job, Measured
from scheduler.gpus.usage import WATCHDOG, GpuReading, Process, Usage
from tests.builders import NOW, job, node, pod, share, view, with_run

A = with_run(job("a", 4000), share(4000))


def running(_: Job) -> State:
    return State.RUNNING


def test_without_an_agent_only_held_memory_is_shown() -> None:
    (gpu,) = overview.gpu_messages(view(A, pods=[pod(A)]), running, {})
    assert gpu.reserved_mib == 4000
    assert not gpu.HasField("used_mib")
    assert not gpu.jobs[0].HasField("used_mib")


def test_the_use_of_processes_is_shown_with_their_jobs() -> None:
    processes = (
        *(Process(7, 3000, name="python", busy=0.3), Process(8, 500, name="python", busy=0.1)),
        Process(9, 900, busy=0.05),
    )
    reading = GpuReading(node().gpus[0], 4400, 0.5, processes)
    run = (A.id, 1)
    seen = {("n1", "gpu0"): Usage(reading, (run, run, None), NOW, WATCHDOG)}
    (gpu,) = overview.gpu_messages(view(A, pods=[pod(A)]), running, seen)
    assert (gpu.used_mib, gpu.busy, gpu.keeps) == (4400, 0.5, "watchdog")
    assert gpu.jobs[0].used_mib == 3500
    assert gpu.jobs[0].busy == 0.4
    assert [(each.pid, each.job_id) for each in gpu.processes] == [(7, "a"), (8, "a"), (9, "")]


def test_a_slow_gpu_is_shown_with_what_shows_it() -> None:
    measured = [
        Measured("pretendedx1", (), seconds, 20, where=(("n1", gpu),), at=NOW)
        for gpu, seconds in (("gpu0", 60.0), ("gpu1", 240.0))
    ]
    jobs = [replace(job(name, 4000), measured=tuple(measured)) for name in "ab"]
    seen = view(*jobs, nodes=[node(2)])
    slow = overview.SlowGpuLookup()
    for _ in range(2):  # the second time from what is kept
        fine, bad = overview.gpu_messages(seen, running, {}, slow(seen))
        assert not fine.HasField("slow")
        assert (round(bad.slow.speed, 6), bad.slow.epochs, bad.slow.jobs) == (0.25, 40, 2)
