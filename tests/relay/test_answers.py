from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from scheduler.relay.answers import Answers
from scheduler.relay.artifacts import Outbox
from scheduler.relay.http import Incoming
from scheduler.relay.mlflow_runs import LoggedRuns


class Heard:
    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.lost: list[tuple[int, str]] = []
        runs = LoggedRuns(Path("/nowhere/mlflow.json"), "job", 1, "mnist", 5)
        outbox = Outbox(Path("/nowhere"), 0)
        self.answers = Answers(self._add, self._lose, lambda: 17, runs, "token", outbox)

    def _lose(self, number: int, why: str) -> None:
        self.lost.append((number, why))

    def _add(self, entries: Sequence[bytes]) -> bool:
        self.entries += map(json.loads, entries)
        return True

    def ask(
        self, method: str, path: str, body: bytes = b"", query: str = "", **headers: str
    ) -> tuple[int, Any]:
        asked = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        told = {"host": "127.0.0.1:8086", **headers}
        answer = self.answers.answer(Incoming(method, path, asked, told, body))
        return answer.status, json.loads(answer.body) if answer.body else None


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.mark.parametrize("path", ["/write", "/api/v2/write"])
def test_lines_are_kept_with_their_precision(heard: Heard, path: str) -> None:
    assert heard.ask("POST", path, b"a v=1\nb v=2 5", "db=x&precision=ms") == (204, None)
    assert heard.entries == [{"lines": "a v=1\nb v=2 5", "precision": "ms", "at": 17}]


@pytest.mark.parametrize(
    ("body", "query"), [(b"", ""), (b"x" * 100_000, ""), (b"a v=1", "precision=weeks")]
)
def test_a_write_never_fails(heard: Heard, body: bytes, query: str) -> None:
    assert heard.ask("POST", "/write", body, query) == (204, None)
    assert heard.entries == []
    assert len(heard.lost) == (1 if body else 0)


def test_clients_that_look_for_a_database_find_one(heard: Heard) -> None:
    assert heard.ask("GET", "/ping")[0] == 204
    assert heard.ask("HEAD", "/ping")[0] == 204
    assert heard.ask("GET", "/health") == (200, {"name": "influxdb", "status": "pass"})
    created = {"results": [{"statement_id": 0}]}
    assert heard.ask("POST", "/query", query="q=CREATE DATABASE x") == (200, created)
    form = f"q={quote('create database x')}".encode()
    assert heard.ask("POST", "/query", form) == (200, created)
    assert heard.ask("GET", "/query", query="q=SELECT 1")[0] == 501


def test_what_is_not_there_is_named(heard: Heard) -> None:
    assert heard.ask("DELETE", "/write") == (501, {"error": "a relay has no DELETE /write"})


def test_pages_in_a_browser_cannot_write(heard: Heard) -> None:
    assert heard.ask("POST", "/write", b"a v=1", origin="http://elsewhere")[0] == 403
    assert heard.ask("POST", "/write", b"a v=1", host="rebound.example:80")[0] == 403
    assert heard.entries == []


def test_what_is_told_to_mlflow_is_shown_to_the_job_only(heard: Heard) -> None:
    path = "/api/2.0/mlflow/runs/get"
    assert heard.ask("GET", path, query="run_id=job")[0] == 401
    assert heard.ask("GET", path, query="run_id=job", authorization="Bearer other")[0] == 401
    status, told = heard.ask("GET", path, query="run_id=job", authorization="Bearer token")
    assert (status, told["run"]["info"]["run_id"]) == (200, "job")
    assert heard.ask("PUT", "/api/2.0/mlflow-artifacts/artifacts/job/a")[0] == 401


def test_a_file_without_a_place_is_counted_and_fails_nothing(heard: Heard) -> None:
    path = "/api/2.0/mlflow-artifacts/artifacts/job/a"
    assert heard.ask("PUT", path, b"x", authorization="Bearer token") == (200, {})
    assert len(heard.lost) == 1


def test_what_our_library_tells_is_kept_as_it_is(heard: Heard) -> None:
    body = b'{"params": {"lr": "0.1"}}\n\n{"points": []}'
    assert heard.ask("POST", "/entries", body, authorization="Bearer token") == (204, None)
    assert heard.entries == [{"params": {"lr": "0.1"}}, {"points": []}]


@pytest.mark.parametrize("body", [b"# a note\n{}", b"[1]\n{}"])
def test_what_is_no_entry_is_counted(heard: Heard, body: bytes) -> None:
    heard.ask("POST", "/entries", body, authorization="Bearer token")
    assert (heard.entries, [number for number, _ in heard.lost]) == ([{}], [1])


def test_only_the_job_tells_entries(heard: Heard) -> None:
    assert heard.ask("POST", "/entries", b"{}")[0] == 401
    assert heard.ask("POST", "/entries", b"{}", authorization="Bearer other")[0] == 401
    assert heard.entries == []
