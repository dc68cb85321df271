"""What trainings have logged, shown: which metrics there are, and their points as curves.

Which jobs a person may see is what the daemon lists for their token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.job_metrics import Metric, metrics_by_name, record, sent
from scheduler.gateway.problems import Problem
from scheduler.gateway.series import downsampling
from scheduler.gateway.series.reading import NO_STEP, Points, newest, no_points
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.presentation.comparison import by_subject
from scheduler.presentation.records import Record
from scheduler.v1 import scheduler_pb2 as pb

JOBS_MAX = 100
POINTS, POINTS_MAX = 2_000, 1_000_000  # of a curve
ANSWERED_MAX = 1_000_000  # points of all curves
READ_MAX = 50_000_000  # points of the store, for one answer
STEP_MAX = 2**62
TIME_MAX = 9e9  # seconds since 1970: the year 2255


# --- what there is ------------------------------------------------------------------------------


async def list_series(asked: Asked) -> Any:
    (job,) = await _jobs(asked, [asked.job])
    return await asyncio.to_thread(_series, asked.series, job)


def _series(store: SeriesStore, job: pb.Job) -> Record:
    metrics = metrics_by_name(store.summaries([job.id])[job.id])
    return {
        "job": job.id,
        "series": [
            {
                **_described(metrics[name]),
                **{key: sent(value) for key, value in record(store, metrics[name]).items()},
                "attempts": sorted(metrics[name].attempts),
                "last_at": max(each.last_at or 0 for each in metrics[name].attempts.values()) / 1e9,
            }
            for name in sorted(metrics, key=by_subject)
        ],
    }


def _described(metric: Metric) -> Record:
    measurement, field, tags = metric.key
    return {
        "name": metric.name,
        "measurement": measurement,
        "field": field,
        "tags": dict(tags),
        "kind": metric.kind,
    }


# --- points -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CurveChoice:
    """`names`: None: all metrics."""

    names: Sequence[str] | None
    attempt: int | None
    first_ns: int | None
    last_ns: int | None
    first_step: int | None
    last_step: int | None
    points_max: int


async def read_points(asked: Asked) -> Any:
    """Of several jobs."""
    wanted = asked.given.get("job", ())
    if not wanted:
        raise Problem(400, "job: the points of which jobs?", "job")
    if not asked.given.get("name"):
        raise Problem(400, "name: the points of which metrics? /jobs/JOB/series lists them", "name")
    if len(wanted) > JOBS_MAX:
        raise Problem(400, f"job: at most {JOBS_MAX} at once", "job")
    jobs = await _jobs(asked, wanted)
    return await asyncio.to_thread(_curves, asked.series, jobs, _choice(asked.given))


async def read_job_points(asked: Asked) -> Any:
    jobs = await _jobs(asked, [asked.job])
    return await asyncio.to_thread(_curves, asked.series, jobs, _choice(asked.given))


async def _jobs(asked: Asked, wanted: Sequence[str]) -> list[pb.Job]:
    """By id, end of an id, or name, and as the caller may see them. Raises Problem."""
    request = pb.ListJobsRequest(jobs=wanted, limit=JOBS_MAX, all_users=True, brief=True)
    reply = await asked.daemon.ask("Scheduler/ListJobs", request, pb.ListJobsReply, asked.token)
    return list(reply.jobs)


def _choice(given: Mapping[str, Any]) -> CurveChoice:
    return CurveChoice(
        given.get("name"),
        given.get("attempt"),
        _nanoseconds(given.get("from")),
        _nanoseconds(given.get("to")),
        given.get("from_step"),
        given.get("to_step"),
        given.get("points_max", POINTS),
    )


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


def _curves(store: SeriesStore, jobs: Sequence[pb.Job], choice: CurveChoice) -> Record:
    """In the order of the names, then of the jobs."""
    told = store.summaries([job.id for job in jobs])
    found = [(job.id, metrics_by_name(told[job.id])) for job in jobs]
    names = choice.names
    if names is None:
        names = sorted({name for _, metrics in found for name in metrics}, key=by_subject)
    chosen = [
        (job, metrics[name])
        for name in dict.fromkeys(names)
        for job, metrics in found
        if name in metrics
    ]
    _check(chosen)
    points_max = choice.points_max
    if len(chosen) * points_max > ANSWERED_MAX:
        points_max = max(downsampling.LEAST, ANSWERED_MAX // len(chosen))
    curves = (_curve(store, job, metric, choice, points_max) for job, metric in chosen)
    return {"points_max": points_max, "curves": [curve for curve in curves if curve["points"]]}


def _check(chosen: Sequence[tuple[str, Metric]]) -> None:
    if len(chosen) > ANSWERED_MAX // downsampling.LEAST:
        raise Problem(400, f"name: {len(chosen)} curves are too many for one answer", "name")
    read = sum(each.points for _, metric in chosen for each in metric.attempts.values())
    if read > READ_MAX:
        raise Problem(
            400,
            f"that are {read} points in {len(chosen)} curves, and an answer is computed from at "
            f"most {READ_MAX}: ask for fewer jobs or names",
            "name",
        )


def _curve(
    store: SeriesStore, job: str, metric: Metric, choice: CurveChoice, points_max: int
) -> Record:
    points = _points(store, metric, choice)
    shown = downsampling.downsampled(points, points_max)
    stepped = shown.steps != NO_STEP
    steps: list[int | None] | None = None
    if stepped.any():
        steps = shown.steps.tolist()
        if not stepped.all():
            steps = [None if step == NO_STEP else step for step in steps]
    return {
        "job": job,
        **_described(metric),
        "points": len(points),
        "times": (shown.times / 1e9).tolist(),
        "steps": steps,
        "values": values_of(shown),
    }


def _points(store: SeriesStore, metric: Metric, choice: CurveChoice) -> Points:
    ids = metric.ids
    if choice.attempt is not None:
        ids = {each: ids[each] for each in ids if each == choice.attempt}
    if not ids:
        return no_points(metric.kind)
    found = store.points(list(ids.values()), choice.first_ns, choice.last_ns)
    known = {
        attempt: (each.first_step, each.final_step)
        for attempt, each in metric.attempts.items()
        if each.first_step is not None and each.final_step is not None
    }
    points = newest({each: found[number] for each, number in ids.items()}, known)
    return _between_steps(points, choice.first_step, choice.last_step)


def _between_steps(points: Points, first: int | None, last: int | None) -> Points:
    if first is None and last is None:
        return points
    # What has no step is in no span of steps.
    there = (points.steps != NO_STEP) & (points.steps >= (0 if first is None else first))
    return points.chosen(there if last is None else there & (points.steps <= last))


def values_of(points: Points) -> list[Any]:
    """As JSON, which knows no NaN and no infinity."""
    values: list[Any] = points.values.tolist()
    if points.values.dtype == np.float64:
        for place in np.flatnonzero(~np.isfinite(points.values)):
            values[place] = sent(values[place])
    return values


# --- what there is to ask -----------------------------------------------------------------------


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STRING, _INTEGER, _NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
_STEP = {"type": ["integer", "null"]}
_VALUE = {"type": ["number", "string", "boolean", "null"], "description": "also NaN, Infinity"}
_DESCRIBED: dict[str, Any] = {
    "name": {"type": "string", "description": "as in /experiments and /compare"},
    "measurement": _STRING,
    "field": _STRING,
    "tags": {"type": "object", "additionalProperties": _STRING},
    "kind": {"type": "string", "enum": ["float", "integer", "boolean", "string"]},
}
_CURVES = _object(
    points_max={"type": "integer", "description": "less than asked for, if that was too many"},
    curves=_list(
        _object(
            job=_STRING,
            **_DESCRIBED,
            points={"type": "integer", "description": "before they were thinned out"},
            times={**_list(_NUMBER), "description": "seconds since 1970"},
            steps={"type": ["array", "null"], "items": _STEP, "description": "null: none has one"},
            values=_list(_VALUE),
        )
    ),
)
_CHOICE = (
    Parameter("from", "not before this moment: seconds since 1970", "number"),
    Parameter("to", "before this moment", "number"),
    Parameter("from_step", "from this step on", "integer", False, 0, STEP_MAX),
    Parameter("to_step", "up to this step, which is included", "integer", False, 0, STEP_MAX),
    Parameter(
        "points_max",
        f"of each curve; more are thinned out so that its shape stays; default {POINTS}",
        "integer",
        False,
        downsampling.LEAST,
        POINTS_MAX,
    ),
)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/points",
        read_points,
        "Curves of several jobs: the points of each metric of each job. Of a step that several "
        "attempts have been at, the newest one counts.",
        _CURVES,
        (
            Parameter("job", "by id, end of an id, or name", several=True),
            Parameter("name", "of a metric", several=True),
            *_CHOICE,
        ),
    ),
    Endpoint(
        "GET",
        "/jobs/{job}/points",
        read_job_points,
        "Curves of one job. Of a step that several attempts have been at, the newest one counts, "
        "unless one attempt is asked for.",
        _CURVES,
        (
            Parameter("name", "of a metric; default: all", several=True),
            Parameter("attempt", "only of this one", "integer"),
            *_CHOICE,
        ),
    ),
    Endpoint(
        "GET",
        "/jobs/{job}/series",
        list_series,
        "The metrics of a job, and what each has come to.",
        _object(
            job=_STRING,
            series=_list(
                _object(
                    **_DESCRIBED,
                    last=_VALUE,
                    min=_VALUE,
                    max=_VALUE,
                    last_step=_STEP,
                    min_step=_STEP,
                    max_step=_STEP,
                    points=_INTEGER,
                    attempts=_list(_INTEGER),
                    last_at=_NUMBER,
                )
            ),
        ),
    ),
)
