"""Converts jobs, profiles and facts to rows and back. Values only: no SQL is run here."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from scheduler.core.errors import InvariantError
from scheduler.core.model import (
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
)
PROFILE = (*_PROFILE_PLAIN, "beside")
PROFILE_WRITTEN = (*PROFILE, "beside_counts")
TRAINING = "training"  # the jobs that `beside` counts; 'holders' in older rows

LEARNED = ("about", "name", "data")

FACT = ("at", "kind", "job_id", "attempt", "data")

_job_plain = attrgetter(*_JOB_PLAIN)
_profile_plain = attrgetter(*_PROFILE_PLAIN)

_json = msgspec.json.Encoder()
_spec = msgspec.json.Decoder(JobSpec)
_run = msgspec.json.Decoder(Run)
_failures = msgspec.json.Decoder(tuple[tuple[Failure, int], ...])
_measured = msgspec.json.Decoder(tuple[Measured, ...])
_peaks = msgspec.json.Decoder(tuple[tuple[int, int], ...])
_kind = msgspec.json.Decoder(JobFamily)
_used = msgspec.json.Decoder(Used)
_beside = msgspec.json.Decoder(tuple[JobId, ...])
_data = msgspec.json.Decoder(dict[str, str | int | float | bool | None])


def job_fixed(job: Job) -> Row:
    """The columns JOB_FIXED and JOB_SEARCHED."""
    spec = _text(job.spec)
    if not _round_trips(spec, job.spec):
        raise InvariantError(f"job {job.id}: its specification cannot be stored: {spec}")
    searched = job.spec.user, job.spec.name, job.spec.project, job.spec.experiment
    return job.id, job.submitted_at, job.token, spec, job.id[::-1], *searched


def job_state(job: Job) -> Row:
    run = None if job.run is None else _text(job.run)
    return *_job_plain(job), _text(job.failures), _text(job.peaks), _text(job.measured), run


def changed_jobs(before: View, after: View, touched: Sequence[JobId]) -> list[tuple[Job, Row]]:
    """Returns the jobs to write, in order, each with its columns JOB_STATE."""
    found = (
        job
        for job_id in touched
        if (job := after.jobs.get(job_id)) and job is not before.jobs.get(job_id)
    )
    return [(job, job_state(job)) for job in found]


def job(row: Row) -> Job:
    """Converts the columns JOB."""
    value = dict(zip(JOB, row, strict=True))
    value["spec"] = _spec.decode(value["spec"])
    value["held"] = bool(value["held"])
    value["cancelled"] = bool(value["cancelled"])
    value["failures"] = _failures.decode(value["failures"])
    value["measured"] = _measured.decode(value["measured"])
    value["peaks"] = _peaks.decode(value["peaks"])
    value["run"] = value["run"] and _run.decode(value["run"])
    value["outcome"] = value["outcome"] and Outcome(value["outcome"])
    return Job(**value)


def profile_row(profile: Profile) -> Row:
    """The columns PROFILE_WRITTEN."""
    return *_profile_plain(profile), _text(profile.beside), TRAINING


def profile(row: Row) -> Profile:
    """Converts the columns PROFILE."""
    value = dict(zip(PROFILE, row, strict=True))
    value["beside"] = _beside.decode(value["beside"])
    return Profile(**value)


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


def read_learned(found: Sequence[Row]) -> tuple[dict[str, JobFamily], dict[str, Used]]:
    kinds = {name: _kind.decode(data) for about, name, data in found if about == "kind"}
    return kinds, {name: _used.decode(data) for about, name, data in found if about == "user"}


def fact_row(fact: Fact) -> Row:
    return fact.at, fact.kind, fact.job_id, fact.attempt, _text(dict(fact.data))


def fact(row: Row) -> Fact:
    value = dict(zip(FACT, row, strict=True))
    value["data"] = _data.decode(value["data"])
    return Fact(**value)


def _round_trips(text: str, spec: JobSpec) -> bool:
    """False e.g. for a NaN, which JSON does not have."""
    try:
        return _spec.decode(text) == spec
    except msgspec.ValidationError:
        return False


def _text(value: object) -> str:
    return _json.encode(value).decode()
