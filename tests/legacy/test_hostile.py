"""Thousands of requests that no client of anybody's would send: the daemon serves on.

HOSTILE=100000 in the environment sends as many."""

from __future__ import annotations

import json
import os
import random
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing

import psutil

from tests.legacy.conftest import Submit
from tests.support import Daemon, Gate

REQUESTS = int(os.environ.get("HOSTILE", "5000"))
WARM_UP = 1_000
SLOW = 100  # connections with half a request, at any time


def test_whatever_is_sent_it_serves_on_and_nothing_is_changed(
    daemon: Daemon, gate: Gate, submit: Submit, legacy: str
) -> None:
    job_id = submit("G8", "--max_epochs", "3")
    gate.await_ring()
    other = daemon.submit("--image", "none", "--num_gpus", "0", "other", "--", "sleep", "1000")
    daemon.wait_state(other="RUNNING")
    chance = random.Random(6)
    process = psutil.Process(daemon.pid)
    before, grown = rows(daemon, other), 0
    ends: Counter[str] = Counter()
    with ExitStack() as slow:
        for number in range(REQUESTS):
            if number == WARM_UP:
                grown = process.memory_info().rss
            attack = chance.choice(ATTACKS)
            ends[sent(legacy, attack(chance, other))] += 1
            if number % (REQUESTS // SLOW) == 0:
                half = slow.enter_context(socket.create_connection(address(legacy), 10))
                half.sendall(b"POST /end_epoch/" + other.encode())
            if number % 500 == 0:
                assert sent(legacy, request("GET", f"/has_to_stop/{job_id}")) == "200"
    assert process.memory_info().rss - grown < 30 * 2**20
    assert rows(daemon, other) == before
    assert "500" not in ends, ends
    log = [json.loads(line) for line in daemon.said().splitlines()]
    assert not [line for line in log if line["level"] in ("error", "critical")]
    gate.open(3)
    daemon.wait_state(old="FINISHED")


def rows(daemon: Daemon, job_id: str) -> tuple[object, ...]:
    with closing(sqlite3.connect(daemon.state / "scheduler.db")) as db:
        wanted = "select epochs_done, memory_mib, max_epochs, outcome from jobs where id = ?"
        found: tuple[object, ...] = db.execute(wanted, (job_id,)).fetchone()
        return found


def address(legacy: str) -> tuple[str, int]:
    host, _, port = legacy.partition(":")
    return host, int(port)


def sent(legacy: str, data: bytes) -> str:
    """The status of what is answered; empty: nothing is."""
    try:
        with socket.create_connection(address(legacy), 10) as peer:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            answer = peer.recv(4096)
    except OSError:  # it does not listen to the end of everything
        return ""
    return answer[9:12].decode("latin-1")


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


# --- what is sent: each by chance, about a job that is not the sender's ---------------------------

WRONG_TOKEN = "Authorization: Bearer somebody-elses"
TRICKS = (
    "../../../../../../etc/passwd",
    "%2e%2e%2fID",
    "ID%00",
    "/ID",
    "ID/../x",
    "IDID",
    "' or 1=1 --",
    "\udcff\udcfe",
    "a" * 3000,
    "",
    "//",
)
HEADERS = (
    "X",
    ": y",
    " folded",
    "X: \0",
    "X-Attempt: 99",
    "X-Attempt: -1",
    "Content-Length: 5",
    "Content-Length: 99999999999",
    "Transfer-Encoding: chunked",
    "Authorization: Basic eDp5",
    WRONG_TOKEN,
)
BODIES = (
    b"",
    b"[" * 60_000,
    b"{" * 100,
    b"\xff" * 100,
    b"x" * 70_000,
    b"a=1&" * 1000,
    b'{"done": NaN}',
    b'{"done": 1e999}',
    b'{"done": -1}',
    b'{"done": "1"}',
    b'["epochDur"]',
)


def _noise(chance: random.Random, job_id: str) -> bytes:
    return chance.randbytes(chance.randrange(200))


def _cut(chance: random.Random, job_id: str) -> bytes:
    whole = request("POST", f"/end_epoch/{job_id}", b'{"done": 1}')
    return whole[: chance.randrange(len(whole))]


def _method(chance: random.Random, job_id: str) -> bytes:
    method = chance.choice(["PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "G\0T"])
    return request(method, f"/end_epoch/{job_id}")


def _trick(chance: random.Random, job_id: str) -> bytes:
    trick = chance.choice(TRICKS).replace("ID", job_id)
    return request("GET", f"/has_to_stop/{trick}")


def _headers(chance: random.Random, job_id: str) -> bytes:
    header = chance.choice([*HEADERS, "X: " + "x" * chance.randrange(20_000)])
    many = [header] * chance.choice([1, 1, 2, 200])
    return request("POST", f"/end_epoch/{job_id}", b'{"done": 1}', WRONG_TOKEN, *many)


def _body(chance: random.Random, job_id: str) -> bytes:
    path = chance.choice(["end_epoch", "profiling", "signal_end_profiling"])
    body = chance.choice(BODIES)
    return request("POST", f"/{path}/{job_id}", body)


def _spoofed(chance: random.Random, job_id: str) -> bytes:
    path = chance.choice(["end_epoch", "profiling", "signal_end"])
    return request("POST", f"/{path}/{job_id}", b'{"done": 1, "epochDur": 1}', WRONG_TOKEN)


def _submission(chance: random.Random, job_id: str) -> bytes:
    token = chance.choice(["", WRONG_TOKEN])
    body = b'{"jobName": "mine", "scriptPath": "/bin/sh", "username": "root"}'
    return request("POST", "/submit", body, *([token] if token else []))


Attack = Callable[[random.Random, str], bytes]
ATTACKS: tuple[Attack, ...] = (
    _noise,
    _cut,
    _method,
    _trick,
    _headers,
    _body,
    _spoofed,
    _submission,
)
