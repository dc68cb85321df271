"""Points that are still to be sent on to another program: a queue in the file of the store.

A point is queued in the transaction that takes it in, so that whatever is acknowledged is sent.
Its oldest points make place when it is full, and are counted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import NamedTuple

from scheduler.gateway.series.reading import Kind
from scheduler.gateway.series.summaries import Row

POINTS_MAX = 1_000_000  # about 30 MB
_SCHEMA = """
CREATE TABLE IF NOT EXISTS unforwarded (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    series INTEGER NOT NULL,
    at INTEGER NOT NULL,
    value
)"""
_READ = """
SELECT u.id, s.job, s.measurement, s.tags, u.at, s.field, s.kind, u.value
FROM unforwarded u JOIN series s ON s.id = u.series ORDER BY u.id LIMIT ?"""


class QueuedPoint(NamedTuple):
    id: int
    job: str
    measurement: str
    tags: str  # JSON: sorted pairs
    at_ns: int
    field: str
    kind: Kind
    value: float | int | str | None  # None: NaN


class ForwardQueue:
    def __init__(self, batch: int, points_max: int = POINTS_MAX) -> None:
        """`due` is set when so many points wait."""
        self._batch, self.points_max = batch, points_max
        self.dropped = 0
        self.due = threading.Event()

    def open(self, connection: sqlite3.Connection) -> None:
        """The connection that writes. All else but `read` is called by its thread."""
        self._connection = connection
        connection.execute(_SCHEMA)

    def add(self, rows: Sequence[Row]) -> None:
        """Within the transaction that takes them in."""
        if not rows:
            return
        self._connection.executemany(
            "INSERT INTO unforwarded (series, at, value) VALUES (?, ?, ?)",
            [(series, at, value) for series, at, _, value in rows],
        )
        first, last = self._connection.execute(
            "SELECT min(id), max(id) FROM unforwarded"
        ).fetchone()
        if last - first >= self.points_max:
            self.dropped += self.forget(last - self.points_max)
        if last - first + 1 >= self._batch:
            self.due.set()

    def forget(self, last: int) -> int:
        """Up to this id. Returns how many."""
        return self._connection.execute("DELETE FROM unforwarded WHERE id <= ?", (last,)).rowcount


def read(connection: sqlite3.Connection, most: int) -> list[QueuedPoint]:
    """The oldest."""
    return [QueuedPoint(*row) for row in connection.execute(_READ, (most,))]
