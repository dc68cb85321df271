"""Hints to observe again: one wakes, many wake once, and a wait for none ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clusters.local import runner
from scheduler.clusters.local.hints import GATHER_SECONDS, Hints

LONG_SECONDS = 30.0  # a test that waits as long has failed


@pytest.fixture
def hints(tmp_path: Path) -> Iterator[Hints]:
    made = Hints(tmp_path)
    yield made
    made.close()


def waited(hints: Hints, seconds: float) -> float:
    began = time.monotonic()
    hints.wait(seconds)
    return time.monotonic() - began


def test_a_hint_that_is_there_already_is_not_waited_for(hints: Hints) -> None:
    hints.send()
    assert waited(hints, LONG_SECONDS) < LONG_SECONDS / 2


def test_without_a_hint_it_waits_as_long_as_it_was_told(hints: Hints) -> None:
    assert waited(hints, 0.02) >= 0.02


def test_a_swarm_is_answered_by_one_look(hints: Hints) -> None:
    for _ in range(5):
        hints.send()
    hints.wait(LONG_SECONDS)
    assert waited(hints, GATHER_SECONDS) >= GATHER_SECONDS, "none is left"


def test_more_hints_than_fit_block_no_sender(hints: Hints) -> None:
    for _ in range(10_000):
        hints.send()
    hints.wait(LONG_SECONDS)


def test_a_runner_gives_a_hint_by_the_socket_in_the_folder(hints: Hints, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(b"x", str(tmp_path / runner.HINTS))
    assert waited(hints, LONG_SECONDS) < LONG_SECONDS / 2


def test_the_next_daemon_takes_over_the_socket_of_one_that_was_killed(tmp_path: Path) -> None:
    first = Hints(tmp_path)
    second = Hints(tmp_path)
    second.send()
    second.wait(LONG_SECONDS)
    for made in (first, second):
        made.close()


def test_a_folder_may_have_a_longer_path_than_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    made = Hints(deep)
    made.send()
    made.wait(LONG_SECONDS)
    made.close()


def test_its_end_wakes_a_waiting_thread(hints: Hints) -> None:
    hints.end()
    assert hints.ended
    assert waited(hints, LONG_SECONDS) < LONG_SECONDS / 2
