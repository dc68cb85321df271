"""A log that takes no more of the disk than it may."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clusters.capped_log import LEAST_BYTES, UNIT, CappedLog, free_bytes
from scheduler.run_logs import LogFile, written_chunks

MAX = 16 * UNIT
LINE = b"line %09d\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.log"


@pytest.fixture
def file(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def parts(path: Path) -> list[bytes | int]:
    """What is kept, with the size of each hole in its place."""
    found: list[bytes | int] = []
    for part in written_chunks(LogFile(1, 0, path, path.stat().st_size)):
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


@pytest.mark.parametrize("chunk", [1, 7, 4000])
def test_of_a_long_log_the_begin_and_the_end_are_kept(file: int, path: Path, chunk: int) -> None:
    lines = [LINE % number for number in range(30 * MAX // 15)]
    log, most = CappedLog(file, MAX, 0), 0
    for first in range(0, len(lines), chunk * 100):
        log.write(b"".join(lines[first : first + chunk * 100]))
        most = max(most, on_disk(path))
    said = b"".join(lines)
    assert most <= MAX + chunk * 100 * 15 + UNIT
    assert path.stat().st_size == len(said)
    head, hole, tail = parts(path)
    assert isinstance(head, bytes)
    assert isinstance(tail, bytes)
    assert isinstance(hole, int)
    assert head == said[: len(head)]
    assert tail == said[len(head) + hole :]
    assert len(head) >= MAX // 8
    assert len(tail) >= MAX // 2 - UNIT


def test_a_short_log_is_whole(file: int, path: Path) -> None:
    log = CappedLog(file, MAX, 0)
    log.write(b"x" * (MAX // 2))
    log.write(b"end")
    assert path.read_bytes() == b"x" * (MAX // 2) + b"end"


def test_no_limit_is_too_small_to_work(file: int, path: Path) -> None:
    log = CappedLog(file, 1, 0)
    for _ in range(100):
        log.write(b"x" * UNIT)
    assert on_disk(path) <= LEAST_BYTES + UNIT


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB, so that the reserve is a twentieth of that."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount).returncode:
        pytest.skip("cannot mount a small disk here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Returns the file that takes all but a part of the reserve."""
    filler = disk / "filler"
    filler.write_bytes(b"x" * (free_bytes(str(disk)) - 2 * UNIT))
    return filler


def test_below_the_reserve_a_log_does_not_grow_and_goes_on_when_there_is_room(disk: Path) -> None:
    path = disk / "log"
    log = CappedLog(os.open(path, os.O_RDWR | os.O_CREAT), 0, 2**30)
    log.write(b"begin\n".ljust(UNIT))
    filler = fill(disk)
    log.write(b"lost\n".ljust(UNIT))
    assert free_bytes(str(disk)) == 2 * UNIT, "it has not grown"
    filler.unlink()
    log.write(b"end\n")
    assert parts(path) == [b"begin\n".ljust(UNIT), UNIT, b"end\n"]


@pytest.mark.parametrize("size", [1, 700, 4096, 5000, 3 * UNIT + 1])
def test_a_log_that_did_not_grow_for_a_while_shows_nothing_that_was_never_said(
    disk: Path, size: int
) -> None:
    """File systems make holes of whole blocks, and zeros of the rest of a block."""
    path, said = disk / "log", b""
    log = CappedLog(os.open(path, os.O_RDWR | os.O_CREAT), 0, 2**30)
    for number in range(30):
        if number % 10 == 5:
            filler = fill(disk)
        said += (data := str(number).encode().ljust(size, b"-"))
        log.write(data)
        if number % 10 == 9:
            filler.unlink()
    log.write(b"end")
    said += b"end"
    at = 0
    for part in parts(path):
        if isinstance(part, int):
            at += part
            continue
        assert part == said[at : at + len(part)]
        at += len(part)
    assert at == len(said)
    assert isinstance(part, bytes), "there is room for the end"
    assert (len(parts(path)) > 1) == (size > 700), "in a block that is begun there is room"
