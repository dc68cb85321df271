"""Debian's InfluxDB 1.6, on loopback, with a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support import DEADLINE_SECONDS, eventually

INFLUXD = shutil.which("influxd")
DATABASE = "experiments"
needs_influxd = pytest.mark.skipif(INFLUXD is None, reason="needs Debian's influxdb")

_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
query-log-enabled = false
[http]
bind-address = "127.0.0.1:{http}"
log-enabled = false
[monitor]
store-enabled = false
[logging]
level = "error"
"""


@contextmanager
def influxd(folder: Path, ports: Sequence[int] = ()) -> Iterator[httpx.Client]:
    """A client of it, with a database. With one thread it adds in one order."""
    assert INFLUXD is not None
    ports = ports or free_ports(2)
    config = folder / "influxd.conf"
    config.write_text(_CONFIG.format(folder=folder, rpc=ports[0], http=ports[1]))
    with (folder / "influxd.err").open("wb") as said:
        process = subprocess.Popen(
            [INFLUXD, "-config", config],
            env={**os.environ, "GOMAXPROCS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    url = f"http://127.0.0.1:{ports[1]}"
    try:
        with httpx.Client(base_url=url, timeout=DEADLINE_SECONDS, trust_env=False) as client:
            eventually(lambda: _is_there(client) or process.poll() is not None)
            assert process.poll() is None, (folder / "influxd.err").read_text()
            made = client.post("/query", params={"q": f"CREATE DATABASE {DATABASE}"})
            assert made.status_code == 200
            yield client
    finally:
        process.kill()
        process.wait()


def write(client: httpx.Client, lines: list[str]) -> None:
    written = client.post("/write", params={"db": DATABASE}, content="\n".join(lines).encode())
    assert written.status_code == 204, written.text


def _is_there(client: httpx.Client) -> bool:
    try:
        return client.get("/ping").status_code == 204
    except httpx.TransportError:
        return False


def free_ports(count: int) -> list[int]:
    wires = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [wire.getsockname()[1] for wire in wires]
    for wire in wires:
        wire.close()
    return ports
