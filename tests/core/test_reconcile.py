from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from scheduler.core.model import Action, Job, JobId, Launch, PodState, Remove, RunPhase, View
from scheduler.core.reconcile import reconcile
from tests.builders import NOW, job, pod, share, view, with_run

A = JobId("a")


def asked(
    of: View, touched: Iterable[JobId] = (), looked: bool = True, since: float = NOW - 1
) -> list[Action]:
    return list(reconcile(of, touched, looked, since, NOW))


def starting(epochs_done: int = 0, phase_at: float = NOW) -> Job:
    waiting = job("a", token="secret", epochs_done=epochs_done)
    return with_run(waiting, share(), phase=RunPhase.STARTING, phase_at=phase_at)


def stopping(kill_at: float) -> Job:
    return with_run(job("a"), share(), phase=RunPhase.STOPPING, kill_at=kill_at)


def test_a_run_that_just_began_is_launched_with_all_it_needs_to_know() -> None:
    run = starting(epochs_done=3)
    launch = Launch(A, 1, run.spec, (share(),), 3, 10, "secret")
    assert asked(view(run), touched=[A], looked=False) == [launch]


def test_a_launch_is_repeated_after_an_observation_that_does_not_show_it() -> None:
    """Such an observation makes the run enter its phase again (evolve.py)."""
    assert [type(action) for action in asked(view(starting()))] == [Launch]


def test_a_launch_is_not_repeated_for_any_other_reason() -> None:
    """Otherwise an observation begun before could show it missing although it is there."""
    assert asked(view(starting(phase_at=NOW - 5)), touched=[A], looked=False) == []


def test_a_launch_is_not_asked_for_while_what_is_left_of_another_takes_what_it_was_given() -> None:
    half = with_run(job("a", 8000), share(8000), phase=RunPhase.STARTING, phase_at=NOW)
    over = replace(job("b"), attempts=1)
    for taken, actions in ((7000, [Launch, Remove]), (9000, [Remove])):
        left = replace(pod(over, PodState.FAILED), used=(share(taken),))
        assert [type(action) for action in asked(view(half, over, pods=[left]))] == actions


@pytest.mark.parametrize("state", list(PodState))
def test_a_run_that_is_shown_is_not_launched_again(state: PodState) -> None:
    run = starting()
    assert asked(view(run, pods=[pod(run, state)]), touched=[A]) == []


def test_nothing_is_asked_where_nothing_is_to_do() -> None:
    running = with_run(job("a"), share())
    settled = view(running, job("b"), stopping(NOW + 1), pods=[pod(running)])
    assert asked(settled, touched=settled.jobs) == []
    assert asked(view(starting()), looked=False) == [], "it was not touched"


def test_a_run_past_its_deadline_is_removed() -> None:
    run = stopping(NOW)
    for pods in ([], [pod(run)]):
        assert asked(view(run, pods=pods), looked=False) == [Remove(A, 1)]


def test_a_run_is_not_removed_before_its_deadline() -> None:
    run = stopping(NOW + 0.001)
    assert asked(view(run, pods=[pod(run)]), touched=[A]) == []


def test_a_removal_asked_for_is_repeated_only_upon_news() -> None:
    run = stopping(NOW - 5)
    shown = view(run, pods=[pod(run)])
    assert asked(shown, looked=False) == []
    assert asked(shown, looked=False, since=NOW - 5) == [], "asked for in the step of that moment"
    assert asked(shown, looked=True) == [Remove(A, 1)]
    assert asked(shown, touched=[A], looked=False) == [Remove(A, 1)]


def test_a_run_that_terminates_already_is_not_removed_once_more() -> None:
    run = stopping(NOW)
    assert asked(view(run, pods=[pod(run, PodState.TERMINATING)])) == []


def test_a_gang_is_removed_until_all_of_it_terminates() -> None:
    run = stopping(NOW)
    half = [pod(run, PodState.TERMINATING), pod(run, rank=1)]
    assert asked(view(run, pods=half)) == [Remove(A, 1)]


@pytest.mark.parametrize("state", [PodState.RUNNING, PodState.SUCCEEDED, PodState.FAILED])
def test_pods_without_a_current_run_are_removed(state: PodState) -> None:
    unknown = pod(with_run(job("ghost"), share()), state)
    newest = with_run(job("a", attempts=1), share())
    old = pod(newest, state, attempt=1)
    shown = view(newest, pods=[unknown, old, pod(newest)])
    assert asked(shown) == [Remove(JobId("ghost"), 1), Remove(A, 1)]
    assert asked(shown, looked=False) == []


@pytest.mark.parametrize("state", [PodState.PENDING, PodState.RUNNING])
def test_a_run_of_a_job_without_a_row_goes_on(state: PodState) -> None:
    orphan = pod(with_run(job("ghost"), share()), state, orphan=True)
    assert asked(view(pods=[orphan])) == []


@pytest.mark.parametrize("state", [PodState.SUCCEEDED, PodState.FAILED])
def test_a_run_of_a_job_that_no_row_tells_of_is_removed_when_it_is_over(state: PodState) -> None:
    gang = with_run(job("ghost"), share(), share(gpu=1))
    orphans = [pod(gang, PodState.SUCCEEDED, orphan=True), pod(gang, state, rank=1, orphan=True)]
    assert asked(view(pods=orphans)) == [Remove(JobId("ghost"), 1)]


def test_a_run_that_is_over_is_removed_in_the_same_step() -> None:
    over = job("a", attempts=1)
    shown = view(over, pods=[pod(over, PodState.SUCCEEDED)])
    assert asked(shown, touched=[A], looked=False) == [Remove(A, 1)]


def test_a_job_that_was_touched_and_forgotten_is_no_trouble() -> None:
    assert asked(view(), touched=[JobId("nobody")]) == []
