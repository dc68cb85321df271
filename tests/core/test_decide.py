from __future__ import annotations

import copy

import pytest

from scheduler.core.decide import Decision, decide
from scheduler.core.model import (
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Failure,
    JobId,
    Launch,
    Plan,
    PodState,
    Profile,
    Remove,
    Reported,
    Rules,
    RunPhase,
    Submitted,
    Time,
    Updated,
    View,
)
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests.builders import (
    NOW,
    RULES,
    ScriptedCluster,
    epoch_ended,
    job,
    node,
    observation,
    pod,
    share,
    spec,
    view,
    with_run,
)

A = JobId("a")


class Counting:
    """A policy that plans nothing, and counts how often it was called."""

    def __init__(self, replan_at: Time | None = None) -> None:
        self.asked, self.replan_at = 0, replan_at

    def __call__(self, view: View, now: Time) -> Plan:
        self.asked += 1
        kept = {job.id: job.run.shares for job in view.jobs.values() if job.run}
        return Plan(kept, replan_at=self.replan_at)


def decided(
    before: View, *events: Event, policy: Counting, now: Time = NOW, rules: Rules = RULES
) -> Decision:
    return decide(before, events, now, policy, rules)


def submitted(name: str = "new") -> Submitted:
    return Submitted(JobId(name), spec(name))


# --- when to plan -------------------------------------------------------------------------------


def test_nothing_is_planned_before_the_first_observation() -> None:
    policy = Counting(replan_at=NOW)
    made = decided(View(), submitted(), policy=policy)
    assert (policy.asked, made.wake_at) == (0, None)
    decided(made.view, observation(), policy=policy)
    assert policy.asked == 1


def test_the_first_observation_after_a_start_leads_to_a_plan_even_if_nothing_changed() -> None:
    policy = Counting()
    decided(View(), observation(nodes=[]), policy=policy)
    assert policy.asked == 1


def test_nothing_is_planned_if_nothing_changed_that_a_plan_depends_on() -> None:
    running = with_run(job("a", 4000), share(4000))
    policy = Counting()
    words = (
        Reported(A, 1),
        epoch_ended(running, 3),
        EpochStarted(A, 1, 3),
        observation(pod(running)),
    )
    decided(view(running, pods=[pod(running)]), *words, policy=policy)
    assert policy.asked == 0


def test_a_speed_that_is_learned_is_no_reason_to_plan() -> None:
    running = with_run(job("a", 4000), share(4000), epoch_started=1, epoch_at=NOW - 50)
    policy = Counting()
    report = EpochEnded(Profile(A, 1, 2, epoch_seconds=50.0))
    made = decided(view(running, pods=[pod(running)]), report, policy=policy)
    (learned,) = made.view.jobs[A].measured
    assert learned.seconds == 50.0
    assert (made.view.stale, policy.asked, made.wake_at) == (False, 0, None)


def test_the_first_measurement_beside_a_neighbour_is_a_reason_to_plan() -> None:
    running = with_run(job("a", 4000), share(4000), epoch_started=1, epoch_at=NOW - 50)
    beside = with_run(job("b", 4000), share(4000))
    policy = Counting()
    shown = view(running, beside, pods=[pod(running), pod(beside)])
    report = EpochEnded(Profile(A, 1, 2, epoch_seconds=50.0))
    first = decided(shown, report, policy=policy)
    assert first.view.jobs[A].measured[0].beside == ("b",)
    assert policy.asked == 1


def test_plans_are_not_made_more_often_than_the_rules_say() -> None:
    policy = Counting()
    first = decided(view(), submitted("a"), policy=policy)
    second = decided(first.view, submitted("b"), policy=policy, now=NOW + 0.4)
    assert (policy.asked, second.wake_at) == (1, NOW + RULES.plan_every_seconds)
    third = decided(second.view, policy=policy, now=NOW + RULES.plan_every_seconds)
    assert (policy.asked, third.wake_at) == (2, None)


def test_a_plan_may_ask_for_the_next_one() -> None:
    policy = Counting(replan_at=NOW + 60)
    first = decided(view(), submitted(), policy=policy)
    assert first.wake_at == NOW + 60
    early = decided(first.view, policy=policy, now=NOW + 59)
    assert (policy.asked, early.wake_at) == (1, NOW + 60)
    decided(first.view, policy=policy, now=NOW + 60)
    assert policy.asked == 2


def test_a_plan_that_always_asks_for_the_next_at_once_gets_no_more_than_its_turn() -> None:
    made = decided(view(), submitted(), policy=Counting(replan_at=NOW - 99))
    assert made.wake_at == NOW + RULES.plan_every_seconds


