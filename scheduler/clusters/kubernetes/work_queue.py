"""A few threads for what is to be done for many runs, or holders, one at a time for each of them.

Whoever's turn fails waits longer and longer, and keeps no other waiting.
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
    """`turn` does what there is to do for one; True: and wants to look again before long."""

    def __init__(
        self,
        handle: Callable[[Key], bool],
        threads: int,
        log_fields: Callable[[Key], Mapping[str, object]],
    ) -> None:
        """`log_fields`: what the log calls one."""
        self._turn, self._named = handle, log_fields
        self._changed = threading.Condition(threading.Lock())
        self._due: list[tuple[float, int, Key]] = []  # a heap, by time
        self._numbers = count()  # so that of two at the same time the first comes first
        self._known: set[Key] = set()  # which are due, or have their turn
        self._again: set[Key] = set()  # which were added during their turn
        self._failed: dict[Key, tuple[int, str]] = {}  # times in a row, and how the last time
        self._ended = False
        self._threads = [
            threading.Thread(target=self._work, name=f"kubernetes-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, key: Key) -> None:
        """Soon, or when its back-off is over. At once again if it has its turn right now."""
        with self._changed:
            if key in self._known:
                self._again.add(key)
            else:
                self._queue(key, 0.0)

    def end(self) -> None:
        """What has begun is finished, what has not is dropped."""
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
        """Let it have its turn. None: that was all."""
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
        except Exception:  # of a thread nobody waits for: it must not end unheard
            log.exception("bug", **self._named(key))
        times += 1
        self._failed[key] = times, words
        pause: float = min(BACKOFF_SECONDS * 2.0 ** min(times - 1, 9), BACKOFF_MAX_SECONDS)
        return max(pause, wanted)
