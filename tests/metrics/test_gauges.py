"""Numbers of a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scheduler.core.model import GpuKey, Measured, Pod, Reason, View, Waiting
from scheduler.gpus.usage import WATCHDOG, GpuReading, Process, Usage
from scheduler.metrics.gauges import MIB, REASONS, gauges
from tests.builders import NOW, job, node, pod, share, view, with_run

A = with_run(job("a", 4000), share(4000))
B = with_run(job("b", 4000), share(4000))


def found(
    of: View, usage: Mapping[GpuKey, Usage] | None = None, jobs_max: int = 9
) -> dict[str, dict[tuple[str, ...], float]]:
    return {gauge.name: dict(gauge.samples) for gauge in gauges(of, usage or {}, 0.0, jobs_max)}


def test_the_reasons_sum_to_the_queue() -> None:
    waiting = [job(f"w{number}", gpus=number + 1) for number in range(5)]
    held = replace(job("h"), held=True)
    why = {waiting[0].id: Reason(Waiting.TURN), waiting[1].id: Reason(Waiting.GPUS)}
    shown = found(replace(view(A, held, *waiting), why=why))
    reasons = {key[0]: value for key, value in shown["scheduler_pending_jobs"].items() if value}
    assert reasons == {"turn": 1, "gpus": 1, "planning": 3, "held": 1}
    states = shown["scheduler_jobs"]
    assert sum(reasons.values()) == states["QUEUED",] + states["HELD",] == 6
    assert shown["scheduler_pending_gpus_min"] == {(): 1}


def test_every_reason_of_a_waiting_job_is_always_shown() -> None:
    shown = found(view())
    assert shown["scheduler_pending_jobs"] == {(str(reason),): 0 for reason in REASONS}
    assert "scheduler_pending_gpus_min" not in shown


def test_a_run_is_shown_with_what_its_processes_use() -> None:
    card = node().gpus[0]
    processes = (
        *(Process(7, 3000, busy=0.3), Process(8, 500, busy=0.1)),
        *(Process(9, 900, busy=0.4), Process(10, 64, busy=0.05)),
    )
    reading = GpuReading(card, 4464, 0.85, processes)
    runs = ((A.id, 1), (A.id, 1), (B.id, 1), None)
    usage = {("n1", "gpu0"): Usage(reading, runs, NOW, WATCHDOG)}
    shown = found(view(A, B, pods=[pod(A), pod(B)]), usage)
    a, b = ("a", "a", "ann", "n1", "gpu0"), ("b", "b", "ann", "n1", "gpu0")
    assert shown["scheduler_run_memory_granted_bytes"] == {a: 4000 * MIB, b: 4000 * MIB}
    assert shown["scheduler_run_memory_seen_bytes"] == {a: 3500 * MIB, b: 900 * MIB}
    assert shown["scheduler_run_sm_ratio"] == {a: 0.4, b: 0.4}
    gpu = ("n1", "gpu0")
    assert shown["scheduler_gpu_sm_ratio"] == {gpu: 0.85}
    assert abs(sum(shown["scheduler_run_sm_ratio"].values()) + 0.05 - 0.85) < 0.05
    assert shown["scheduler_gpu_jobs"] == {gpu: 2}
    assert shown["scheduler_gpu_memory_used_bytes"] == {gpu: 4464 * MIB}
    assert shown["scheduler_gpu_memory_reserved_bytes"] == {gpu: 8000 * MIB}
    assert shown["scheduler_enforcement_level"] == {("n1",): 1}


def test_without_an_agent_nothing_is_said_of_use() -> None:
    shown = found(view(A, pods=[pod(A)]))
    assert shown["scheduler_run_sm_ratio"] == shown["scheduler_gpu_sm_ratio"] == {}


def test_the_number_of_series_of_runs_is_limited() -> None:
    shown = found(view(A, B), jobs_max=1)
    assert len(shown["scheduler_run_memory_granted_bytes"]) == 1
    assert shown["scheduler_runs_left_out"] == {(): 1}


def test_an_orphan_is_counted_once_for_all_its_pods() -> None:
    pods: list[Pod] = [replace(pod(A), rank=rank, orphan=True) for rank in range(3)]
    assert found(view(pods=pods))["scheduler_orphans"] == {(): 1}


def test_a_faulty_gpu_is_shown() -> None:
    broken = node()
    broken = replace(broken, gpus=(replace(broken.gpus[0], fault="XID 79", strange_mib=64),))
    shown = found(view(nodes=[broken]))
    assert shown["scheduler_gpu_faulty"] == {("n1", "gpu0"): 1}
    assert shown["scheduler_gpu_memory_foreign_bytes"] == {("n1", "gpu0"): 64 * MIB}


def test_speeds_are_those_that_were_measured() -> None:
    assert A.run
    here = A.run.placement
    measured = (Measured(here, (), 10.0, 3), Measured(here, (B.id,), 15.0, 3))
    a = replace(A, spec=replace(A.spec, training_set_size=3000), measured=measured)
    shown = found(view(a))
    who = ("a", "a", "ann")
    assert shown["scheduler_job_samples_per_second"] == {who: 200}
    assert shown["scheduler_colocation_slowdown_ratio"] == {who: 1.5}
    alone = replace(a, measured=measured[:1])
    assert found(view(alone))["scheduler_colocation_slowdown_ratio"] == {}
