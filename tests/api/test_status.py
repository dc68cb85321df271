"""What people are told of a job in each of its situations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.api.status import JobStatus, State, parse_states, status
from scheduler.core.errors import Rejected
from scheduler.core.model import (
    Job,
    JobId,
    Outcome,
    Pod,
    PodState,
    Profile,
    Reason,
    RunPhase,
    Time,
    View,
    Waiting,
)
from tests import builders

WAITING = builders.job("demo", submitted_at=builders.NOW)
RUNNING = builders.with_run(WAITING, builders.share(), heard_at=builders.NOW)


def told(
    job: Job, view: View | None = None, due_at: Time = 0.0, epoch_seconds: float | None = None
) -> JobStatus:
    newest = None
    if epoch_seconds is not None:
        newest = Profile(job.id, 1, job.epochs_done, epoch_seconds=epoch_seconds)
    return status(job, view or builders.view(job), newest, due_at)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (WAITING, State.QUEUED),
        (replace(WAITING, held=True), State.HELD),
        (builders.with_run(WAITING, builders.share(), phase=RunPhase.STARTING), State.STARTING),
        (RUNNING, State.RUNNING),
        (builders.with_run(WAITING, builders.share(), phase=RunPhase.STOPPING), State.STOPPING),
        (replace(RUNNING, cancelled=True), State.STOPPING),
        (replace(WAITING, outcome=Outcome.SUCCEEDED, ended_at=1.0), State.FINISHED),
        (replace(WAITING, outcome=Outcome.FAILED, ended_at=1.0), State.FAILED),
        (replace(WAITING, outcome=Outcome.CANCELLED, ended_at=1.0), State.CANCELED),
    ],
)
def test_each_situation_has_a_word(job: Job, expected: State) -> None:
    assert told(job).state is expected


def test_a_run_that_is_overdue_is_unresponsive() -> None:
    assert told(RUNNING, due_at=builders.NOW).state is State.RUNNING
    silent = told(RUNNING, due_at=builders.NOW + 1)
    assert silent.state is State.UNRESPONSIVE
    assert "no report" in silent.reason


def test_a_run_that_never_spoke_to_us_is_not_unresponsive() -> None:
    mute = builders.with_run(WAITING, builders.share(), heard_at=None)
    assert told(mute, due_at=builders.NOW + 1e6).state is State.RUNNING


def test_a_waiting_job_says_why() -> None:
    view = builders.view(WAITING)
    assert told(WAITING, view).reason == "will be planned in a moment"
    blind = replace(view, observed_at=None)
    assert told(WAITING, blind).reason == "waits for the first observation of the cluster"
    why = {JobId("demo"): Reason(Waiting.MEMORY, memory_mib=4000, free_mib=2872, gpu=0)}
    planned = replace(view, why=why)
    assert (
        told(WAITING, planned).reason
        == "memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"
    )
    assert told(replace(WAITING, held=True)).reason == "held (until it is released)"


def test_a_stopping_run_and_an_ended_job_say_why() -> None:
    stopping = builders.with_run(
        WAITING, builders.share(), phase=RunPhase.STOPPING, stop_reason="preempted"
    )
    assert told(stopping).reason == "preempted"
    failed = replace(WAITING, outcome=Outcome.FAILED, ended_at=1.0, reason="exit code 3")
    assert told(failed).reason == "exit code 3"


def test_a_run_that_does_not_come_to_start_says_what_keeps_it() -> None:
    starting = builders.with_run(WAITING, builders.share(), phase=RunPhase.STARTING)
    pod = Pod(starting.id, starting.attempts, PodState.PENDING)
    kept = replace(pod, rank=1, reason="its pod cannot be scheduled: 0/2 nodes are available")
    view = replace(builders.view(starting), pods={(pod.job_id, pod.attempt): (pod, kept)})
    assert told(starting, view).why == Reason(Waiting.STARTING, cause=kept.reason)
    assert told(starting, view).reason == kept.reason
    runs = replace(kept, state=PodState.RUNNING)
    assert told(starting, replace(view, pods={(pod.job_id, pod.attempt): (runs,)})).reason == ""


def test_why_is_told_in_parts_too() -> None:
    assert told(WAITING).why == Reason(Waiting.PLANNING)
    assert told(replace(WAITING, held=True)).why == Reason(Waiting.HELD)
    why = {JobId("demo"): Reason(Waiting.MEMORY, memory_mib=4000, free_mib=2872, gpu=0)}
    assert told(WAITING, replace(builders.view(WAITING), why=why)).why == why[JobId("demo")]
    stopping = builders.with_run(
        WAITING, builders.share(), phase=RunPhase.STOPPING, stop_reason="preempted"
    )
    assert told(stopping).why == Reason(Waiting.STOPPING, cause="preempted")
    assert told(RUNNING).why is None
    assert told(replace(WAITING, outcome=Outcome.FAILED, reason="exit code 3")).why is None


def test_who_waits_again_says_why_its_last_run_ended() -> None:
    assert told(replace(WAITING, reason="preempted for b")).last_run == "preempted for b"
    assert told(replace(RUNNING, reason="preempted for b")).last_run == ""
    assert told(replace(WAITING, outcome=Outcome.FAILED, reason="exit code 3")).last_run == ""


def test_who_made_room_and_waits_is_preempted() -> None:
    made_room = replace(WAITING, attempts=1, reason="preempted for urgent, after epoch 2")
    assert told(made_room).preempted
    assert not told(replace(made_room, held=True)).preempted
    assert not told(replace(WAITING, reason="its pod was lost")).preempted
    assert not told(builders.with_run(made_room, builders.share())).preempted


def test_what_is_left_follows_from_the_newest_epoch() -> None:
    half = replace(RUNNING, epochs_done=4)
    assert told(half, epoch_seconds=2.5).eta_seconds == 2.5 * 6
    assert told(half, epoch_seconds=2.5).epoch_seconds == 2.5
    assert told(half).eta_seconds is None
    assert told(WAITING, epoch_seconds=2.5).eta_seconds is None


def test_before_the_first_epoch_what_is_left_is_what_the_owner_said() -> None:
    spec = replace(RUNNING.spec, hours_estimate=2.0)
    assert told(replace(RUNNING, spec=spec)).eta_seconds == 7200
    assert told(replace(RUNNING, spec=spec), epoch_seconds=3.0).eta_seconds == 30


def test_filters_know_the_words_of_other_schedulers() -> None:
    assert parse_states([]) == frozenset(State)
    assert parse_states(["running"]) == {State.RUNNING}
    assert parse_states(["PENDING", "Killed"]) == {State.QUEUED, State.CANCELED}
    assert parse_states(["QUEUE"]) == {State.QUEUED, State.STARTING, State.RUNNING}
    for word in ("CREATED", "RequestSubmit", "SCHEDULED", "Submitted", "Completed", "Pass"):
        assert len(parse_states([word])) == 1
    with pytest.raises(Rejected, match="--status 'NOPE': is none of HELD, QUEUED"):
        parse_states(["NOPE"])
