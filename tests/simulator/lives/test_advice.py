"""The checker of remedies: which it computes, how often, and what it rejects."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.core.model import Job, JobId, Plan, Reason, Time, View, Waiting
from scheduler.core.ports import Policy
from scheduler.outlook.remedies import without
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from simulator.lives.advice import CachingPolicy, RemedyChecker
from simulator.lives.checkers import Violation
from simulator.lives.faults import NO_FAULTS
from simulator.lives.world import World
from tests import builders

POLICY = fifo_sharing(builders.RULES)


def checker(policy: Policy) -> RemedyChecker:
    world = World(random.Random(1), NO_FAULTS, [builders.node()], {})
    return RemedyChecker(world, policy, builders.RULES, of_all=True)


def occupied(*waiting: Job) -> View:
    return builders.view(builders.with_run(builders.job("a"), builders.share()), *waiting)


def looked(policy: Policy, *waiting: Job) -> None:
    """Runs the checker after a plan, while these jobs wait for the only GPU."""
    view = occupied(*waiting)
    checker(policy).on_step(view, replace(view, at=builders.NOW, planned_at=builders.NOW))


def test_a_waiting_job_starts_without_the_jobs_of_its_remedy() -> None:
    looked(POLICY, builders.job("b"), builders.job("c"))


def test_a_held_job_is_released_first() -> None:
    looked(POLICY, builders.job("b", held=True))


def test_a_released_job_that_still_waits_for_its_release_is_noticed() -> None:
    def stubborn(view: View, now: Time) -> Plan:
        return replace(POLICY(view, now), why={JobId("b"): Reason(Waiting.HELD)})

    with pytest.raises(Violation, match="is no longer held back"):
        looked(stubborn, builders.job("b", held=True))


def test_one_plan_answers_for_all_views_that_are_alike() -> None:
    plans = 0

    def counted(view: View, now: Time) -> Plan:
        nonlocal plans
        plans += 1
        return POLICY(view, now)

    view = occupied(builders.job("b"), builders.job("c"))
    policy = CachingPolicy(counted)
    first = policy(without(view, [JobId("a")], JobId("b")), builders.NOW)
    assert policy(without(view, [JobId("a")], JobId("c")), builders.NOW) is first
    policy(without(view, [JobId("b")], JobId("c")), builders.NOW)
    assert plans == 2
