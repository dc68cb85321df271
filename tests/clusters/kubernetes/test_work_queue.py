"""Threads for runs: each run is handled by one thread at a time, and delays no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from scheduler.clusters.kubernetes import work_queue
from scheduler.clusters.kubernetes.client import ApiError
from scheduler.clusters.kubernetes.work_queue import WorkQueue
from scheduler.core.model import JobId, RunKey
from tests.support import eventually

A, B = (JobId("a"), 1), (JobId("b"), 1)


class Turns:
    """A handler that raises the given number of errors, and then does nothing."""

    def __init__(self, **errors: list[Exception]) -> None:
        self.errors = errors
        self.had: list[RunKey] = []
        self.gate = threading.Event()
        self.gate.set()
        self.now, self.most = 0, 0
        self._lock = threading.Lock()

    def take(self, key: RunKey) -> bool:
        with self._lock:
            self.had.append(key)
            self.now += 1
            self.most = max(self.most, self.now)
        self.gate.wait()
        with self._lock:
            self.now -= 1
            errors = self.errors.get(key[0], [])
            error = errors.pop(0) if errors else None
        if error:
            raise error
        return False

    def count(self, key: RunKey) -> int:
        return self.had.count(key)


@contextmanager
def working(turns: Turns, threads: int = 2) -> Iterator[WorkQueue[RunKey]]:
    work = WorkQueue(turns.take, threads, lambda key: {"job_id": key[0]})
    work.start()
    try:
        yield work
    finally:
        turns.gate.set()
        work.end()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "BACKOFF_SECONDS", 0.001)


def test_a_turn_that_fails_is_had_again_until_it_does_not() -> None:
    turns = Turns(a=[ApiError("busy", 500), ApiError("busy", 500), ValueError("a bug")])
    with structlog.testing.capture_logs() as logs, working(turns) as work:
        work.add(A)
        eventually(lambda: turns.count(A) == 4)
        work.add(B)
        eventually(lambda: turns.count(B) == 1)
    assert turns.count(A) == 4
    assert [line["event"] for line in logs] == ["cluster_refused", "bug"]


def test_a_run_that_fails_does_not_delay_others() -> None:
    turns = Turns(a=[ApiError("later", 429, retry_after=3600.0)])
    with structlog.testing.capture_logs(), working(turns, threads=1) as work:
        work.add(A)
        work.add(B)
        eventually(lambda: turns.count(B) == 1)
        assert turns.count(A) == 1


def test_a_run_has_one_turn_at_a_time_and_another_if_it_was_added_meanwhile() -> None:
    turns = Turns()
    turns.gate.clear()
    with working(turns) as work:
        work.add(A)
        eventually(lambda: turns.count(A) == 1)
        for _ in range(5):
            work.add(A)
        turns.gate.set()
        eventually(lambda: turns.count(A) == 2)
    assert turns.count(A) == 2
    assert turns.most == 1
