"""The specification of a job in a file, as `scheduler-state --output json` (or yaml) prints it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from cli.command import UsageError
from scheduler.presentation import records
from scheduler.v1 import scheduler_pb2 as pb

BYTES_MAX = 4 * 2**20
HIDDEN = "(hidden)"  # what the scheduler tells of the variables of other users' jobs
_FIELDS = set(pb.JobSpec.DESCRIPTOR.fields_by_name) - {"user"}  # which is output only
_PAIRS = ("env", "exported", "labels")


def read(file: str) -> pb.JobSpec:
    """Raises UsageError, which names the file and what is wrong in it."""
    try:
        text = sys.stdin.read(BYTES_MAX) if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--spec {file}: {why}") from None
    try:
        return _spec(_job(_parsed(text)))
    except UsageError as error:
        raise UsageError(f"--spec {file}: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            import yaml  # type: ignore[import-untyped]  # comes with the daemon, without types
        except ImportError:
            raise UsageError(f"is not JSON ({error}), and YAML needs PyYAML") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"is neither JSON nor YAML: {' '.join(str(error).split())}") from None


def _job(document: Any) -> dict[str, Any]:
    """The only job of a list, or the document itself."""
    if isinstance(document, dict) and isinstance(document.get("jobs"), list):
        jobs = document["jobs"]
        if len(jobs) != 1:
            raise UsageError(f"describes {len(jobs)} jobs; it must be one")
        document = jobs[0]
    if not isinstance(document, dict):
        raise UsageError("describes no job: it must be an object with `name`, `spec` and others")
    spec = document.get("spec") or {}
    if not isinstance(spec, dict):
        raise UsageError("`spec` must be an object")
    return {**document, **spec}


def _spec(record: dict[str, Any]) -> pb.JobSpec:
    known = {*records.job(pb.Job()), "story", "learned"} | _FIELDS
    for name in record:
        if name not in known:
            raise UsageError(f"{name!r} is not a field of a job{_close(name)}")
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
        raise UsageError(" ".join(str(error).split())) from None
    if not spec.name:
        raise UsageError("`name` is missing")
    if hidden := hidden_variables(spec):
        raise UsageError(f"the values of {', '.join(hidden)} are hidden: the job is another user's")
    return spec


def hidden_variables(spec: pb.JobSpec) -> list[str]:
    return [pair.key for pair in (*spec.env, *spec.exported) if pair.value == HIDDEN]


def _close(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _FIELDS, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
