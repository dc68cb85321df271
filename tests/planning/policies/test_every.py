"""What holds of each whole-GPU policy in any situation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.adopt import adopt
from scheduler.core.invariants import check
from scheduler.core.model import Outcome, Rules, Run, RunPhase, View
from scheduler.core.runs import may_stop
from scheduler.planning.policies import POLICIES
from simulator.generate import generate
from simulator.trials.trial import Trial
from tests.builders import CAPACITY, NOW, job, node, pod, view
from tests.simulator.little import nodes
from tests.views import RULES, views

FIELD = ("fifo", "srtf", "las", "elastic", "packing", "packing_gangs", "gavel")


@settings(max_examples=40)
@given(view=views(), name=st.sampled_from(FIELD))
def test_a_plan_is_one_that_can_be_adopted_as_it_is(view: View, name: str) -> None:
    policy = POLICIES[name](RULES)
    plan = policy(view, NOW)
    assert plan == policy(view, NOW)
    change = adopt(view, plan, NOW, RULES)
    check(view, change.view, change.touched)
    for before in view.jobs.values():
        after = change.view.jobs[before.id]
        if before.waiting:
            assert (before.id in plan.placements) == (after.run is not None)
            assert (before.id in plan.placements) != (before.id in plan.why)
            assert before.id in plan.placements or plan.queue.count(before.id) == 1
        elif before.run and not may_stop(before.run):
            assert after.run == before.run


@settings(max_examples=40)
@given(view=views(), name=st.sampled_from(FIELD))
def test_without_events_the_plan_does_not_change(view: View, name: str) -> None:
    policy = POLICIES[name](RULES)
    once = adopt(view, policy(view, NOW), NOW, RULES).view
    assert adopt(once, policy(once, NOW), NOW, RULES).view.jobs == once.jobs


@pytest.mark.parametrize("name", POLICIES)
def test_no_jobs_share_a_gpu_that_is_given_to_one_at_a_time(name: str) -> None:
    there = node(3)
    there = replace(there, gpus=tuple(replace(gpu, whole=True) for gpu in there.gpus))
    jobs = [job(f"j{number}", 1000, gpu_util=0.1) for number in range(6)]
    for _ in range(2):  # the second plan may put others beside those that run by then
        now = view(*jobs, nodes=[there], pods=[pod(each) for each in jobs if each.run])
        after = adopt(now, POLICIES[name](RULES)(now, NOW), NOW, RULES).view
        shares = [share for each in after.jobs.values() if each.run for share in each.run.shares]
        assert {share.gpu for share in shares} == {"gpu0", "gpu1", "gpu2"}
        assert [share.memory_mib for share in shares] == [CAPACITY] * 3
        jobs = [replace(each, run=heard(each.run)) for each in after.jobs.values()]


def heard(run: Run | None) -> Run | None:
    return run and replace(run, phase=RunPhase.RUNNING, heard_at=NOW)


@pytest.mark.parametrize("name", FIELD)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_job_of_a_trace_comes_to_its_end(name: str, seed: int) -> None:
    rules = Rules(plan_every_seconds=60.0)
    jobs = generate(60, seed=seed, gpus=12, load=1.5)
    result = Trial(jobs, nodes(4, 4, 4), POLICIES[name](rules), rules).run()
    outcomes = {times.outcome for times in result.jobs}
    assert outcomes == {Outcome.SUCCEEDED}
    stops = sum(times.preemptions for times in result.jobs)
    assert (stops == 0) == (name in ("fifo", "packing", "packing_gangs"))
