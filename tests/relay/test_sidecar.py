"""The relay as a program in a pod."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.relay.receiver import TOKEN, Receiver
from tests.support import eventually


class Sidecar:
    def __init__(self, folder: Path, gateway: str, **settings: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._told = {
            "job_id": "job",
            "attempt": 1,
            "gateway": gateway,
            "folder": str(folder),
            "made": [str(folder / "results")],
            "port": self.port,
            "linger_seconds": 60.0,
            "of_a_later_version": 1,
            **settings,
        }
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "scheduler.relay.sidecar"],
            env={
                "PATH": os.environ["PATH"],
                "EPOCH_SCHEDULER_RELAY": json.dumps(self._told),
                "KUBEPROFILER_TOKEN": TOKEN,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def hears(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def write(self, lines: str) -> None:
        url = f"http://127.0.0.1:{self.port}/write"
        with urlopen(Request(url, lines.encode(), method="POST")) as reply:
            assert reply.status == 204


@pytest.fixture
def beside(tmp_path: Path, receiver: Receiver) -> Iterator[Sidecar]:
    made = Sidecar(tmp_path / "job" / "1", receiver.url)
    yield made
    if made.process:
        made.process.kill()
        made.process.communicate()


def test_what_it_heard_is_delivered_before_it_ends_at_the_signal(
    beside: Sidecar, receiver: Receiver, tmp_path: Path
) -> None:
    process = beside.start()
    eventually(beside.hears)
    beside.write("a v=1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(b"a v=2", ("127.0.0.1", beside.port))
    process.send_signal(signal.SIGTERM)
    assert (process.wait(60), receiver.lines) == (0, ["a v=1", "a v=2"])
    assert (tmp_path / "job" / "1" / "results").is_dir()
    assert [*(tmp_path / "job").rglob("*.ndjson")] == []


def test_a_signal_right_at_its_start_is_heard(beside: Sidecar) -> None:
    """A training that ends at once: nothing waits for the grace of its pod."""
    process = beside.start()
    eventually(lambda: handles(process.pid, signal.SIGTERM))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def handles(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught & 1 << (number - 1))


def test_a_port_that_is_taken_is_named(beside: Sidecar) -> None:
    with socket.create_server(("127.0.0.1", beside.port)):
        process = beside.start()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == f"relay: port {beside.port} of this pod: Address already in use\n"


def test_it_is_small(beside: Sidecar, receiver: Receiver) -> None:
    process = beside.start()
    eventually(beside.hears)
    beside.write("a v=1\n" * 1000)
    eventually(lambda: len(receiver.lines) == 1000)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert int(status.partition("VmRSS:")[2].split()[0]) < 24_000


def test_a_folder_that_cannot_be_made_ends_nothing(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "job").write_text("a file")
    beside = Sidecar(tmp_path / "job" / "1", receiver.url)
    process = beside.start()
    eventually(beside.hears)
    beside.write("a v=1")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, "Not a directory" in said) == (0, True)
