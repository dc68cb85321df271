"""A job to submit, from JSON as `scheduler-state --output json` prints it. Pure."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format

from scheduler.presentation import records
from scheduler.v1 import scheduler_pb2 as pb

HIDDEN = "(hidden)"  # what the scheduler tells of the variables of other users' jobs
_FIELDS = set(pb.JobSpec.DESCRIPTOR.fields_by_name) - {"user"}  # which is output only
_PAIRS = ("env", "exported", "folders", "labels")


class DocumentError(ValueError):
    """The message says what is wrong in the document."""


def spec_from(document: Any) -> pb.JobSpec:
    """`document`: the job, or a list of one job as `scheduler-state` prints it."""
    return _spec(_job(document))


def _job(document: Any) -> dict[str, Any]:
    """The only job of a list, or the document itself."""
    if isinstance(document, dict) and isinstance(document.get("jobs"), list):
        jobs = document["jobs"]
        if len(jobs) != 1:
            raise DocumentError(f"describes {len(jobs)} jobs; it must be one")
        document = jobs[0]
    if not isinstance(document, dict):
        raise DocumentError("describes no job: it must be an object with `name`, `spec` and others")
    spec = document.get("spec") or {}
    if not isinstance(spec, dict):
        raise DocumentError("`spec` must be an object")
    return {**document, **spec}


def _spec(record: dict[str, Any]) -> pb.JobSpec:
    known = {*records.job(pb.Job()), "story", "learned"} | _FIELDS
    for name in record:
        if name not in known:
            raise DocumentError(f"{name!r} is not a field of a job{_close(name)}")
    given = {name: record[name] for name in record if name in _FIELDS and record[name] is not None}
    for name in _PAIRS:
        if isinstance(given.get(name), dict):
            given[name] = [
                {"key": str(key), "value": value if isinstance(value, str) else json.dumps(value)}
                for key, value in given[name].items()
            ]
    try:
        spec = json_format.ParseDict(given, pb.JobSpec())
    except json_format.ParseError as error:
        raise DocumentError(" ".join(str(error).split())) from None
    if not spec.name:
        raise DocumentError("`name` is missing")
    if hidden := hidden_variables(spec):
        raise DocumentError(
            f"the values of {', '.join(hidden)} are hidden: the job is another user's"
        )
    return spec


def hidden_variables(spec: pb.JobSpec) -> list[str]:
    return [pair.key for pair in (*spec.env, *spec.exported) if pair.value == HIDDEN]


def refuses_again(spec: pb.JobSpec, name: str) -> str:
    """Why this job cannot be submitted again; empty: it can. `name`: the job's, made printable."""
    hidden = hidden_variables(spec)
    if not hidden:
        return ""
    return (
        f"{name} belongs to {spec.user}, and the values of its variables"
        f" ({', '.join(hidden)}) are hidden from you"
    )


def _close(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _FIELDS, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
