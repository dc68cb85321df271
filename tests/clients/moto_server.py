"""moto's S3 server, on loopback."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.influxd import free_ports
from tests.support import eventually


@contextmanager
def serving(python: str, said: Path) -> Iterator[int]:
    """Its port. `python`: one that has moto. `said`: the file with what it prints."""
    (port,) = free_ports(1)
    with said.open("wb") as log:
        process = subprocess.Popen(
            [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, said.read_text()
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
    except OSError:
        return False
    return True
