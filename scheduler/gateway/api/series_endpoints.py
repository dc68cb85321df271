"""What trainings have logged, shown: which metrics there are, and their points as curves.

Which jobs a person may see is what the daemon lists for their token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import FileResponse

from scheduler.gateway.api.curves import POINTS, CurveChoice, curves
from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.job_metrics import described, metrics_by_name, metrics_of, record, sent
from scheduler.gateway.api.schemas import INTEGER, NUMBER, STEP, STRING, list_of, map_of, object_of
from scheduler.gateway.problems import Problem
from scheduler.gateway.series import downsampling
from scheduler.gateway.series.reading import (
    Artifact,
)
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.presentation import metrics_view
from scheduler.presentation.comparison import by_subject
from scheduler.presentation.records import Record
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

JOBS_MAX = 100
POINTS_MAX = 1_000_000  # of a curve
AT_ONCE = 2  # answers with curves that are computed: others need threads, too
_reading = asyncio.Semaphore(AT_ONCE)
STEP_MAX = 2**62
TIME_MAX = 9e9  # seconds since 1970: the year 2255


# --- what there is ------------------------------------------------------------------------------


async def list_series(asked: Asked) -> Any:
    (job,) = await _jobs(asked, [asked.job])
    return await asyncio.to_thread(_series, asked.series, job)


def _series(store: SeriesStore, job: pb.Job) -> Record:
    told = store.record(job.id)
    metrics = metrics_by_name(store.summaries([job.id])[job.id])
    return {
        "job": job.id,
        "job_name": job.spec.name,
        "user": job.spec.user,
        "remarks": metrics_view.remarks(told.refused, told.lost),
        "series": [
            {
                **described(metrics[name]),
                **{key: sent(value) for key, value in record(store, metrics[name]).items()},
                "attempts": sorted(metrics[name].attempts),
                "last_at": max(each.last_at or 0 for each in metrics[name].attempts.values()) / 1e9,
            }
            for name in sorted(metrics, key=by_subject)
        ],
    }


# --- the record -----------------------------------------------------------------------------------


async def show_record(asked: Asked) -> Any:
    (job,) = await _jobs(asked, [asked.job])
    return await asyncio.to_thread(_record, asked.series, job)


def _record(store: SeriesStore, job: pb.Job) -> Record:
    told = store.record(job.id)
    metrics = metrics_of(store, store.summaries([job.id])[job.id])
    return {
        "job": job.id,
        "params": told.params,
        "tags": told.tags,
        "description": told.description,
        "metrics": {
            name: {key: sent(value) for key, value in metrics[name].items()}
            for name in sorted(metrics, key=by_subject)
        },
        "artifacts": [_artifact(each) for each in told.artifacts],
        "remarks": metrics_view.remarks(told.refused, told.lost),
        "refused": told.refused,
        "lost": told.lost,
    }


def _artifact(each: Artifact) -> Record:
    return {"path": each.path, "size": each.size, "sha256": each.sha256, "at": each.at}


async def list_artifacts(asked: Asked) -> Any:
    (job,) = await _jobs(asked, [asked.job])
    told = await asyncio.to_thread(asked.series.record, job.id)
    return {"job": job.id, "artifacts": [_artifact(each) for each in told.artifacts]}


async def read_artifact(asked: Asked) -> Any:
    """As a type that no browser shows, but for pictures, which cannot do anything."""
    (job,) = await _jobs(asked, [asked.job])
    path = asked.request.path_params["path"]
    found = await asyncio.to_thread(asked.series.artifact, job.id, path)
    if found is None or not found[1].is_file():
        raise Problem(404, f"job {job.id} has no artifact {printable(path)!r}")
    artifact, file = found
    name = path.rpartition("/")[2]
    kind = _PICTURES.get(name.rpartition(".")[2].lower(), "application/octet-stream")
    headers = {"ETag": f'"{artifact.sha256}"', "Cache-Control": "private, no-cache"}
    return FileResponse(file, 200, headers, kind, filename=name)


_PICTURES = {
    **{"png": "image/png", "gif": "image/gif", "webp": "image/webp"},
    **{"jpg": "image/jpeg", "jpeg": "image/jpeg"},
}


# --- points -------------------------------------------------------------------------------------


async def read_points(asked: Asked) -> Any:
    """Of several jobs."""
    wanted = asked.given.get("job", ())
    if not wanted:
        raise Problem(400, "job: the points of which jobs?", "job")
    if not asked.given.get("name"):
        raise Problem(400, "name: the points of which metrics? /jobs/JOB/series lists them", "name")
    if len(wanted) > JOBS_MAX:
        raise Problem(400, f"job: at most {JOBS_MAX} at once", "job")
    return await _curves(asked, await _jobs(asked, wanted))


async def read_job_points(asked: Asked) -> Any:
    return await _curves(asked, await _jobs(asked, [asked.job]))


async def _curves(asked: Asked, jobs: Sequence[pb.Job]) -> Record:
    ids = [job.id for job in jobs]
    async with _reading:
        return await asyncio.to_thread(curves, asked.series, ids, _choice(asked.given))


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


# --- what there is to ask -----------------------------------------------------------------------


_VALUE = {"type": ["number", "string", "boolean", "null"], "description": "also NaN, Infinity"}
_DESCRIBED: dict[str, Any] = {
    "name": {"type": "string", "description": "as in /experiments and /compare"},
    "measurement": STRING,
    "field": STRING,
    "tags": map_of(STRING),
    "kind": {"type": "string", "enum": ["float", "integer", "boolean", "string"]},
}
_CURVES = object_of(
    points_max={"type": "integer", "description": "less than asked for, if that was too many"},
    curves=list_of(
        object_of(
            job=STRING,
            **_DESCRIBED,
            points={"type": "integer", "description": "before they were thinned out"},
            times={**list_of(NUMBER), "description": "seconds since 1970"},
            steps={"type": ["array", "null"], "items": STEP, "description": "null: none has one"},
            values=list_of(_VALUE),
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

_ARTIFACTS = list_of(object_of(path=STRING, size=INTEGER, sha256=STRING, at=NUMBER))
_COUNTS = map_of(INTEGER)
_TEXTS = map_of(STRING)
_RECORD = object_of(
    job=STRING,
    params=_TEXTS,
    tags=_TEXTS,
    description=STRING,
    metrics=map_of(
        object_of(
            last=_VALUE,
            min=_VALUE,
            max=_VALUE,
            last_step=STEP,
            min_step=STEP,
            max_step=STEP,
            points=INTEGER,
        )
    ),
    artifacts=_ARTIFACTS,
    remarks={**list_of(STRING), "description": "of what was refused or lost, as a sentence each"},
    refused={**_COUNTS, "description": "what was not kept: how much, by reason"},
    lost={**_COUNTS, "description": "what never arrived: how many entries, by reason"},
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
        object_of(
            job=STRING,
            job_name=STRING,
            user=STRING,
            remarks=list_of(STRING),
            series=list_of(
                object_of(
                    **_DESCRIBED,
                    last=_VALUE,
                    min=_VALUE,
                    max=_VALUE,
                    last_step=STEP,
                    min_step=STEP,
                    max_step=STEP,
                    points=INTEGER,
                    attempts=list_of(INTEGER),
                    last_at=NUMBER,
                )
            ),
        ),
    ),
    Endpoint(
        "GET",
        "/jobs/{job}/record",
        show_record,
        "What a job has told of itself: params, tags, a description, what its metrics have come "
        "to, files; and what of it was refused or lost.",
        _RECORD,
    ),
    Endpoint(
        "GET",
        "/jobs/{job}/artifacts",
        list_artifacts,
        "The files that a job has logged.",
        object_of(job=STRING, artifacts=_ARTIFACTS),
    ),
    Endpoint(
        "GET",
        "/jobs/{job}/artifacts/{path:path}",
        read_artifact,
        "One of them, or with `Range` a part of it. Pictures (png, jpeg, gif, webp) have their "
        "type.",
        {"type": "string", "format": "binary"},
        type="application/octet-stream",
    ),
)
