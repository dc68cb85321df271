"""What the policies that give whole GPUs have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler.core.model import Gpu, Job, JobId, Node, Plan, Reason, RunPhase, Share, View, Waiting
from scheduler.planning.policies.whole_gpus import Round
from scheduler.planning.reasons import blocked_reason
from tests.builders import NOW, RULES, job, node, pod, share, view, with_run


def plan(there: View, *order: str, **options: Any) -> Plan:
    """The candidates get GPUs in this order."""
    made = Round(there, NOW, RULES, **options)
    by_name = {job.id: job for job in made.candidates}
    for name in order:
        if not made.give(by_name[JobId(name)]):
            made.refused.append(by_name[JobId(name)])
    return made.plan()


def gpus_of(plan: Plan, name: str) -> list[str]:
    return sorted(share.gpu for share in plan.placements.get(JobId(name), ()))


def why(made: Plan, name: str) -> Reason:
    return made.why[JobId(name)]


def test_a_job_that_may_not_hold_gpus_is_told_why() -> None:
    held, late = job("h", held=True), job("l", eligible_at=NOW + 30, reason="lost")
    again = job("o", attempts=1)
    there = view(held, late, again, pods=[pod(again)])
    found = [blocked_reason(each, there, NOW) for each in (held, late, again, job("a"))]
    kinds = [reason and reason.kind for reason in found]
    assert kinds == [Waiting.HELD, Waiting.BACKOFF, Waiting.STOPPING, None]
    assert found[1]
    assert (found[1].seconds, found[1].cause) == (30, "lost")


def test_a_job_has_as_many_gpus_as_it_can_use_or_as_there_are() -> None:
    there = view(job("a", gpus=(1, 2)), job("b", gpus=(1, 9)), nodes=[node(4)])
    made = Round(there, NOW, RULES)
    assert [made.gpus_wanted(job) for job in made.candidates] == [2, 4]
    elastic = Round(there, NOW, RULES, elastic=True)
    assert [elastic.gpus_wanted(job) for job in elastic.candidates] == [1, 1]


def test_a_job_that_needs_more_than_the_cluster_has_gets_nothing_and_is_told_so() -> None:
    there = view(job("a", gpus=3), nodes=[node(2)])
    lacking = why(plan(there, "a"), "a")
    assert (lacking.kind, lacking.gpus, lacking.there) == (Waiting.GPUS, 3, (("", 2),))


def test_gpus_are_given_in_the_order_that_the_policy_says() -> None:
    there = view(job("a"), job("b"), nodes=[node(1)])
    first = plan(there, "b", "a")
    assert gpus_of(first, "b") == ["gpu0"]
    assert gpus_of(first, "a") == []
    lacking = why(first, "a")
    assert (lacking.kind, lacking.gpus, lacking.free) == (Waiting.GPUS, 1, (("", 0),))


def test_a_run_that_may_not_leave_keeps_its_gpus() -> None:
    still = with_run(job("a"), share(gpu=1), phase=RunPhase.STARTING)
    there = view(still, job("b", gpus=2), nodes=[node(2)])
    made = plan(there, "b", preempts=True)
    assert gpus_of(made, "a") == ["gpu1"]
    assert gpus_of(made, "b") == []


def test_a_run_that_may_leave_does_so_only_where_the_policy_preempts() -> None:
    a = with_run(
        replace(job("a", max_epochs=50), epochs_done=3), share(), epochs_before=1, epoch_started=3
    )
    b = job("b")
    keeps = Round(view(a, b), NOW, RULES)
    assert [job.id for job in keeps.candidates] == ["b"]
    preempts = Round(view(a, b), NOW, RULES, preempts=True)
    assert {job.id for job in preempts.candidates} == {"a", "b"}


def test_without_known_speeds_the_smallest_gpus_that_hold_the_job_are_taken() -> None:
    nodes = [
        Node("n1", (Gpu("large", 0, "a100", 81920),)),
        Node("n2", (Gpu("small", 0, "t4", 16384),)),
    ]
    there = view(job("a", 4000), job("b", 40_000), nodes=nodes)
    made = plan(there, "a", "b")
    assert gpus_of(made, "a") == ["small"]
    assert gpus_of(made, "b") == ["large"]


def test_a_type_with_enough_idle_gpus_comes_before_a_smaller_one_without() -> None:
    nodes = [
        Node("n1", (Gpu("large", 0, "a100", 81920),)),
        Node("n2", (Gpu("small", 0, "t4", 16384),)),
    ]
    runs = with_run(job("a", 4000), Share("n2", "small", 15872))
    assert gpus_of(plan(view(runs, job("b", 4000), nodes=nodes), "b"), "b") == ["large"]


def test_a_job_that_wants_no_gpu_always_has_what_it_wants() -> None:
    there = view(job("a", gpus=(0, 0)), nodes=[node(1)])
    assert JobId("a") in plan(there, "a").placements


def test_a_plan_is_made_again_when_a_job_may_try_again() -> None:
    late: Job = job("l", eligible_at=NOW + 30, reason="lost")
    assert plan(view(late)).replan_at == NOW + 30
