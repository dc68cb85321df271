"""Entries over HTTP, from a relay's point of view."""

from __future__ import annotations

import gzip
import zlib

import httpx
import pytest

from scheduler.gateway.api.tracking_endpoints import (
    BODY_BYTES_MAX,
    ENTRIES_MAX,
    UNPACKED_BYTES_MAX,
    unpacked,
)
from scheduler.gateway.problems import Problem
from tests.gateway.series.delivering import entries, metric
from tests.gateway.serving_http import Served

TRACKING = "/api/v1/tracking"
PARAMETERS: dict[str, str | int] = {"attempt": 1, "spool": "s", "first": 0}


def relay(served: Served) -> httpx.Client:
    return served.gateway.client(served.daemon.job(served.daemon.submit()).token)


def test_entries_are_taken_once(served: Served) -> None:
    content = entries({"points": [metric("loss", 0.5, 1)]}, {"params": {"lr": 0.1}})
    with relay(served) as client:
        answer = client.post(TRACKING, params=PARAMETERS, content=content)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"next": 2, "refused": 0, "reasons": []}
        assert client.post(TRACKING, params=PARAMETERS, content=content).json()["next"] == 2
        packed = gzip.compress(content + entries({"bad": 1}))
        again = client.post(
            TRACKING, params=PARAMETERS, content=packed, headers={"content-encoding": "gzip"}
        )
        assert again.json() == {
            "next": 3,
            "refused": 1,
            "reasons": ["an entry of an unknown kind: 'bad'"],
        }


def test_only_jobs_log(served: Served) -> None:
    with served.by() as person, served.gateway.client("nonsense") as stranger:
        assert person.post(TRACKING, params=PARAMETERS, content=b"").status_code == 403
        assert stranger.post(TRACKING, params=PARAMETERS, content=b"").status_code == 401


@pytest.mark.parametrize(
    ("parameters", "field"),
    [({"spool": ""}, "spool"), ({"spool": "x" * 101}, "spool"), ({"first": -1}, "first")],
)
def test_what_is_wrong_is_named(
    parameters: dict[str, str | int], field: str, served: Served
) -> None:
    with relay(served) as client:
        answer = client.post(TRACKING, params={**PARAMETERS, **parameters}, content=b"")
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    with relay(served) as client:
        answer = client.post(TRACKING, params=PARAMETERS, content=b" " * (BODY_BYTES_MAX + 1))
        assert answer.status_code == 413
        larger = b" " * (BODY_BYTES_MAX // 2)  # than other requests may be
        assert client.post(TRACKING, params=PARAMETERS, content=larger).status_code == 200


def test_more_entries_than_are_taken_at_once_are_refused(served: Served) -> None:
    """Each line costs time, and millions of empty ones are a small body."""
    with relay(served) as client:
        lines = gzip.compress(b"\n" * (ENTRIES_MAX + 1))
        encoding = {"Content-Encoding": "gzip"}
        answer = client.post(TRACKING, params=PARAMETERS, content=lines, headers=encoding)
        assert answer.status_code == 413
        assert answer.json()["error"]["message"] == "at most 20000 entries are taken at once"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(bytes(UNPACKED_BYTES_MAX + 1), mtime=0), "gzip", 413),
        (gzip.compress(b"x", mtime=0)[:-3], "gzip", 400),
        (gzip.compress(b"x", mtime=0) + b"y", "gzip", 400),
        (zlib.compress(b"x"), "gzip", 400),
        (b"x", "br", 415),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_refused(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(Problem) as raised:
        unpacked(body, encoding)
    assert raised.value.status == status


def test_a_body_is_unpacked() -> None:
    assert unpacked(gzip.compress(bytes(UNPACKED_BYTES_MAX)), "gzip") == bytes(UNPACKED_BYTES_MAX)
    assert unpacked(b"x", "") == unpacked(b"x", "identity") == b"x"


def test_a_gateway_without_a_folder_says_so(served_without_series: Served) -> None:
    with relay(served_without_series) as client:
        answer = client.post(TRACKING, params=PARAMETERS, content=b"")
        assert answer.status_code == 503
        assert "keeps no series" in answer.json()["error"]["message"]
