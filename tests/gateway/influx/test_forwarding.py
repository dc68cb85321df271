"""What is sent on, as lines and as requests; a real InfluxDB: tests/clients/test_forwarding.py."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scheduler.gateway.influx.forwarding import (
    BATCH_MAX,
    BadDestination,
    Forwarding,
    InfluxServer,
    NotTaken,
    lines_of,
)
from scheduler.gateway.series.forward_queue import QueuedPoint
from scheduler.gateway.series.series_store import SeriesStore
from tests.gateway.series.delivering import NOW_NS, deliver, metric


class Influx:
    """Answers as a test wants it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, str], str]] = []
        self.answers: list[tuple[int, bytes]] = []  # then 204
        influx = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                influx.heard.append((self.path, dict(self.headers), body))
                status, said = influx.answers.pop(0) if influx.answers else (204, b"")
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def url(self, path: str = "/write?db=training") -> str:
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    @property
    def lines(self) -> list[str]:
        return [line for _, _, body in self.heard for line in body.splitlines()]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def influx() -> Iterator[Influx]:
    made = Influx()
    yield made
    made.close()


def point(
    field: str, value: Any, kind: str = "float", tags: str = "[]", at: int = 7
) -> QueuedPoint:
    return QueuedPoint(1, "job-1", "m", tags, at, field, kind, value)  # type: ignore[arg-type]


def test_fields_of_one_moment_are_one_line_and_names_are_escaped() -> None:
    tags = '[["ho st", "a,b=c"], ["empty", ""]]'
    points = [
        point("lo ss", 0.5, tags=tags),
        point("n", 3, "integer", tags),
        point("ok", 1, "boolean", tags),
        point("said", 'a "b" \\', "string", tags),
        point("lo ss", 1e-300, tags=tags, at=8),
    ]
    head = r"m,ho\ st=a\,b\=c,job=job-1"
    assert list(lines_of(points)) == [
        rf'{head} lo\ ss=0.5,n=3i,ok=true,said="a \"b\" \\" 7',
        rf"{head} lo\ ss=1e-300 8",
    ]


def test_what_is_no_number_is_left_out() -> None:
    values = [None, math.inf, -math.inf]
    assert list(lines_of([point(f"f{n}", value) for n, value in enumerate(values)])) == []
    assert list(lines_of([point("a", None), point("b", 1.0)])) == ["m,job=job-1 b=1.0 7"]


@pytest.mark.parametrize(
    ("path", "credentials", "wanted", "sent"),
    [
        ("/write?db=training", "", "/write?db=training&precision=ns", None),
        (
            "/influx/write?db=a&rp=b",
            "me:x y",
            "/influx/write?db=a&rp=b&precision=ns",
            "Basic bWU6eCB5",
        ),
        (
            "/api/v2/write?org=lab&bucket=b&precision=s",
            "secret",
            "/api/v2/write?org=lab&bucket=b&precision=ns",
            "Token secret",
        ),
    ],
)
def test_it_is_written_to_as_its_own_clients_do(
    influx: Influx, path: str, credentials: str, wanted: str, sent: str | None
) -> None:
    assert InfluxServer(influx.url(path), credentials).write(["m a=1 5"]) == []
    ((asked, headers, body),) = influx.heard
    assert (asked, headers.get("Authorization"), body) == (wanted, sent, "m a=1 5")


@pytest.mark.parametrize(
    "url",
    [
        "influx:8086",
        "http://influx:8086/write",
        "http://influx:8086/?db=a&p=secret",
        "ftp://influx/write?db=a",
        "http://influx:8086/api/v2/write?org=lab",
    ],
)
def test_a_wrong_address_is_named_without_its_password(url: str) -> None:
    with pytest.raises(BadDestination, match="is neither http://HOST:8086/write") as error:
        InfluxServer(url)
    assert "secret" not in str(error.value)


def test_a_line_that_is_refused_is_dropped_alone(influx: Influx) -> None:
    bad = b'{"error":"unable to parse"}'
    influx.answers = [(400, bad), (204, b""), (400, bad), (400, bad)]  # all, ab, cd, c, then d
    server = InfluxServer(influx.url())
    assert server.write(["a", "b", "c", "d"]) == ["unable to parse"]
    assert influx.heard[-1][-1] == "d"


def test_what_was_written_in_part_is_not_written_again(influx: Influx) -> None:
    influx.answers = [(400, b'{"error":"partial write: field type conflict dropped=2"}')]
    assert len(InfluxServer(influx.url()).write(["a", "b", "c"])) == 2
    assert len(influx.heard) == 1


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_what_may_be_taken_later_waits(influx: Influx, status: int) -> None:
    influx.answers = [(status, b'{"message":"not now"}')]
    with pytest.raises(NotTaken, match=f"HTTP {status}: not now"):
        InfluxServer(influx.url()).write(["a"])


def test_a_database_is_made_if_it_is_missing(influx: Influx) -> None:
    influx.answers = [(404, b'{"error":"database not found"}'), (200, b"{}")]
    assert InfluxServer(influx.url()).write(["a"]) == []
    assert influx.heard[1][0] == "/query?q=CREATE%20DATABASE%20%22training%22"


def test_what_was_not_acknowledged_is_sent_again_by_the_next(
    tmp_path: Path, influx: Influx
) -> None:
    influx.answers = [(503, b"")]
    first = Forwarding(InfluxServer(influx.url()))
    with SeriesStore(tmp_path, forwards=first.queue) as store:
        deliver(store, {"points": [metric("loss", 0.5, 1)]})
        with pytest.raises(NotTaken):
            first.send(store)
    second = Forwarding(InfluxServer(influx.url()))
    with SeriesStore(tmp_path, forwards=second.queue) as store:
        assert second.send(store) == 1
    assert influx.lines == [f"metrics,job=a loss=0.5 {NOW_NS}"] * 2


def test_many_points_are_sent_at_once(tmp_path: Path, influx: Influx) -> None:
    forwarding = Forwarding(InfluxServer(influx.url()))
    with SeriesStore(tmp_path, forwards=forwarding.queue) as store:
        points = [metric("loss", 0.5, n, NOW_NS + n) for n in range(BATCH_MAX + 1)]
        deliver(store, {"points": points})
        assert forwarding.queue.due.is_set()
        assert [forwarding.send(store), forwarding.send(store)] == [BATCH_MAX, 1]
    assert [len(body.splitlines()) for _, _, body in influx.heard] == [BATCH_MAX, 1]
