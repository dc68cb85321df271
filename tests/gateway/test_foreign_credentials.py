from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from scheduler.gateway.foreign_credentials import ForeignCredentials


def seen(path: str, query: bytes = b"", *sent: bytes) -> list[bytes]:
    """What comes after it sees of Authorization."""
    found: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.extend(value for name, value in scope["headers"] if name == b"authorization")

    scope = {
        "type": "http",
        "path": path,
        "query_string": query,
        "headers": [(b"host", b"x"), *((b"authorization", each) for each in sent)],
    }

    async def nothing(*_: Any) -> Any:
        return None

    asyncio.run(ForeignCredentials(app)(scope, nothing, nothing))
    return found


def basic(text: bytes) -> bytes:
    return b"Basic " + base64.b64encode(text)


@pytest.mark.parametrize(
    ("query", "sent", "expected"),
    [
        (b"", b"Bearer t", b"Bearer t"),
        (b"", basic(b"user:t:x"), b"Bearer t:x"),
        (b"", basic(b"user:"), basic(b"user:")),
        (b"", b"Basic !", b"Basic !"),
        (b"", b"Token t", b"Bearer t"),
        (b"", b"Token user:t", b"Bearer t"),
        (b"u=a&p=t%2B", None, b"Bearer t+"),
        (b"u=a&p=t", b"Bearer other", b"Bearer other"),
    ],
)
def test_every_way_becomes_a_bearer(query: bytes, sent: bytes | None, expected: bytes) -> None:
    assert seen("/query", query, *([sent] if sent else [])) == [expected]


def test_other_paths_and_two_headers_stay_as_they_are() -> None:
    assert seen("/api/v1/jobs", b"p=t") == []
    assert seen("/api/v1/jobs", b"", b"Token t") == [b"Token t"]
    assert seen("/write", b"", b"Token a", b"Token b") == [b"Token a", b"Token b"]
    assert seen("/write", b"u=a") == []
