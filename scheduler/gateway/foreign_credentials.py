"""Tokens as clients of other servers send them: as the password of basic authentication, and to
what InfluxDB serves also by `Token`, or as the parameters u and p. What comes after this sees
`Authorization: Bearer TOKEN`, as from any other program."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from scheduler.gateway.argo.workflow_endpoints import BEGINNINGS

INFLUX = ("/query", "/write", "/ping", "/health", "/api/v2/write", "/api/v2/query")


class ForeignCredentials:
    """Around the guard, which asks where a request without a token comes from."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            influx = scope["path"] in INFLUX
            if influx or scope["path"].startswith(BEGINNINGS):
                scope = {**scope, "headers": _with_token(scope, influx)}
        await self._app(scope, receive, send)


def _with_token(scope: Scope, influx: bool) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = list(scope["headers"])
    sent = [value for name, value in headers if name == b"authorization"]
    if len(sent) == 1:
        token = _of_header(sent[0], influx)
    else:
        token = _of_query(scope["query_string"]) if influx else b""
    if len(sent) > 1 or not token:
        return headers
    others = [(name, value) for name, value in headers if name != b"authorization"]
    return [*others, (b"authorization", b"Bearer " + token)]


def _of_header(value: bytes, influx: bool) -> bytes:
    """Empty: it stays as it is."""
    kind, _, credentials = value.partition(b" ")
    credentials = credentials.strip()
    if influx and kind.lower() == b"token":
        return credentials.rpartition(b":")[2]  # USER:TOKEN is also sent
    if kind.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _of_query(query: bytes) -> bytes:
    given = dict(parse_qsl(query.decode("latin-1"), encoding="latin-1"))
    return given.get("p", "").encode("latin-1")
