"""Who may read metrics, how often they are made, and in which form."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from scheduler.core.model import View
from scheduler.http.http11 import Reply, Request
from scheduler.http.http_server import Caller
from scheduler.metrics.service import FRESH_SECONDS, MetricsService, Sources

LOCAL = {"host": "127.0.0.1:7072"}


class World:
    """One whose view is new each time that it is looked at."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.at, self.looks = 100.0, 0
        file = None if token is None else folder / "token"
        if file:
            file.write_text(f"{token}\n")
        sources = Sources(
            about={"version": "1.2.3"},
            started_at=1.0,
            leads=lambda: True,
            view=self.view,
            due_at=lambda: 0.0,
            usage=dict,
            heard_at=lambda view: {"n1": 7.0},
            stored=lambda: {("facts", "run_ended"): 3.0},
            counted=lambda: {("api_errors", "INTERNAL"): 2.0},
            left_out_bytes=lambda: 7.0,
            disk=folder,
            reserve_mib=512,
        )
        self.service = MetricsService(sources, 10, file, lambda: self.at)

    def view(self) -> View:
        self.looks += 1
        return View(at=float(self.looks))

    def ask(
        self,
        headers: Mapping[str, str] = LOCAL,
        path: str = "/metrics",
        method: str = "GET",
        address: str = "127.0.0.1",
    ) -> Reply:
        request = Request(method, path, headers, b"", True)
        return self.service.answer(request, Caller(address, lambda: None))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_is_stored_and_what_is_counted_is_shown(world: World) -> None:
    reply = world.ask()
    assert (reply.status, reply.type.split(";")[0]) == (200, "text/plain")
    assert reply.body is not None
    text = reply.body.decode()
    assert 'scheduler_facts_total{kind="run_ended"} 3.0' in text
    assert 'scheduler_api_errors_total{code="INTERNAL"} 2.0' in text
    assert 'scheduler_agent_heard_timestamp_seconds{node="n1"} 7.0' in text
    assert "scheduler_leader 1.0" in text
    assert "scheduler_decided_timestamp_seconds 1.0" in text
    assert "scheduler_log_left_out_bytes 7.0" in text
    assert "scheduler_disk_reserve_bytes 5.36870912e+08" in text


def test_the_reader_chooses_the_form(world: World) -> None:
    plain = world.ask({**LOCAL, "accept": "application/openmetrics-text;version=1.0.0"})
    packed = world.ask(
        {**LOCAL, "accept": "application/openmetrics-text", "accept-encoding": "gzip, br"}
    )
    assert plain.type.startswith("application/openmetrics-text")
    assert plain.body is not None
    assert plain.body.endswith(b"# EOF\n")
    assert packed.headers == (("Content-Encoding", "gzip"),)
    assert gzip.decompress(packed.body or b"") == plain.body


def test_however_often_it_is_asked_it_is_made_once_a_second(world: World) -> None:
    bodies = {world.ask().body for _ in range(100)}
    assert (len(bodies), world.looks) == (1, 1)
    world.at += FRESH_SECONDS
    assert world.ask().body not in bodies
    assert world.looks == 2


@pytest.mark.parametrize(
    ("given", "status"),
    [({"path": "/"}, 404), ({"path": "/metrics/"}, 404), ({"method": "POST"}, 405)],
)
def test_nothing_else_is_there(world: World, given: Mapping[str, str], status: int) -> None:
    assert world.ask(LOCAL, **given).status == status
    assert world.looks == 0


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:7072", "[::1]:7072"])
def test_this_machine_needs_no_token(world: World, host: str) -> None:
    assert world.ask({"host": host}).status == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"host": "evil.example:7072"}, {"host": ""}, {"host": "127.0.0.1.evil.example:1"}],
)
def test_a_page_in_a_browser_cannot_read_it_by_another_name(
    world: World, headers: Mapping[str, str]
) -> None:
    assert world.ask(headers).status == 401


def test_other_machines_need_the_token(tmp_path: Path) -> None:
    world = World(tmp_path, "s3cret")

    def status(authorization: str) -> int:
        return world.ask({**LOCAL, "authorization": authorization}, address="192.0.2.7").status

    assert status("Bearer s3cret") == 200
    for wrong in ("", "Bearer", "Bearer ", "Bearer s3cre", "Basic s3cret", "Bearer é"):
        assert status(wrong) == 401
    (tmp_path / "token").write_text("another")
    assert (status("Bearer s3cret"), status("Bearer another")) == (401, 200)
    (tmp_path / "token").write_text("")
    assert status("Bearer ") == 401
    (tmp_path / "token").unlink()
    assert status("Bearer another") == 401


def test_without_a_token_other_machines_are_refused(world: World) -> None:
    assert world.ask({**LOCAL, "authorization": "Bearer "}, address="192.0.2.7").status == 401
