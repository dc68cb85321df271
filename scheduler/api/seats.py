"""Places for streams: their number is limited, in all and for each user."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.core.errors import Busy

STREAMS_MAX = 64  # a watcher asks again at each change, so each costs time
STREAMS_OF_USER_MAX = 16


class Seats:
    """For any thread."""

    def __init__(
        self,
        most: int = STREAMS_MAX,
        most_of_user: int = STREAMS_OF_USER_MAX,
        what: str = "streams of jobs and logs",
    ) -> None:
        self._most, self._most_of_user, self._what = most, most_of_user, what
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()  # by user

    @property
    def taken(self) -> int:
        return self._taken.total()

    @contextmanager
    def taken_by(self, user: str) -> Iterator[None]:
        """Raises Busy if there is no place."""
        with self._lock:
            if self._taken[user] >= self._most_of_user:
                raise Busy(
                    f"{user} has {self._taken[user]} {self._what}, and may have no"
                    " more: end one of them"
                )
            if self._taken.total() >= self._most:
                raise Busy(f"too many {self._what}: at most {self._most} at a time")
            self._taken[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[user] -= 1
                self._taken += Counter()  # forgets users without any
