"""What is told to help does help: the policy itself says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.adopt import adopt
from scheduler.core.model import Job, JobId, Plan, Reason, Time, View, Waiting
from scheduler.core.ports import Policy
from scheduler.outlook.prospect import Remedy
from scheduler.outlook.remedies import remedy, starts, without
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests import builders

NOW = builders.NOW
POLICY = fifo_sharing(builders.RULES)


def runs(name: str, mib: int = builders.CAPACITY, gpu: int = 0) -> Job:
    return builders.with_run(builders.job(name, mib), builders.share(mib, gpu))


def planned(*jobs: Job, gpus: int = 1, policy: Policy = POLICY) -> View:
    view = builders.view(*jobs, nodes=[builders.node(gpus)])
    return adopt(view, policy(view, NOW), NOW, builders.RULES).view


def told(view: View, name: str, *leaving: str, policy: Policy = POLICY) -> Remedy:
    job = view.jobs[JobId(name)]
    found = remedy(job, view, NOW, policy, builders.RULES, [JobId(id) for id in leaving])
    gone = found.until + found.ahead
    if gone:
        assert starts(job.id, without(view, gone, job.id), NOW, policy, builders.RULES)
        for spared in gone:
            fewer = [other for other in gone if other != spared]
            assert not starts(job.id, without(view, fewer, job.id), NOW, policy, builders.RULES)
    return found


def test_the_job_on_the_only_gpu_is_named() -> None:
    assert told(planned(runs("a"), builders.job("b")), "b") == Remedy(until=(JobId("a"),))


def test_jobs_that_leave_first_are_named_first() -> None:
    view = planned(runs("a"), runs("b", gpu=1), builders.job("c", submitted_at=NOW), gpus=2)
    assert told(view, "c", "b", "a").until == ("b",)
    assert told(view, "c", "a", "b").until == ("a",)


def test_the_jobs_that_the_reason_names_are_named_here_too() -> None:
    """`why: waits for b` and `starts: when a ends` would contradict each other."""
    view = planned(runs("a"), runs("b", gpu=1), builders.job("c", submitted_at=NOW), gpus=2)
    for named in ("a", "b"):
        why = {JobId("c"): Reason(Waiting.STOPPING, asked=(named,))}
        assert told(replace(view, why=why), "c", "a", "b").until == (named,)


def test_further_jobs_are_named_if_those_of_the_reason_are_not_enough() -> None:
    gang = builders.job("c", gpus=2, submitted_at=NOW)
    view = planned(runs("a"), runs("b", gpu=1), gang, gpus=2)
    why = {JobId("c"): Reason(Waiting.MEMORY, jobs=("b",))}
    assert set(told(replace(view, why=why), "c", "a", "b").until) == {"a", "b"}


def test_jobs_that_are_not_in_the_way_are_not_named() -> None:
    small = runs("a", 1000)
    view = planned(small, runs("b", 14_000, gpu=1), builders.job("c", 14_500, gpus=2), gpus=2)
    assert told(view, "c", "a", "b").until == ("b",)


def test_waiting_jobs_that_come_first_are_named_separately() -> None:
    first, then = builders.job("b"), builders.job("c", submitted_at=NOW)
    view = planned(runs("a"), first, then)
    assert told(view, "c") == Remedy(until=(JobId("a"),), ahead=(JobId("b"),))


def test_a_gang_over_nodes_is_told_what_it_waits_for_and_what_would_help() -> None:
    there = [
        builders.with_run(builders.job(n), builders.share(node=f"n{k}"))
        for n, k in (("a", 1), ("b", 2))
    ]
    nodes = [builders.node(2), builders.node(2, "n2")]
    view = builders.view(*there, builders.job("gang", gpus=3), nodes=nodes)
    view = adopt(view, POLICY(view, NOW), NOW, builders.RULES).view
    found = told(view, "gang", "b", "a")
    assert (found.until, found.instead) == (("b",), "with --num_gpus 1")


def test_pods_that_are_left_of_an_ended_job_are_in_the_way_too() -> None:
    over = builders.with_run(builders.job("old"), builders.share())
    view = builders.view(builders.job("b"), pods=[builders.pod(over)])
    assert told(view, "b").until == ("old",)


def test_what_is_left_of_its_own_last_run_is_in_its_way() -> None:
    job = replace(builders.job("b"), attempts=1)
    view = builders.view(job, pods=[replace(builders.pod(job), shares=(builders.share(),))])
    assert told(view, "b").until == ("b",)


def test_so_it_is_on_a_gpu_that_no_job_can_have_for_now() -> None:
    job = replace(builders.job("b"), attempts=1)
    left = replace(builders.pod(job), shares=(builders.share(),))
    broken, sound = builders.node(2).gpus
    node = replace(builders.node(2), gpus=(replace(broken, fault="XID 79"), sound))
    assert told(builders.view(job, nodes=[node], pods=[left]), "b").until == ("b",)


def test_nothing_helps_a_job_that_no_gpu_can_hold() -> None:
    assert told(planned(runs("a"), builders.job("b", 99_999)), "b") == Remedy()


@pytest.mark.parametrize("why", [{"held": True}, {"eligible_at": NOW + 5}, {"cancelled": True}])
def test_a_job_that_does_not_wait_for_gpus_needs_no_remedy(why: dict[str, Any]) -> None:
    assert told(builders.view(runs("a"), replace(builders.job("b"), **why)), "b") == Remedy()


def test_a_job_that_is_about_to_start_needs_none_either() -> None:
    assert told(builders.view(builders.job("b")), "b") == Remedy()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (builders.job("b", gpus=2), "with --num_gpus 1"),
        (builders.job("b", gpus=(2, 4)), "with --min_gpus 1"),
        (builders.job("b", gpus=4), "with --num_gpus 1"),
    ],
)
def test_fewer_gpus_may_be_had_now(job: Job, words: str) -> None:
    view = planned(runs("a"), runs("c", gpu=1), runs("d", gpu=2), job, gpus=4)
    assert told(view, "b").instead == words


def test_less_memory_may_be_had_now_but_not_so_little_that_it_would_be_another_job() -> None:
    assert told(planned(runs("a", 9000), builders.job("b", 9000)), "b").instead == (
        "with --estimated_memory 6800"
    )
    assert told(planned(runs("a", 12_000), builders.job("b", 9000)), "b").instead == ""


def test_what_was_measured_cannot_be_wished_away() -> None:
    tried = replace(builders.job("b", 9000), attempts=1)
    assert told(planned(runs("a", 9000), tried), "b").instead == ""


def test_to_say_how_much_memory_it_takes_may_be_enough() -> None:
    found = told(planned(runs("a", 9000), builders.job("b")), "b")
    assert found.instead == "with --estimated_memory 6800"


def test_to_share_may_be_enough() -> None:
    alone = builders.job("b", 4000, shareable=False)
    assert told(planned(runs("a", 9000), alone), "b").instead == "without --disable_gpu_sharing"


def test_a_policy_that_never_starts_it_is_not_asked_for_ever() -> None:
    asked = 0

    def refuses(view: View, now: Time) -> Plan:
        nonlocal asked
        asked += 1
        return Plan(why={JobId("b"): Reason(Waiting.TURN)})

    view = builders.view(*(runs(f"a{n}", 100) for n in range(100)), builders.job("b", gpus=8))
    assert told(view, "b", policy=refuses) == Remedy()
    assert asked < 15


def test_an_answer_costs_a_few_dozen_plans_at_most_and_is_true_all_the_same() -> None:
    asked = 0

    def counted(view: View, now: Time) -> Plan:
        nonlocal asked
        asked += 1
        return POLICY(view, now)

    jobs = [runs(f"a{n:03}", gpu=n) for n in range(64)]
    view = planned(*jobs, builders.job("b", gpus=48), gpus=64)
    asked = 0
    found = remedy(view.jobs[JobId("b")], view, NOW, counted, builders.RULES, ())
    assert asked <= 41
    gone = found.until + found.ahead
    assert starts(JobId("b"), without(view, gone, JobId("b")), NOW, POLICY, builders.RULES)
