"""Relays that are told too much, too fast, or nonsense, and those that are refused."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.relay.beside import Beside
from tests.relay.receiver import Receiver
from tests.support import eventually

MEMORY_KIB_MAX = 20_000
PORTION = 25_000


def said(folder: Path) -> str:
    log = folder / "relay.log"
    return log.read_text() if log.exists() else ""


def test_a_training_may_end_while_a_million_points_wait(beside: Beside, receiver: Receiver) -> None:
    receiver.kill()
    beside.start()
    for begin in range(0, 1_000_000, PORTION):
        numbers = range(begin, begin + PORTION)
        beside.write("".join(f"a v={at} {1_700_000_000_000_000_000 + at}\n" for at in numbers))
    assert beside.memory_kib() < MEMORY_KIB_MAX
    receiver.start()
    assert beside.end_training() == 0
    times = [int(line.rpartition(" ")[2]) for line in receiver.lines]
    assert times == [*range(1_700_000_000_000_000_000, 1_700_000_000_001_000_000)]
    assert not any("lost" in entry for entry in receiver.entries)


def test_what_is_more_than_the_spool_is_dropped_from_its_beginning_and_counted(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.kill()
    small = Beside(
        tmp_path / "job" / "1", receiver.url, linger_seconds=60.0, spool_bytes_max=2 * 2**20
    )
    small.start()
    for begin in range(0, 1_000_000, PORTION):
        small.write("".join(f"a v={at}\n" for at in range(begin, begin + PORTION)))
    receiver.start()
    assert small.end_training() == 0
    small.close()
    kept = [int(line.partition("=")[2]) for line in receiver.lines]
    assert kept == [*range(kept[0], 1_000_000)], "the newest"
    first = min(number for _, number, _ in receiver.received)
    assert first > 0, "from which the gateway sees how many entries are missing"


def test_with_a_token_that_was_revoked_nothing_stands_still(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path).start()
    folder = tmp_path / "job" / "1"
    revoked = Beside(folder, receiver.url, token="revoked", linger_seconds=0.5)
    revoked.start()
    revoked.write("a v=1")
    eventually(lambda: "the gateway refuses the token: 401" in said(folder))
    began = time.monotonic()
    for at in range(100):
        revoked.write(f"a v={at}")
    assert time.monotonic() - began < 10, "as fast as ever"
    assert revoked.end_training() == 1
    revoked.close()
    assert said(folder).count("refuses the token") == 1
    assert receiver.entries == []
    again = Beside(folder, receiver.url, linger_seconds=60.0)
    again.start()
    assert again.end_training() == 0
    again.close()
    receiver.kill()
    assert len(receiver.lines) == 101, "a valid one delivers it all"


@pytest.mark.parametrize("attempts", [(1, 1), (1, 2)], ids=["one attempt", "two"])
def test_two_relays_of_a_job_deliver_each_entry_once(
    tmp_path: Path, receiver: Receiver, attempts: tuple[int, int]
) -> None:
    both = [
        Beside(tmp_path / "job" / str(each), receiver.url, attempt=each, linger_seconds=60.0)
        for each in attempts
    ]
    for each in both:
        each.start()
    for at in range(100):
        for number, each in enumerate(both):
            each.write(f"a v={2 * at + number}")
    assert [each.end_training() for each in both] == [0, 0]
    for each in both:
        each.close()
    assert Counter(receiver.lines) == Counter(f"a v={at}" for at in range(200))


def test_a_line_of_ten_megabytes_costs_itself(beside: Beside, receiver: Receiver) -> None:
    beside.start()
    beside.write("before v=1\n" + "x" * 7_000_000 + "\nafter v=1")
    beside.write("y" * 10_000_000)
    beside.write("last v=1")
    eventually(lambda: receiver.lines[-1:] == ["last v=1"])
    assert beside.memory_kib() < MEMORY_KIB_MAX, "it was given back"
    assert beside.end_training() == 0
    assert receiver.lines == ["before v=1", "after v=1", "last v=1"]
    lost = Counter(entry["why"] for entry in receiver.entries if "lost" in entry)
    assert lost.pop("a request had 1611392 bytes too many") == 1
    assert [*lost] == ["lines of more than 65536 bytes"]


def test_noise_in_datagrams_ends_nothing(beside: Beside, receiver: Receiver) -> None:
    beside.start()
    noise = [b"", b"\0" * 100, b"\xff\xfe", os.urandom(60_000), b"half a li", b"a\x1b v=1", b"\n"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        for data in (*noise, b"last v=1"):
            mouth.sendto(data, ("127.0.0.1", beside.port))
    assert beside.end_training() == 0
    assert receiver.lines[-1] == "last v=1"


def test_a_full_disk_ends_nothing(tmp_path: Path, receiver: Receiver) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m none {disk} 2> /dev/null"):
        pytest.skip("no disk can be mounted here")
    try:
        receiver.kill()
        beside = Beside(disk / "job" / "1", receiver.url, linger_seconds=60.0)
        beside.start()
        for at in range(40):
            beside.write("".join(f"a v={1000 * at + n}\n" for n in range(1000)) + "b" * 40_000)
        receiver.start()
        eventually(lambda: receiver.lines)

        def goes_on() -> bool:
            beside.write("late v=1")
            return receiver.lines[-1] == "late v=1"

        eventually(goes_on)
        assert beside.end_training() == 0
        beside.close()
    finally:
        os.system(f"umount -l {disk}")
    lost = [entry for entry in receiver.entries if "lost" in entry]
    assert sum(entry["lost"] for entry in lost) > 0
    assert {entry["why"] for entry in lost} >= {"the disk of the spool was full"}
