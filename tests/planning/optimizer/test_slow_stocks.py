"""What a plan makes of GPUs that are slower than others of their type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler.core.memory import usable_gpus
from scheduler.core.model import GpuKey, Job, JobId, Measured, Plan, View
from scheduler.estimates.slow_gpus import SlowGpu, SlowGpus, split_type
from scheduler.planning.optimizer.slow_stocks import with_slow_types
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from tests.builders import NOW, RULES, job, node, share, view, with_run

NODES = (node(2, "n1"), node(2, "n2"))
FINE = [("n1", f"gpu{number}") for number in range(2)]
BAD = [("n2", f"gpu{number}") for number in range(2)]


def taught(name: str, times: float, **fields: Any) -> Job:
    """A job that was measured to take so many times longer on the GPUs of n2."""
    measured = [
        Measured("pretendedx1", (), seconds, 10, where=(key,), at=NOW)
        for keys, seconds in ((FINE, 60.0), (BAD, 60.0 * times))
        for key in keys
    ]
    made = job(name, 12_000, max_epochs=200, shareable=False, **fields)
    return replace(made, measured=tuple(measured))


def planned(*jobs: Job) -> Plan:
    return gpu_sharing(RULES)(view(*jobs, nodes=NODES), NOW + 100.0)


def gpus_of(plan: Plan, name: str) -> set[GpuKey]:
    return {share.key for share in plan.placements.get(JobId(name), ())}


def two(times: float, **fields: Any) -> tuple[Job, Job]:
    return taught("a", times, **fields), taught("b", times, **fields)


def test_jobs_take_other_gpus_while_there_are_some() -> None:
    for_each = planned(*two(5.0))
    assert gpus_of(for_each, "a") | gpus_of(for_each, "b") == {*FINE}


def test_slow_gpus_are_used_when_nothing_else_is_free() -> None:
    plan = planned(*two(5.0), taught("c", 5.0), taught("d", 5.0))
    assert set().union(*(gpus_of(plan, name) for name in "abcd")) == {*FINE, *BAD}


def test_a_gang_has_no_slow_gpu_beside_others() -> None:
    plan = planned(*two(5.0, gpus=(1, 4)))
    for name in "ab":
        assert gpus_of(plan, name) in ({FINE[0]}, {FINE[1]}, {*FINE}, {*BAD}, {BAD[0]}, {BAD[1]})


def test_a_job_that_needs_all_gpus_gets_them_all_the_same() -> None:
    first, second = two(5.0)
    whole = replace(taught("all", 5.0, gpus=4), priority=5)
    assert gpus_of(planned(first, second, whole), "all") == {*FINE, *BAD}


def running(name: str, times: float, *keys: GpuKey, **fields: Any) -> Job:
    made = taught(name, times, **fields)
    shares = [share(node=node, gpu=int(gpu[-1])) for node, gpu in keys]
    made = with_run(made, *shares, placement="pretendedx1", epoch_started=3, epochs_before=0)
    return replace(made, epochs_done=3)


def test_a_run_leaves_a_slow_gpu_for_an_idle_one() -> None:
    plan = planned(running("a", 5.0, BAD[0]), taught("b", 5.0))
    assert gpus_of(plan, "a") <= {*FINE}


def test_a_run_stays_on_a_gpu_that_is_hardly_slower() -> None:
    plan = planned(running("a", 1.05, BAD[0]), taught("b", 1.05))
    assert gpus_of(plan, "a") == {BAD[0]}


def slow(**times: float) -> SlowGpus:
    """By GPU of the node n2."""
    return SlowGpus({("n2", gpu): SlowGpu(each, 0.05, 10, 3) for gpu, each in times.items()})


def types_of(seen: View) -> dict[GpuKey, float]:
    return {key: split_type(gpu.type)[1] for key, gpu in usable_gpus(seen.nodes).items()}


def test_a_gang_that_runs_is_not_taken_apart_because_of_a_little() -> None:
    gang = with_run(job("g", gpus=2), *(share(node="n2", gpu=number) for number in range(2)))
    seen = view(gang, nodes=NODES)
    little = types_of(with_slow_types(seen, slow(gpu0=1.2), [gang]))
    assert [little[key] for key in BAD] == [1.19, 1.19]
    much = types_of(with_slow_types(seen, slow(gpu0=5.0), [gang]))
    assert [much[key] for key in BAD] == [4.76, 1.0]
    assert [little[key] for key in FINE] == [1.0, 1.0]


def test_without_slow_gpus_the_view_is_as_it_was() -> None:
    seen = view(nodes=NODES)
    assert with_slow_types(seen, SlowGpus(), []) is seen
    assert with_slow_types(seen, slow(gpu0=1.05), []) is seen


def test_a_type_is_not_taken_apart_if_a_job_could_then_never_start() -> None:
    seen = view(nodes=NODES)
    wants = [job("w", gpus=3)]
    bad = slow(gpu0=5.0, gpu1=5.0)
    assert with_slow_types(seen, bad, wants) is seen
    assert with_slow_types(seen, bad, [job("w", gpus=2)]) is not seen


def test_a_type_is_not_taken_apart_if_a_waiting_job_could_then_not_start_on_idle_gpus() -> None:
    """In life 10012 such a job was told to wait for its turn, which nothing delayed."""
    runs = with_run(job("r", gpus=2), *(share(gpu=number) for number in range(2)))
    gang = job("w", gpus=2)
    bad = slow(gpu0=5.0)
    busy = view(runs, gang, nodes=NODES)
    assert with_slow_types(busy, bad, [runs, gang]) is busy
    assert with_slow_types(busy, bad, [runs, replace(gang, held=True)]) is not busy
    some = with_run(job("r"), share())
    assert types_of(with_slow_types(view(some, gang, nodes=NODES), bad, [some, gang]))[BAD[0]] > 4.0
