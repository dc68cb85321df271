"""The relay as a process: what it needs, what it leaves, and what the next one finds."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.relay.beside import Beside
from tests.relay.receiver import Receiver
from tests.support import eventually


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
