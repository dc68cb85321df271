"""The relay as a process: what it needs, what it leaves, and what the next one finds."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from scheduler.clusters.local.relay_start import bind, spawn
from tests.relay.receiver import TOKEN, Receiver
from tests.support import eventually


class Beside:
    """A relay without a training: the test is the training and its runner."""

    def __init__(self, folder: Path, gateway: str, **settings: Any) -> None:
        self._settings = {
            "job_id": "job",
            "attempt": 1,
            "token": TOKEN,
            "gateway": gateway,
            "folder": str(folder),
            **settings,
        }
        self.sockets = bind()
        self.port = self.sockets[0].getsockname()[1]
        self.pid = self._leash = -1

    def start(self) -> None:
        reading, self._leash = os.pipe()
        os.write(self._leash, json.dumps(self._settings).encode() + b"\n")
        self.pid = spawn(reading, *(each.fileno() for each in self.sockets))
        os.close(reading)

    def write(self, lines: str) -> None:
        url = f"http://127.0.0.1:{self.port}/write"
        with urlopen(Request(url, lines.encode(), method="POST")) as reply:
            assert reply.status == 204

    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def end_training(self) -> int:
        """Returns how the relay ended."""
        os.close(self._leash)
        self._leash = -1
        return self._reap()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._reap()
        os.close(self._leash)
        self._leash = -1

    def close(self) -> None:
        if self._leash >= 0:
            self.kill()
        for each in self.sockets:
            each.close()

    def _reap(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path).start()
    yield made
    made.kill()


@pytest.fixture
def beside(tmp_path: Path, receiver: Receiver) -> Iterator[Beside]:
    made = Beside(tmp_path / "job" / "1", receiver.url, linger_seconds=60.0)
    yield made
    made.close()


def test_what_arrived_before_it_was_started_is_heard(beside: Beside, receiver: Receiver) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(b"a v=1", ("127.0.0.1", beside.port))
    beside.start()
    assert beside.end_training() == 0
    assert receiver.lines == ["a v=1"]


def test_it_leaves_nothing_when_all_is_delivered(
    beside: Beside, receiver: Receiver, tmp_path: Path
) -> None:
    beside.start()
    beside.write("a v=1")
    eventually(lambda: receiver.lines == ["a v=1"])
    assert beside.end_training() == 0
    assert [*(tmp_path / "job").rglob("*.ndjson")] == []


def test_it_is_small(beside: Beside, receiver: Receiver) -> None:
    beside.start()
    beside.write("a v=1\n" * 1000)
    eventually(lambda: len(receiver.lines) == 1000)
    assert beside.memory_kib() < 20_000


def test_a_killed_relay_has_lost_nothing_that_it_acknowledged(
    beside: Beside, receiver: Receiver
) -> None:
    receiver.kill()
    beside.start()
    for at in range(100):
        beside.write(f"a v={at}")
    beside.kill()
    beside.start()
    beside.write("a v=100")
    receiver.start()
    assert beside.end_training() == 0
    assert sorted(receiver.lines) == sorted(f"a v={at}" for at in range(101))


def test_what_is_left_is_left_in_its_files(tmp_path: Path) -> None:
    """A gateway that is away for longer than a relay lingers."""
    nowhere = Beside(tmp_path / "job" / "1", "http://127.0.0.1:1", linger_seconds=0.1)
    nowhere.start()
    nowhere.write("a v=1")
    assert nowhere.end_training() == 1, "not everything is delivered"
    nowhere.close()
    (file,) = (tmp_path / "job" / "1" / "spools").rglob("*.ndjson")
    assert json.loads(file.read_text())["lines"] == "a v=1"
    said = (tmp_path / "job" / "1" / "relay.log").read_text()
    assert "the gateway cannot be reached" in said
    assert "1 entries are left for later" in said


def test_the_next_run_of_the_job_delivers_what_the_last_has_left(
    tmp_path: Path, receiver: Receiver
) -> None:
    before = Beside(tmp_path / "job" / "1", "http://127.0.0.1:1", linger_seconds=0.1)
    before.start()
    before.write("a v=1")
    before.end_training()
    before.close()
    after = Beside(tmp_path / "job" / "2", receiver.url, attempt=2, linger_seconds=60.0)
    after.start()
    after.write("a v=2")
    after.end_training()
    after.close()
    assert receiver.lines == ["a v=1", "a v=2"]
    assert [spool.split("/")[0] for spool, _, _ in receiver.received] == ["1", "2"]
    assert [*(tmp_path / "job").rglob("spools/*")] == []
