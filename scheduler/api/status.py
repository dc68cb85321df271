"""What people are told of a job: its state, why, and how much longer. Derived from rows; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.core import dependencies, time_limit
from scheduler.core.admission import quote
from scheduler.core.errors import Rejected
from scheduler.core.model import (
    Job,
    Outcome,
    PodState,
    Profile,
    Reason,
    RunPhase,
    Time,
    View,
    Waiting,
)
from scheduler.core.reason_text import is_preemption, line, text


class State(StrEnum):
    HELD = "HELD"
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    UNRESPONSIVE = "UNRESPONSIVE"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    SKIPPED = "SKIPPED"


ENDED = {
    Outcome.SUCCEEDED: State.FINISHED,
    Outcome.FAILED: State.FAILED,
    Outcome.CANCELLED: State.CANCELED,
    Outcome.SKIPPED: State.SKIPPED,
}
_PHASES = {
    RunPhase.STARTING: State.STARTING,
    RunPhase.RUNNING: State.RUNNING,
    RunPhase.STOPPING: State.STOPPING,
}
# Words other schedulers use for the same, in upper case.
_ALIASES = {
    "CREATED": {State.QUEUED},
    "PENDING": {State.QUEUED},
    "REQUESTSUBMIT": {State.QUEUED},
    "SCHEDULED": {State.STARTING},
    "SUBMITTED": {State.STARTING},
    "COMPLETED": {State.FINISHED},
    "PASS": {State.FINISHED},
    "KILLED": {State.CANCELED},
    "CANCELLED": {State.CANCELED},
    "QUEUE": {State.QUEUED, State.STARTING, State.RUNNING},
}


@dataclass(frozen=True, slots=True)
class JobStatus:
    state: State
    reason: str = ""  # in a line
    why: Reason | None = None  # the same in parts, if it is about now
    last_run: str = ""  # why that ended, of a job that waits for its next one
    preempted: bool = False
    epoch_seconds: float | None = None
    eta_seconds: float | None = None


def status(job: Job, view: View, newest: Profile | None, due_at: Time) -> JobStatus:
    """`newest`: the job's last measured epoch, if there is one; `due_at`: see `state`."""
    epoch_seconds = (newest.epoch_seconds if newest else 0.0) or None
    now_in = state(job, due_at)
    eta = None
    if now_in is State.RUNNING:
        eta = eta_seconds(job, epoch_seconds)
    preempted = now_in is State.QUEUED and is_preemption(job.reason)
    why = _reason(job, view, now_in, due_at)
    return JobStatus(
        now_in,
        job.reason if job.outcome else _reason_text(job, why),
        why,
        job.reason if job.waiting else "",
        preempted,
        epoch_seconds,
        eta,
    )


def state(job: Job, due_at: Time) -> State:
    """`due_at`: a run that has spoken to us should have done so again since then."""
    if job.outcome:
        return ENDED[job.outcome]
    run = job.run
    if run is None:
        return State.HELD if job.held else State.QUEUED
    if job.cancelled:
        return State.STOPPING
    silent = is_silent(job, due_at) and run.phase is RunPhase.RUNNING
    return State.UNRESPONSIVE if silent else _PHASES[run.phase]


def is_silent(job: Job | None, due_at: Time) -> bool:
    """Whether a run that has reported before has not done so since `due_at`."""
    heard_at = job.run.heard_at if job and job.run else None
    return heard_at is not None and heard_at < due_at


def _reason(job: Job, view: View, now_in: State, due_at: Time) -> Reason | None:
    if job.outcome:
        return None
    if job.run:
        if now_in is State.UNRESPONSIVE:
            return Reason(Waiting.SILENT)
        if job.run.stop_reason:
            return Reason(Waiting.STOPPING, cause=job.run.stop_reason)
        pods = view.pods.get((job.id, job.attempts), ())
        keeps = (pod.reason for pod in pods if pod.state is PodState.PENDING and pod.reason)
        return next((Reason(Waiting.STARTING, cause=words) for words in keeps), None)
    if job.awaits and not job.held:
        return _awaits(job, view, due_at)
    if why := view.why.get(job.id):
        return why
    if (kind := waits_for(job, view)) is not Waiting.PLANNING:
        return Reason(kind)
    return Reason(kind, observed=view.observed_at is not None)


def _awaits(job: Job, view: View, due_at: Time) -> Reason:
    """With the state of the job that it waits for, as it is now, if it is only one."""
    why = dependencies.reason(job, view)
    other = view.jobs.get(job.awaits[0].job_id)
    if other is None or len(why.jobs) + why.jobs_more > 1:
        return why
    told = [str(state(other, due_at))]
    if other.run:
        told.append(f"{other.epochs_done}/{other.max_epochs}")
        seconds = time_limit.epoch_seconds(other) * (other.max_epochs - other.epochs_done)
        if seconds > 0:
            minutes = round(seconds / 60)
            about = f"{round(minutes / 60)} h" if minutes >= 120 else f"{max(1, minutes)} min"
            told.append(f"about {about}")
    return replace(why, cause=", ".join(told))


def waits_for(job: Job, view: View) -> Waiting:
    """The kind of the reason for which a job waits that has neither run nor outcome."""
    if job.awaits and not job.held:
        return Waiting.AFTER
    if why := view.why.get(job.id):
        return why.kind
    return Waiting.HELD if job.held else Waiting.PLANNING


def _reason_text(job: Job, why: Reason | None) -> str:
    """The kind is for programs where the detail says it all."""
    if why is None:
        return ""
    return text(why) if job.run or why.kind is Waiting.PLANNING else line(why)


def eta_seconds(job: Job, epoch_seconds: float | None) -> float | None:
    """Before the first epoch is measured, what its owner estimated."""
    if epoch_seconds:
        return epoch_seconds * max(0, job.max_epochs - job.epochs_done)
    return job.spec.hours_estimate * 3600 or None


def parse_states(words: Iterable[str]) -> frozenset[State]:
    """The states that a filter means. None given: all."""
    meant: set[State] = set()
    for word in words:
        upper = word.strip().upper()
        if upper in State.__members__:
            meant.add(State(upper))
        elif upper in _ALIASES:
            meant |= _ALIASES[upper]
        else:
            raise Rejected(f"--status {quote(word)}: is none of {', '.join(State)}, QUEUE")
    return frozenset(meant or State)
