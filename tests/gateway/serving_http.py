"""A gateway for tests: the real program, in front of the real API."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from scheduler.access.identity import user_token
from tests.serving import SECRET, Serving
from tests.support import BIN, DEADLINE_SECONDS


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


@dataclass
class Served:
    """A daemon's API, in this process, and a gateway."""

    daemon: Serving
    gateway: Gateway

    def by(self, user: str = "ada") -> httpx.Client:
        return self.gateway.client(user_token(SECRET, user))


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
