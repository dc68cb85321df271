"""Converts jobs, profiles and facts to rows and back. Values only: no SQL is run here."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgspec

from scheduler.core.errors import ConfigError, InvariantError
from scheduler.core.model import (
    After,
    Fact,
    Failure,
    Job,
    JobFamily,
    JobId,
    JobSpec,
    Measured,
    Outcome,
    Profile,
    Run,
    Time,
    Trained,
    Used,
    View,
)

Row = tuple[Any, ...]  # from SQLite: only the schema knows the types of the columns

_JOB_PLAIN = (
    "priority",
    "held",
    "cancelled",
    "max_epochs",
    "memory_mib",
    "epochs_done",
    "attempts",
    "eligible_at",
    "ran_seconds",
    "started_at",
    "ended_at",
    "reason",
    "gpu_util",
    "restart_seconds",
    "profiles_ignored",
)
JOB_STATE = (
    *_JOB_PLAIN,
    "failures",
    "peaks",
    "measured",
    "run",
    "trained",
    "awaits",
)  # what changes while a job lives
JOB_END = "outcome"
JOB_FIXED = ("id", "submitted_at", "token", "spec")
JOB_SEARCHED = ("id_reversed", "user", "name", "project", "experiment")  # copies, for indexes
JOB = (*JOB_FIXED, *JOB_STATE, JOB_END)

_PROFILE_PLAIN = (
    "job_id",
    "attempt",
    "epoch",
    "rank",
    "placement",
    "step_seconds",
    "epoch_seconds",
    "samples_per_second",
    "memory_mib",
    "gpu_util",
    "at",
    "steps",
    "trained",
    "score",
)
PROFILE = (*_PROFILE_PLAIN, "beside")
PROFILE_WRITTEN = (*PROFILE, "beside_counts")
TRAINING = "training"  # the jobs that `beside` counts; 'holders' in older rows

LEARNED = ("about", "name", "data")

COUNT = ("name", "label", "value")
FACT = ("at", "kind", "job_id", "attempt", "data")

_job_plain = attrgetter(*_JOB_PLAIN)
_profile_plain = attrgetter(*_PROFILE_PLAIN)

_json = msgspec.json.Encoder()
_spec = msgspec.json.Decoder(JobSpec)
_run = msgspec.json.Decoder(Run)
_trained = msgspec.json.Decoder(Trained)
_failures = msgspec.json.Decoder(tuple[tuple[Failure, int], ...])
_awaits = msgspec.json.Decoder(tuple[After, ...])
_measured = msgspec.json.Decoder(tuple[Measured, ...])
_peaks = msgspec.json.Decoder(tuple[tuple[int, int], ...])
_kind = msgspec.json.Decoder(JobFamily)
_used = msgspec.json.Decoder(Used)
_beside = msgspec.json.Decoder(tuple[JobId, ...])
_data = msgspec.json.Decoder(dict[str, str | int | float | bool | None])

_HINTS = typing.get_type_hints(Job)
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "spec": _spec.decode,
    "held": lambda value: msgspec.convert(value, bool, strict=False),
    "cancelled": lambda value: msgspec.convert(value, bool, strict=False),
    "failures": _failures.decode,
    "measured": _measured.decode,
    "peaks": _peaks.decode,
    "run": lambda value: value and _run.decode(value),
    "trained": lambda value: value and _trained.decode(value),
    "awaits": lambda value: _awaits.decode(value) if value else (),
    "outcome": lambda value: value and Outcome(value),
}
# What a value raises that no one has written; AttributeError: it has another type.
UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError)
DAMAGED = "its row in the database is damaged"


class DamagedRowError(ConfigError):
    """A row that cannot be read. It says which job and column, and never what is in them: a row
    contains secrets."""

    def __init__(self, row: Row, column: str) -> None:
        self.job_id, self.column = JobId(_plain_text(row[0])), column
        super().__init__(f"job {self.job_id}: {DAMAGED} ({column})")


def job_fixed(job: Job) -> Row:
    """The columns JOB_FIXED and JOB_SEARCHED."""
    spec = _text(job.spec)
    if not _round_trips(spec, job.spec):
        raise InvariantError(f"job {job.id}: its specification cannot be stored: {spec}")
    searched = job.spec.user, job.spec.name, job.spec.project, job.spec.experiment
    return job.id, job.submitted_at, job.token, spec, job.id[::-1], *searched


def job_state(job: Job) -> Row:
    run = None if job.run is None else _text(job.run)
    trained = None if job.trained is None else _text(job.trained)
    learned = _text(job.failures), _text(job.peaks), _text(job.measured), run
    awaits = _text(job.awaits) if job.awaits else None
    return *_job_plain(job), *learned, trained, awaits


def changed_jobs(before: View, after: View, touched: Sequence[JobId]) -> list[tuple[Job, Row]]:
    """Returns the jobs to write, in order, each with its columns JOB_STATE."""
    found = (
        job
        for job_id in touched
        if (job := after.jobs.get(job_id)) and job is not before.jobs.get(job_id)
    )
    return [(job, job_state(job)) for job in found]


def job(row: Row) -> Job:
    """Converts the columns JOB. Raises DamagedRowError."""
    return Job(**{column: _column(row, column) for column in JOB})


def submission(row: Row) -> tuple[JobSpec, str]:
    """The specification and the token in the columns JOB_FIXED. Raises DamagedRowError."""
    return _column(row, "spec"), _column(row, "token")


def rescued_job(row: Row, user: str, name: str, now: Time) -> Job:
    """Returns what can still be read of a damaged row's job, as one that has failed now. `user`,
    `name`: the columns of these names."""
    kept: dict[str, Any] = {}
    for column in JOB:
        with contextlib.suppress(DamagedRowError):
            kept[column] = _column(row, column)
    kept.setdefault("spec", JobSpec(_plain_text(name), _plain_text(user)))
    kept.setdefault("submitted_at", now)
    found = Job(**{**kept, "id": JobId(_plain_text(row[0]))})
    most = max(0, found.max_epochs)
    return replace(
        found,
        max_epochs=most,
        epochs_done=max(0, min(found.epochs_done, most)),
        run=None,
        outcome=Outcome.FAILED,
        ended_at=now,
        reason=f"{DAMAGED}: submit it again",
    )


def _column(row: Row, column: str) -> Any:
    value = row[JOB.index(column)]
    try:
        if column in _DECODERS:
            return _DECODERS[column](value)
        found = msgspec.convert(value, _HINTS[column])
        if isinstance(found, str):
            found.encode()
        return found
    except UNREADABLE:
        raise DamagedRowError(row, column) from None


def _plain_text(value: object) -> str:
    """Returns text that can be shown, whatever is there."""
    return str(value).encode("ascii", "replace").decode()[:64]


def profile_row(profile: Profile) -> Row:
    """The columns PROFILE_WRITTEN."""
    return *_profile_plain(profile), _text(profile.beside), TRAINING


def profile(row: Row) -> Profile:
    """Converts the columns PROFILE."""
    value = dict(zip(PROFILE, row, strict=True))
    value["beside"] = _beside.decode(value["beside"])
    return msgspec.convert(value, Profile)


def learned_rows(before: View, after: View) -> list[Row]:
    """The columns LEARNED: what a step has taught about job families and users."""
    found: list[Row] = []
    for about, old, new in (
        ("kind", before.kinds, after.kinds),
        ("user", before.used, after.used),
    ):
        if new is not old:
            changed = ((name, value) for name, value in new.items() if value is not old.get(name))
            found += ((about, name, _text(value)) for name, value in changed)
    return found


def read_learned(
    found: Sequence[Row],
) -> tuple[dict[str, JobFamily], dict[str, Used], list[Row]]:
    """The last value: the damaged rows."""
    kinds: dict[str, JobFamily] = {}
    used: dict[str, Used] = {}
    damaged: list[Row] = []
    for row in found:
        about, name, data = row
        try:
            name.encode()
            if about == "kind":
                kinds[name] = _kind.decode(data)
            elif about == "user":
                used[name] = _used.decode(data)
        except UNREADABLE:
            damaged.append(row)
    return kinds, used, damaged


def read_scores(found: Sequence[Row]) -> dict[int, dict[JobId, float]]:
    """The scores of a sweep, from rows of epoch, job and score."""
    scores: dict[int, dict[JobId, float]] = {}
    for epoch, job_id, score in found:
        scores.setdefault(epoch, {}).setdefault(JobId(job_id), score)
    return scores


def run(text: str) -> Run:
    """Converts the column of this name."""
    return _run.decode(text)


def fact_row(fact: Fact) -> Row:
    return fact.at, fact.kind, fact.job_id, fact.attempt, _text(dict(fact.data))


def fact(row: Row) -> Fact:
    value = dict(zip(FACT, row, strict=True))
    value["kind"].encode()
    value["data"] = _data.decode(value["data"])
    return msgspec.convert(value, Fact)


def _round_trips(text: str, spec: JobSpec) -> bool:
    """False e.g. for a NaN, which JSON does not have."""
    try:
        return _spec.decode(text) == spec
    except msgspec.ValidationError:
        return False


def _text(value: object) -> str:
    return _json.encode(value).decode()
