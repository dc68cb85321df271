"""Jobs: listed, shown, submitted, changed."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import msgspec

from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.schemas import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    list_of,
    map_of,
    object_of,
)
from scheduler.gateway.problems import Problem
from scheduler.presentation import metrics_view, outlook, records, story, views
from scheduler.presentation.job_document import DocumentError, refuses_again, spec_from
from scheduler.presentation.render import clock, printable
from scheduler.v1 import scheduler_pb2 as pb

LIMIT, LIMIT_MAX = 100, 1000

_JOB = {"$ref": "#/components/schemas/job"}
_FIELDS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
        "required": ["name", "text"],
    },
}


class SubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    """`job`: as `scheduler-state JOB --output json` prints it; `id`: a UUID4 made by the caller, so
    that the same request again is the same job; `secrets`: a value for each of `spec.secrets`."""

    job: dict[str, Any]
    id: str = ""
    dry_run: bool = False
    secrets: dict[str, str] = {}


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    graceful: bool = False
    with_dependents: bool = False


class UpdateBody(msgspec.Struct, forbid_unknown_fields=True):
    priority: int | None = None
    held: bool | None = None
    max_epochs: int | None = None
    annotations: dict[str, str] = {}  # an empty value removes a key


class ResubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    id: str = ""
    secrets: dict[str, str] = {}


# --- queries ------------------------------------------------------------------------------------


async def list_jobs(asked: Asked) -> Any:
    given = asked.given
    request = pb.ListJobsRequest(
        jobs=given.get("id", ()),
        all_users=given.get("all_users", False),
        limit=given.get("limit", LIMIT),
        states=given.get("state", ()),
        project=given.get("project", ""),
        experiment=given.get("experiment", ""),
        labels=[label_pair(text) for text in given.get("label", ())],
        user=given.get("user", ""),
        cursor=given.get("cursor", ""),
        order=given.get("order", ""),
        ascending=given.get("ascending", False),
        search=given.get("search", ""),
        brief=given.get("brief", True),
    )
    reply = await asked.daemon.ask("Scheduler/ListJobs", request, pb.ListJobsReply, asked.token)
    return {
        **records.state(reply),
        "remarks": [views.remark(job) for job in reply.jobs],
        "next_cursor": reply.next_cursor,
        "events": reply.events,
    }


def label_pair(text: str) -> pb.KeyValue:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise Problem(400, f"label {text!a}: must be KEY=VALUE", "label")
    return pb.KeyValue(key=key, value=value)


async def show_job(asked: Asked) -> Any:
    request = pb.GetJobRequest(job=asked.job, story=True, outlook=True)
    reply = await asked.daemon.ask("Scheduler/GetJob", request, pb.GetJobReply, asked.token)
    record = records.job(reply.job)
    record["story"] = [records.fact(fact) for fact in reply.story]
    record["learned"] = records.learned(reply.learned)
    text = _text(reply, time.time())
    text["fields"] += _named(("not logged", each) for each in await _troubles(asked, reply.job.id))
    return {"job": record, "text": text}


async def _troubles(asked: Asked, job: str) -> list[str]:
    """What of all that it has logged is not there."""
    store = asked.kept_series
    if store is None or not store.is_open:
        return []
    told = await asyncio.to_thread(store.record, job)
    return metrics_view.remarks(told.refused, told.lost)


def _text(reply: pb.GetJobReply, now: float) -> records.Record:
    """The very words of `scheduler-state JOB --extended`."""
    return {
        "title": views.title(reply.job),
        "remark": views.remark(reply.job),
        "fields": _named(views.about(reply.job, now)),
        "options": _named(views.options(reply.job.spec)),
        "learned": _named(outlook.learned_fields(reply.learned)),
        "story": [
            {
                "at": fact.at,
                "clock": clock(fact.at, now),
                "attempt": fact.attempt,
                "text": printable(story.sentence(fact)),
            }
            for fact in reply.story
        ],
    }


def _named(pairs: Any) -> list[records.Record]:
    return [{"name": name, "text": printable(text)} for name, text in pairs]


# --- changes ------------------------------------------------------------------------------------


async def submit(asked: Asked) -> Any:
    body: SubmitBody = asked.body
    try:
        spec = spec_from(body.job)
    except DocumentError as error:
        raise Problem(400, f"job: {error}", "job") from None
    return await _submit(asked, spec, body.id, body.secrets, body.dry_run)


async def resubmit(asked: Asked) -> Any:
    body: ResubmitBody = asked.body
    request = pb.GetJobRequest(job=asked.job)
    reply = await asked.daemon.ask("Scheduler/GetJob", request, pb.GetJobReply, asked.token)
    spec = reply.job.spec
    if refusal := refuses_again(spec, printable(spec.name)):
        raise Problem(403, refusal)
    return await _submit(asked, spec, body.id, body.secrets, dry_run=False)


async def _submit(
    asked: Asked, spec: pb.JobSpec, job_id: str, secrets: dict[str, str], dry_run: bool
) -> Any:
    spec.secrets[:] = sorted({*spec.secrets, *secrets})
    if missing := [name for name in spec.secrets if name not in secrets]:
        raise Problem(400, f"secrets: the value of {missing[0]} is missing", "secrets")
    request = pb.SubmitRequest(
        job_id=job_id or str(uuid.uuid4()),
        spec=spec,
        dry_run=dry_run,
        secrets=[pb.KeyValue(key=name, value=value) for name, value in secrets.items()],
    )
    reply = await asked.daemon.ask("Scheduler/Submit", request, pb.SubmitReply, asked.token)
    answer: records.Record = {"job": records.job(reply.job), "notes": list(reply.notes)}
    if dry_run:
        answer["command"] = list(reply.command)
        answer["env"] = records.pairs(reply.env)
        answer["gpus"] = views.gpu_request(reply.job.spec)
    return answer


async def cancel(asked: Asked) -> Any:
    body: CancelBody = asked.body
    request = pb.CancelJobRequest(
        job=asked.job, graceful=body.graceful, with_dependents=body.with_dependents
    )
    reply = await asked.daemon.ask("Scheduler/CancelJob", request, pb.CancelJobReply, asked.token)
    return {
        "job": records.job(reply.job),
        "already_ended": reply.already_ended,
        "text": "; ".join(
            filter(None, (*views.cancel_result(reply, body.graceful), views.left_behind(reply)))
        ),
    }


async def update(asked: Asked) -> Any:
    body: UpdateBody = asked.body
    for name in ("priority", "max_epochs"):
        value = getattr(body, name)
        if value is not None and abs(value) >= 2**31:
            raise Problem(400, f"{name} {value}: is too large", name)
    request = pb.UpdateJobRequest(
        job=asked.job,
        priority=body.priority,
        held=body.held,
        max_epochs=body.max_epochs,
        annotate=[pb.KeyValue(key=key, value=value) for key, value in body.annotations.items()],
    )
    job = await asked.daemon.ask("Scheduler/UpdateJob", request, pb.Job, asked.token)
    return {"job": records.job(job), "text": views.update_result(request, job)}


# --- what there is ------------------------------------------------------------------------------


_STRINGS = list_of(STRING)
_SUBMITTED = object_of(job=_JOB, notes=_STRINGS)
_SUBMITTED["properties"] |= {
    "command": _STRINGS,
    "env": map_of(STRING),
    "gpus": STRING,
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/jobs",
        list_jobs,
        "Lists jobs, newest first: yours, or with `all_users` those of all users.",
        object_of(
            jobs=list_of(_JOB),
            total=INTEGER,
            remarks=_STRINGS,
            next_cursor=STRING,
            events=STRING,
        ),
        (
            Parameter("all_users", "the jobs of all users", "boolean"),
            Parameter("user", "the jobs of this user"),
            Parameter("state", "e.g. RUNNING; QUEUE is queued, starting or running", several=True),
            Parameter("project", "of this project"),
            Parameter("experiment", "of this experiment"),
            Parameter("label", "with this label: KEY=VALUE", several=True),
            Parameter("id", "these jobs, by id, end of an id, or name", several=True),
            Parameter("search", "in the name, user, project, experiment or id"),
            Parameter("order", "submitted, name, user, project, experiment, state or priority"),
            Parameter("ascending", "the smallest, or oldest, first", "boolean"),
            Parameter("cursor", "`next_cursor` of the page before"),
            Parameter("brief", "false: also the command, arguments and variables", "boolean"),
            Parameter("limit", f"at most so many; default {LIMIT}", "integer", False, 1, LIMIT_MAX),
        ),
    ),
    Endpoint(
        "GET",
        "/jobs/{job}",
        show_job,
        "Everything about a job: by id, end of an id, or name. `text` has the words of "
        "`scheduler-state JOB`.",
        object_of(
            job=_JOB,
            text=object_of(
                title=STRING,
                remark=STRING,
                fields=_FIELDS,
                options=_FIELDS,
                learned=_FIELDS,
                story=list_of(object_of(at=NUMBER, clock=STRING, attempt=INTEGER, text=STRING)),
            ),
        ),
    ),
    Endpoint("POST", "/jobs", submit, "Submits a job.", _SUBMITTED, body=SubmitBody, status=201),
    Endpoint(
        "POST",
        "/jobs/{job}/cancel",
        cancel,
        "Ends a job now, or with `graceful` at the end of its epoch.",
        object_of(job=_JOB, already_ended=BOOLEAN, text=STRING),
        body=CancelBody,
    ),
    Endpoint(
        "POST",
        "/jobs/{job}/resubmit",
        resubmit,
        "Submits a job again, with the same options and a new id.",
        _SUBMITTED,
        body=ResubmitBody,
        status=201,
    ),
    Endpoint(
        "PATCH",
        "/jobs/{job}",
        update,
        "Changes the priority of a job, holds or releases it, or changes how many epochs it has.",
        object_of(job=_JOB, text=STRING),
        body=UpdateBody,
    ),
)
