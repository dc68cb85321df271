"""A job with a time limit is stopped after the last epoch that ends within it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.evolve import evolve
from scheduler.core.model import (
    Job,
    Measured,
    Outcome,
    Pod,
    PodState,
    RunPhase,
)
from scheduler.core.time_limit import is_due, text
from scheduler.core.watchdog import keep_time_limits
from tests.builders import NOW, RULES, job, node, observation, pod, share, view, with_run

LIMIT = 600.0
EPOCH = 100.0


def limited(ran: float = 0.0, began_ago: float = 0.0, in_run: float = 0.0, **run: Any) -> Job:
    """It is in an epoch that began so long ago, and has been running for `in_run`."""
    waiting = job("a", 4000, max_epochs=20, epochs_done=3, ran_seconds=ran)
    waiting = replace(
        waiting,
        spec=replace(waiting.spec, time_limit_seconds=LIMIT),
        measured=(Measured("pretendedx1", (), EPOCH, 2),),
    )
    fields = {
        "started_at": NOW - in_run,
        "epoch_started": 4,
        "epoch_at": NOW - began_ago,
        "heard_at": NOW - 1,
    }
    return with_run(waiting, share(4000), **{**fields, **run})


@pytest.mark.parametrize(
    ("running", "due"),
    [
        (limited(in_run=100.0), False),
        (limited(in_run=400.0), False),  # this epoch ends at 500, the next one at 600
        (limited(in_run=401.0), True),
        (limited(in_run=480.0, began_ago=90.0), False),  # the next one ends at 590
        (limited(in_run=480.0, began_ago=60.0), True),
        (limited(in_run=480.0, began_ago=300.0), False),  # it has taken longer, and ends now
        (limited(in_run=501.0, began_ago=300.0), True),
        (limited(ran=300.0, in_run=100.0), False),  # all runs count
        (limited(ran=300.0, in_run=101.0), True),
        (limited(in_run=599.0, heard_at=None), False),  # it cannot be asked
        (limited(in_run=600.0, heard_at=None), True),
        (limited(in_run=599.0, epoch_started=18), False),  # the last epoch is not interrupted
        (limited(in_run=700.0, phase=RunPhase.STOPPING), False),  # it stops already
        (replace(limited(in_run=599.0), measured=()), False),  # nobody knows how long one takes
    ],
)
def test_it_is_due_when_there_is_no_time_for_another_epoch(running: Job, due: bool) -> None:
    assert is_due(running, NOW) == due
    free = replace(running, spec=replace(running.spec, time_limit_seconds=0.0))
    assert not is_due(free, NOW)


def watched(running: Job) -> Job:
    before = view(running, nodes=[node()], pods=[pod(running)])
    change = keep_time_limits(before, [running.id], NOW, RULES)
    assert change
    return change.view.jobs[running.id]


def test_a_run_that_reports_is_asked_and_has_the_usual_notice() -> None:
    run = watched(limited(in_run=450.0)).run
    assert run
    assert (run.phase, run.stop_at_epoch) == (RunPhase.STOPPING, 5)
    assert run.stop_reason == "time limit 10m reached"
    assert run.kill_at == NOW + RULES.stop_grace_seconds


def test_a_run_that_reports_nothing_is_ended() -> None:
    run = watched(limited(in_run=601.0, heard_at=None)).run
    assert run
    assert run.kill_at == NOW


def ended(running: Job, seen: Pod | None) -> Job:
    """The job after an observation in which its run is over; None: it has vanished."""
    before = view(running, nodes=[node()], pods=[pod(running)])
    after = evolve(before, [observation(*([seen] if seen else []))], NOW, RULES).view
    return after.jobs[running.id]


STOPPED: dict[str, Any] = {"phase": RunPhase.STOPPING, "stop_at_epoch": 4}


@pytest.mark.parametrize(
    ("running", "outcome"),
    [
        (limited(in_run=450.0, stop_reason="time limit 10m reached", **STOPPED), Outcome.FAILED),
        (limited(in_run=550.0, stop_reason="preempted for b", **STOPPED), Outcome.FAILED),
        (limited(in_run=450.0, stop_reason="preempted for b", **STOPPED), None),
        (limited(in_run=450.0), None),  # its pod was lost
        (limited(in_run=601.0), Outcome.FAILED),
    ],
)
def test_a_job_without_time_for_another_epoch_is_over(
    running: Job, outcome: Outcome | None
) -> None:
    assert running.run
    lost = running.run.phase is RunPhase.RUNNING
    found = ended(running, None if lost else pod(running, PodState.FAILED, exit_code=85))
    assert found.outcome == outcome
    if outcome:
        assert found.reason == "time limit 10m reached after epoch 3"


def test_a_job_that_has_done_all_epochs_is_finished_however_long_it_took() -> None:
    running = replace(limited(in_run=700.0), epochs_done=20)
    assert (
        ended(running, pod(running, PodState.SUCCEEDED, exit_code=0)).outcome is Outcome.SUCCEEDED
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7200, "2h"), (1800, "30m"), (129_600, "1d12h"), (90, "1m30s"), (1.0, "1s")],
)
def test_a_limit_is_told_as_it_is_typed(seconds: float, words: str) -> None:
    assert text(seconds) == words
