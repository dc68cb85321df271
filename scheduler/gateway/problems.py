"""What goes wrong, as callers are told: {"error": {"code", "message", "field"}}."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from scheduler.presentation.views import FLAGS

# Of gRPC's statuses; any other one is 500.
_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
RETRY_SECONDS = 2  # told with 429 and 503
# `--min_gpus 9 ...`, or without dashes `order 'x': ...` and `search: ...`.
_FLAG = re.compile(r"--([a-z_]+)|([a-z_]+)(?: [^ :]+)?: ")
_WRONG = ("INVALID_ARGUMENT", "FAILED_PRECONDITION")  # where a message may name a field
_FIELDS = {flag.removeprefix("--"): field for field, flag in FLAGS.items()}


class Problem(Exception):
    """Ends a request with this answer."""

    def __init__(self, status: int, message: str, field: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field
        self.code = code or HTTPStatus(status).phrase.lower().replace(" ", "_")

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        told = {"code": self.code, "message": self.message, "field": self.field or None}
        again = {"Retry-After": str(RETRY_SECONDS)} if self.status in (429, 503) else {}
        challenge = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return Response(
            msgspec.json.encode({"error": told}),
            self.status,
            {**again, **challenge, **(headers or {})},
            "application/json",
        )


def of_call(status: str, message: str) -> Problem:
    """`status`: the name of gRPC's; the message is the one that the commands print."""
    field = _field(message) if status in _WRONG else ""
    return Problem(_STATUSES.get(status, 500), message, field, status.lower())


def _field(message: str) -> str:
    """The field of a job that a message names by its flag, as in `--min_gpus 9: ...`."""
    match = _FLAG.match(message)
    name = (match[1] or match[2]) if match else ""
    return _FIELDS.get(name, name)
