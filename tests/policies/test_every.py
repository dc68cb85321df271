"""What holds of each policy of the field, whatever the situation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.adopt import adopt
from scheduler.invariants import check
from scheduler.model import Outcome, Rules, View
from scheduler.placing import may_leave
from scheduler.policies import POLICIES
from simulator.generate import generated
from simulator.trial import Trial
from tests.core import NOW
from tests.simulator.little import nodes
from tests.test_properties import RULES, views

FIELD = ("fifo", "srtf", "las", "elastic", "packing", "packing_gangs", "gavel")


@settings(max_examples=40)
@given(view=views(), name=st.sampled_from(FIELD))
def test_a_plan_is_one_that_can_be_adopted_as_it_is(view: View, name: str) -> None:
    policy = POLICIES[name](RULES)
    plan = policy(view, NOW)
    assert plan == policy(view, NOW)
    change = adopt(view, plan, NOW, RULES)
    check(view, change.view, change.touched)
    for job in view.jobs.values():
        after = change.view.jobs[job.id]
        if job.waiting:
            assert (job.id in plan.placements) == (after.run is not None)
            assert (job.id in plan.placements) != (job.id in plan.why)
        elif job.run and not may_leave(job):
            assert after.run == job.run


@settings(max_examples=40)
@given(view=views(), name=st.sampled_from(FIELD))
def test_where_nothing_happens_nothing_more_is_wished(view: View, name: str) -> None:
    policy = POLICIES[name](RULES)
    once = adopt(view, policy(view, NOW), NOW, RULES).view
    assert adopt(once, policy(once, NOW), NOW, RULES).view.jobs == once.jobs


@pytest.mark.parametrize("name", FIELD)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_job_of_a_trace_comes_to_its_end(name: str, seed: int) -> None:
    rules = Rules(plan_every_seconds=60.0)
    jobs = generated(60, seed=seed, gpus=12, load=1.5)
    result = Trial(jobs, nodes(4, 4, 4), POLICIES[name](rules), rules).run()
    outcomes = {times.outcome for times in result.jobs}
    assert outcomes == {Outcome.SUCCEEDED}
    stops = sum(times.preemptions for times in result.jobs)
    assert (stops == 0) == (name in ("fifo", "packing", "packing_gangs"))
