"""A gateway for tests: the real program, in front of the real API."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from scheduler.access.identity import user_token
from scheduler.v1 import scheduler_pb2 as pb
from tests.kube.certificates import Authority
from tests.serving import SECRET, Serving, by, serving
from tests.support import BIN, DEADLINE_SECONDS, eventually


@dataclass
class Gateway:
    url: str
    process: subprocess.Popen[str]

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        if token:
            headers["authorization"] = f"Bearer {token}"
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=DEADLINE_SECONDS, trust_env=False
        )


class Listener:
    """A page: reads events in a thread, and comes back with the id of the last one."""

    def __init__(self, client: httpx.Client, **filters: str | list[str]) -> None:
        self._client, self._filters = client, filters
        self.facts: list[int] = []  # numbers, as received
        self.jobs: dict[str, dict[str, Any]] = {}  # the newest of each
        self.states: list[str] = []  # of the daemon
        self.lists_again = 0
        self.last_id = ""
        self.refused: int | None = None  # the status of the last attempt, if it was no stream
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        eventually(lambda: self.last_id or self.refused)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._client.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except (httpx.HTTPError, RuntimeError, OSError):
                self._stopped.wait(0.05)

    def _read(self) -> None:
        headers = {"last-event-id": self.last_id} if self.last_id else {}
        with self._client.stream(
            "GET", "/events", params=self._filters, headers=headers, timeout=30
        ) as stream:
            self.refused = None if stream.status_code == 200 else stream.status_code
            if self.refused:
                self._stopped.wait(0.1)
                return
            event: dict[str, str] = {}
            for line in stream.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    event[name] = value
                    continue
                self._take(event)
                event = {}

    def _take(self, event: dict[str, str]) -> None:
        told = json.loads(event.get("data", "{}"))
        if event.get("event") == "daemon":
            self.states.append(told["state"])
            return
        self.facts += [fact["number"] for fact in told.get("facts", ())]
        self.jobs |= {job["id"]: job for job in told.get("jobs", ())}
        self.lists_again += bool(told.get("list_again"))
        self.last_id = event.get("id", self.last_id)


@dataclass
class Served:
    """A daemon's API, in this process, and a gateway."""

    daemon: Serving
    gateway: Gateway

    def by(self, user: str = "ada") -> httpx.Client:
        return self.gateway.client(user_token(SECRET, user))

    def listen(self, user: str = "ada", **filters: str | list[str]) -> Listener:
        return Listener(self.by(user), **filters)

    def code(self, user: str = "ada") -> str:
        """Of one log-in, as `scheduler-open` gets it."""
        made: pb.CreateLoginReply = self.daemon.gateway.CreateLogin(
            pb.CreateLoginRequest(), metadata=by(user)
        )
        return made.code

    @contextmanager
    def logged_in(self, user: str = "ada") -> Iterator[httpx.Client]:
        """A browser."""
        with self.gateway.client(origin=self.gateway.url) as client:
            answer = client.get(f"/login?code={self.code(user)}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            yield client


@contextmanager
def gateway(server: str, *flags: str, listen: str = "127.0.0.1:0") -> Iterator[Gateway]:
    process = subprocess.Popen(
        [BIN / "scheduler-gateway", "--server", server, "--listen", listen, *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready "), line
        yield Gateway(line.split()[1], process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


@contextmanager
def served_for(module: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests of a module: each makes its own jobs."""
    folder = module.mktemp("gateway")
    with (
        serving(module.mktemp("daemon")) as daemon,
        gateway(f"127.0.0.1:{daemon.server.port}", "--folder", str(folder)) as made,
    ):
        yield Served(daemon, made)
