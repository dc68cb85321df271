"""A few threads that work for many runs or holders, with one thread at a time for each of them.

A key that fails is retried after growing pauses, and does not delay other keys.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from itertools import count
from typing import Generic, TypeVar

import structlog

from scheduler.clusters.kubernetes.client import ApiError

BACKOFF_SECONDS, BACKOFF_MAX_SECONDS = 0.5, 30.0

log = structlog.get_logger("scheduler.kubernetes")


Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """`handle` does what there is to do for one key, and returns whether to call it again soon."""

    def __init__(
        self,
        handle: Callable[[Key], bool],
        threads: int,
        log_fields: Callable[[Key], Mapping[str, object]],
    ) -> None:
        """`log_fields` returns what names a key in the log."""
        self._turn, self._named = handle, log_fields
        self._changed = threading.Condition(threading.Lock())
        self._due: list[tuple[float, int, Key]] = []  # a heap, by time
        self._numbers = count()  # keeps the order of keys that are due at the same time
        self._known: set[Key] = set()  # keys that are due or being handled
        self._again: set[Key] = set()  # keys that were added while they were handled
        self._failed: dict[Key, tuple[int, str]] = {}  # failures in a row, and the last message
        self._ended = False
        self._threads = [
            threading.Thread(target=self._work, name=f"kubernetes-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, key: Key) -> None:
        """Queues a key: at once, or after its back-off; again afterwards if it is being handled."""
        with self._changed:
            if key in self._known:
                self._again.add(key)
            else:
                self._queue(key, 0.0)

    def end(self) -> None:
        """Finishes what has begun, and drops the rest."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (key := self._next()) is not None:
            pause = self._handle_one(key)
            with self._changed:
                self._known.discard(key)
                if key in self._again or pause is not None:
                    self._queue(key, pause or 0.0)

    def _next(self) -> Key | None:
        with self._changed:
            while not self._ended:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    key = heapq.heappop(self._due)[2]
                    self._again.discard(key)
                    return key
                self._changed.wait(wait)
        return None

    def _queue(self, key: Key, pause: float) -> None:
        self._known.add(key)
        heapq.heappush(self._due, (time.monotonic() + pause, next(self._numbers), key))
        self._changed.notify()

    def _handle_one(self, key: Key) -> float | None:
        """Handles a key. Returns the pause before it is handled again; None: it is done."""
        wanted = 0.0
        times, before = self._failed.get(key, (0, ""))
        words = before
        try:
            if not self._turn(key):
                self._failed.pop(key, None)
                return None
        except ApiError as error:
            wanted, words = error.retry_after, str(error)
            if words != before:  # not each time
                log.info("cluster_refused", **self._named(key), error=words)
        except Exception:  # no caller would see it: it must not end the thread silently
            log.exception("bug", **self._named(key))
        times += 1
        self._failed[key] = times, words
        pause: float = min(BACKOFF_SECONDS * 2.0 ** min(times - 1, 9), BACKOFF_MAX_SECONDS)
        return max(pause, wanted)
