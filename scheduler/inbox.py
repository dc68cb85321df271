"""The real inbox and clock. What the events mean does not matter here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from scheduler.core.errors import Busy, SchedulerError, Unavailable
from scheduler.core.model import Event, Time

BATCH_MAX = 1_000
POLL_SECONDS = 1.0  # a wait notices within this time that the wall clock was set forward


class Clock:
    """The wall clock, except that it never goes back.

    When the wall clock is set forward, this clock follows at once. When it is set back, this clock
    is ahead of it. If it stood still until the wall clock has caught up, everything that waits for
    a point in time would hang. So it continues at half speed: every wait ends, after at most twice
    its time.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._now, self._read_at = wall(), monotonic()

    def now(self) -> Time:
        with self._lock:
            read_at = self._monotonic()
            self._now = max(self._wall(), self._now + (read_at - self._read_at) / 2)
            self._read_at = read_at
            return self._now


class QueueInbox:
    """Any thread puts and asks; only the loop's thread waits.

    Events are handed out in the order in which they arrived. A caller that must be sure of several
    events puts all but the last, and asks about the last one; if all or none of them may be
    committed, it asks about all.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = capacity
        self._clock = Clock(wall, monotonic)
        self._changed = threading.Condition(threading.Lock())
        self._news: deque[tuple[tuple[Event, ...], _Asker | None]] = deque()
        self._taken: list[_Asker] = []  # of the batch that the loop is processing
        self._closed: str | None = None
        self._failure: SchedulerError | None = None

    def now(self) -> Time:
        return self._clock.now()

    def put(self, event: Event) -> None:
        """Adds an event without a guarantee: a crash or the closing of the inbox may lose it."""
        self._add((event,), None)

    def ask(self, *events: Event, timeout: float = 10.0) -> None:
        """Adds events that are committed together, and returns when they have been."""
        asker = _Asker()
        self._add(events, asker)
        asker.wait(timeout)

    def wait(self, until: Time | None) -> Sequence[Event]:
        with self._changed:
            committed, self._taken = self._taken, []
        for asker in committed:
            asker.answer()
        with self._changed:
            while not self._news and self._closed is None:
                left = None if until is None else until - self._clock.now()
                if left is not None and left <= 0:
                    break
                self._changed.wait(None if left is None else min(left, POLL_SECONDS))
            if self._failure is not None:
                raise self._failure
            batch: list[Event] = []
            while self._news and len(batch) < BATCH_MAX:
                events, asked = self._news.popleft()
                batch += events
                if asked:
                    self._taken.append(asked)
        return batch

    def close(self, why: str) -> None:
        """Ends the service: all present and later askers get `why`. Repeated calls do nothing."""
        with self._changed:
            if self._closed is not None:
                return
            self._closed = why
            left = self._taken + [asker for _, asker in self._news if asker]
            self._taken = []
            self._news.clear()
            self._changed.notify_all()
        for asker in left:
            asker.answer(refusal=why)

    def fail(self, why: SchedulerError) -> None:
        """Closes the inbox, and lets the loop's next wait raise `why`, so that the loop ends."""
        self._failure = why
        self.close(str(why))

    def _add(self, events: tuple[Event, ...], asker: _Asker | None) -> None:
        with self._changed:
            if self._closed is not None:
                if asker:
                    raise Unavailable(self._closed)
                return
            if len(self._news) >= self._capacity:
                raise Busy(f"{self._capacity} reports and requests are already waiting: try again")
            self._news.append((events, asker))
            self._changed.notify()


class _Asker:
    """A caller that waits for an answer. A bare lock, because an Event costs ten times as much."""

    __slots__ = ("_lock", "_refusal")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._refusal: str | None = None

    def wait(self, timeout: float) -> None:
        if not self._lock.acquire(timeout=timeout):
            raise Unavailable(
                f"no answer in {timeout:g} s: try again; the request may have been carried out"
            )
        if self._refusal is not None:
            raise Unavailable(self._refusal)

    def answer(self, refusal: str | None = None) -> None:
        self._refusal = refusal
        self._lock.release()