def test_the_loop_wakes_for_a_deadline() -> None:
    stopping = with_run(job("a"), share(), phase=RunPhase.STOPPING, kill_at=NOW + 30)
    policy = Counting()
    made = decided(view(stopping), policy=policy)
    assert made.wake_at == NOW + 30
    due = decided(made.view, policy=policy, now=NOW + 30)
    assert (due.actions, due.wake_at) == ((Remove(A, 1),), None)


def test_the_loop_wakes_for_the_end_of_a_pause() -> None:
    town = ScriptedCluster()
    town.look()
    town.submit("a", retries=1)
    town.exit("a", 1)
    assert "a" not in town.running()
    eligible_at = town.view.jobs[A].eligible_at
    assert town.step().wake_at == eligible_at
    town.now = eligible_at
    town.step()
    assert town.run("a").attempt == 2


# --- what comes of it ---------------------------------------------------------------------------


def test_the_same_input_gives_the_same_output_and_is_left_as_it_was() -> None:
    running = with_run(job("a", 4000), share(4000))
    before = view(running, job("b", 4000), job("c"), pods=[pod(running)], nodes=[node(2)])
    events = (
        epoch_ended(running, 1, 5000),
        Cancelled(JobId("c")),
        observation(nodes=[node(2)], at=NOW),
    )
    untouched = copy.deepcopy(before)
    once, twice = (decide(before, events, NOW, fifo_sharing(RULES), RULES) for _ in range(2))
    assert once == twice
    assert before == untouched


def test_a_batch_that_changes_nothing_asks_for_nothing() -> None:
    running = with_run(job("a", 4000), share(4000))
    before = view(running, pods=[pod(running)])
    made = decide(before, [observation(pod(running))], NOW, fifo_sharing(RULES), RULES)
    assert (made.touched, made.actions, made.profiles, made.wake_at) == ((), (), (), None)
    assert made.view.jobs is before.jobs
    assert made.view.number == before.number + 1


def test_a_job_is_launched_in_the_step_that_hears_of_it() -> None:
    made = decide(view(), [submitted("a")], NOW, fifo_sharing(RULES), RULES)
    assert [(type(action), action.job_id) for action in made.actions] == [(Launch, A)]
    assert made.touched == ("a",)


def test_measured_epochs_are_kept_whatever_their_attempt_and_get_the_time_they_came_at() -> None:
    before = view(with_run(job("a", attempts=1), share()))
    ours, late = Profile(A, 2, 3), Profile(A, 1, 2)
    strange = Profile(JobId("nobody"), 1, 1)
    words = [epoch_ended(job(p.job_id), p.epoch, attempt=p.attempt) for p in (ours, late, strange)]
    kept = decided(before, *words, policy=Counting()).profiles
    assert [(p.attempt, p.epoch, p.at) for p in kept] == [(2, 3, NOW), (1, 2, NOW)]


# --- over several steps -------------------------------------------------------------------------


def test_an_out_of_memory_death_is_tried_again_in_the_step_that_sees_it() -> None:
    town = ScriptedCluster()
    town.look()
    town.submit("a", 4000)
    died = pod(town.view.jobs[A], PodState.FAILED, exit_code=1, reason="out_of_memory")
    town.pods[A, 1] = [died]
    made = town.look()
    assert {type(action) for action in made.actions} == {Launch, Remove}
    assert (town.run("a").attempt, town.run("a").shares) == (2, (share(6000),))


def test_a_cancelled_run_that_was_never_launched_is_over_after_the_next_observation() -> None:
    town = ScriptedCluster()
    town.look()
    town.step(submitted("a"))
    town.pods.clear()  # the launch got lost
    town.step(Cancelled(A))
    town.look()
    assert town.view.jobs[A].outcome == "cancelled"
    assert town.view.held == {}


def test_a_run_that_outlives_its_notice_is_removed_and_waits_again() -> None:
    town = ScriptedCluster()
    town.look()
    town.submit("a")
    town.step(Updated(A, held=True))
    assert town.run("a").phase is RunPhase.STOPPING
    town.now += RULES.stop_grace_seconds
    town.step()
    town.look()
    waiting = town.view.jobs[A]
    assert (waiting.waiting, waiting.failed(Failure.LOST)) == (True, 0)


@pytest.mark.parametrize("again", [1, 3])
def test_pods_from_before_a_restart_that_no_row_knows_are_removed(again: int) -> None:
    town = ScriptedCluster()
    ghost = pod(with_run(job("ghost"), share()))
    for attempt in range(1, again + 1):
        shown = pod(with_run(job("ghost"), share()), attempt=attempt)
        town.pods[ghost.job_id, attempt] = [shown]
    town.look()
    town.look()
    assert (town.pods, town.view.held) == ({}, {})
