"""An endpoint: what it takes, what it answers, and the function that does it.

The routes and the OpenAPI document are both made of these, so neither knows what the other does
not.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.gpu_history import GpuHistory
from scheduler.gateway.problems import Problem
from scheduler.gateway.series.series_store import SeriesStore

INT_MAX = 2**31 - 1
_TRUE, _FALSE = ("true", "1", "yes", ""), ("false", "0", "no")
Schema = Mapping[str, Any]  # JSON
Answer = Response | StreamingResponse


class Parameter(NamedTuple):
    """Of a query: `?name=value`. `type`: as in JSON schema."""

    name: str
    about: str
    type: str = "string"
    several: bool = False
    least: int = 0
    most: int = INT_MAX


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as an endpoint gets it. `token`: of the caller, for the daemon to judge."""

    request: Request
    daemon: DaemonCalls
    token: str
    given: Mapping[str, Any]  # the parameters that were given, converted
    gpus: GpuHistory
    body: Any = None  # an instance of the endpoint's type of body
    caller_job: str = ""  # the id of the job, if it is one that asks
    caller_user: str = ""
    kept_series: SeriesStore | None = None

    @property
    def job(self) -> str:
        return str(self.request.path_params["job"])

    @property
    def series(self) -> SeriesStore:
        return open_series(self.kept_series)


def open_series(kept: SeriesStore | None) -> SeriesStore:
    if kept is None or not kept.is_open:
        raise Problem(503, "this gateway keeps no series: its log says why")
    return kept


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    answer: Callable[[Asked], Awaitable[Any]]
    about: str
    reply: Schema  # of what is answered
    parameters: Sequence[Parameter] = ()
    body: type[msgspec.Struct] | None = None
    content: str = ""  # the type of a body that is not JSON, which `answer` reads itself
    status: int = 200
    type: str = "application/json"
    or_json: Schema | None = None  # what is answered instead, if it was asked for


def given(parameters: Sequence[Parameter], query: QueryParams) -> dict[str, Any]:
    """Raises Problem for a parameter that is unknown, repeated, or of another type."""
    known = {each.name: each for each in parameters}
    found: dict[str, Any] = {}
    for name, text in query.multi_items():
        parameter = known.get(name)
        if parameter is None:
            raise Problem(400, f"there is no parameter {name!a}", name)
        value = _converted(parameter, text)
        if parameter.several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem(400, f"{name} is given twice", name)
        else:
            found[name] = value
    return found


def _converted(parameter: Parameter, text: str) -> Any:
    name = parameter.name
    if parameter.type == "boolean":
        if text.lower() not in (*_TRUE, *_FALSE):
            raise Problem(400, f"{name} {text!a}: is neither true nor false", name)
        return text.lower() in _TRUE
    if parameter.type == "number":
        return _number(name, text)
    if parameter.type != "integer":
        return text
    try:
        value = int(text)
    except ValueError:
        raise Problem(400, f"{name} {text!a}: is not a whole number", name) from None
    if not parameter.least <= value <= parameter.most:
        raise Problem(400, f"{name} {value}: must be {parameter.least} to {parameter.most}", name)
    return value


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Problem(400, f"{name} {text!a}: is not a number", name)
    return value


def parsed(body: type[msgspec.Struct], content: bytes) -> Any:
    """Raises Problem, with the field that is wrong."""
    try:
        return msgspec.json.decode(content or b"{}", type=body)
    except msgspec.ValidationError as error:
        words, _, where = str(error).partition(" - at `$")
        field = where.strip("`.").partition(".")[0]
        if "unknown field" in words:
            field = words.rpartition("unknown field `")[2].strip("`")
        raise Problem(400, f"{field}: {words}" if field else words, field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


def as_json(request: Request, record: Any, status: int = 200) -> Response:
    """With an ETag, so that a list that has not changed is not sent again."""
    content = msgspec.json.encode(record)
    if request.method not in ("GET", "HEAD"):
        return Response(content, status, {"Cache-Control": "no-store"}, "application/json")
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    wanted = request.headers.get("if-none-match", "")
    if tag in [each.strip().removeprefix("W/") for each in wanted.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(content, status, headers, "application/json")
