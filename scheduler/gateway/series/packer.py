"""Packs points into chunks, and thins out old chunks: a little at a time, between deliveries.

Chunks of one series do not overlap: what comes late for a packed span is packed again with it. So
each moment of a series is in one chunk, as it was logged or thinned out, and no point is in two.

Everything here runs in the one thread that writes, within a transaction of the caller.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from scheduler.gateway.series.chunk_format import pack, unpack
from scheduler.gateway.series.intake import CHUNK_POINTS, Intake
from scheduler.gateway.series.limits import DAY_SECONDS, Retention
from scheduler.gateway.series.reading import DTYPES, Kind, Points, joined
from scheduler.gateway.series.thinning import (
    SeriesSpan,
    minutes_of,
    pack_minutes,
    regrouped,
    replaced,
    thinned,
    unpack_minutes,
)

JOINED_POINTS = 8_192  # a chunk with fewer is joined with the next one
DENSE = 30  # points in a minute: then it is worth to keep what is known of it beside
LOOK_SECONDS = 60.0  # between two looks what is old enough
MINUTE, HOUR = 60, 3600

_UNPACKED = """
WITH RECURSIVE found(id) AS (
    SELECT min(series) FROM points
    UNION ALL
    SELECT (SELECT min(series) FROM points WHERE series > found.id) FROM found
    WHERE found.id IS NOT NULL
)
SELECT id FROM found WHERE (SELECT min(at) FROM points WHERE series = found.id) < ?
"""


class Packer:
    def __init__(
        self, connection: sqlite3.Connection, retention: Retention, intake: Intake
    ) -> None:
        self._connection, self._retention, self._intake = connection, retention, intake
        self._waiting: deque[int] = deque()  # series with points that are old enough
        self._looked = 0.0
        intake.hot.add(
            dict(connection.execute("SELECT series, count(*) FROM points GROUP BY series"))
        )

    @property
    def pressing(self) -> bool:
        """A series has as many points as a chunk: that should not wait for a quiet moment."""
        return bool(self._intake.hot.full)

    def step(self, now: float) -> bool:
        """Does a little; False: there was nothing to do."""
        for series in self._intake.hot.full:
            self._pack(series, 2**63 - 1)
            return True
        if self._waiting:
            self._pack(self._waiting.popleft(), self._packed_before(now))
            return True
        if self._thin_one(now):
            return True
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        return self.look(now)

    def look(self, now: float) -> bool:
        """Finds series that have points to pack."""
        self._looked = time.monotonic()
        rows = self._connection.execute(_UNPACKED, (self._packed_before(now),))
        self._waiting.extend(row[0] for row in rows)
        return bool(self._waiting)

    def _packed_before(self, now: float) -> int:
        return int((now - self._retention.pack_seconds) * 1e9)

    # --- pack -----------------------------------------------------------------------------------

    def _pack(self, series: int, before_ns: int) -> None:
        (kind,) = self._connection.execute(
            "SELECT kind FROM series WHERE id = ?", (series,)
        ).fetchone()
        rows = self._connection.execute(
            "SELECT at, step, value FROM points WHERE series = ? AND at < ?"
            " ORDER BY at, step LIMIT ?",
            (series, before_ns, 4 * CHUNK_POINTS),
        ).fetchall()
        if rows:
            self._put(series, kind, as_points(rows, kind))
            last_at, last_step = rows[-1][:2]
            self._connection.execute(
                "DELETE FROM points WHERE series = ? AND (at, step) <= (?, ?)",
                (series, last_at, last_step),
            )
        self._intake.hot.remove(series, len(rows), not rows)

    def _put(self, series: int, kind: Kind, new: Points) -> None:
        """What lies in the span of a chunk, or before it, is packed again with it; what is left
        becomes new chunks, together with the chunk just before it if that is small."""
        found = self._connection.execute(
            "SELECT id, seconds, content, minutes, last FROM chunks"
            " WHERE series = ? AND last >= ? AND first <= ? ORDER BY first",
            (series, int(new.times[0]), int(new.times[-1])),
        ).fetchall()
        for number, seconds, content, minutes, last in found:
            end = int(np.searchsorted(new.times, last, side="right"))
            part, new = new.chosen(slice(None, end)), new.chosen(slice(end, None))
            self._connection.execute("DELETE FROM chunks WHERE id = ?", (number,))
            old = _piece(seconds, content, minutes, kind)
            if seconds:
                self._insert(series, kind, _late(old, part))
            else:
                self._insert_split(series, kind, replaced(old.points, part))
        if len(new):
            earlier = self._take_small(series, kind, new, 0)
            self._insert_split(series, kind, joined([earlier.points, new]) if earlier else new)

    def _insert_split(self, series: int, kind: Kind, points: Points) -> None:
        """The points of one moment stay together, so that late ones find all of them."""
        start = 0
        while start < len(points):
            last = points.times[min(start + CHUNK_POINTS, len(points)) - 1]
            end = int(np.searchsorted(points.times, last, side="right"))
            self._insert(series, kind, SeriesSpan(points.chosen(slice(start, end))))
            start = end

    def _insert(self, series: int, kind: Kind, piece: SeriesSpan) -> None:
        points, minutes = piece.points, piece.minutes
        if not piece.seconds:
            minutes = minutes_of(points)
            if minutes is not None and len(points) < DENSE * len(minutes.starts):
                minutes = None
        self._connection.execute(
            "INSERT INTO chunks (series, seconds, first, last, points, content, minutes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(series, piece.seconds, int(points.times[0]), int(points.times[-1])),
                *(len(points), pack(points, kind)),
                None if minutes is None else pack_minutes(minutes),
            ),
        )

    # --- thin out -------------------------------------------------------------------------------

    def _thin_one(self, now: float) -> bool:
        for before, after, days in (
            (0, MINUTE, self._retention.raw_days),
            (MINUTE, HOUR, self._retention.minutes_days),
        ):
            row = self._connection.execute(
                "SELECT id, series, content, minutes FROM chunks"
                " WHERE seconds = ? AND last < ? ORDER BY last LIMIT 1",
                (before, int((now - days * DAY_SECONDS) * 1e9)),
            ).fetchone()
            if row is None:
                continue
            number, series, content, minutes = row
            (kind,) = self._connection.execute(
                "SELECT kind FROM series WHERE id = ?", (series,)
            ).fetchone()
            self._connection.execute("DELETE FROM chunks WHERE id = ?", (number,))
            piece = thinned(_piece(before, content, minutes, kind), after)
            earlier = self._take_small(series, kind, piece.points, after)
            self._insert(series, kind, _joined(earlier, piece) if earlier else piece)
            return True
        return False

    def _take_small(
        self, series: int, kind: Kind, points: Points, seconds: int
    ) -> SeriesSpan | None:
        """Takes the chunk just before these points out, if it is small: chunks that are thinned
        out, or of points that come seldom, would become tiny."""
        row = self._connection.execute(
            "SELECT id, seconds, content, minutes, points FROM chunks"
            " WHERE series = ? AND last < ? ORDER BY last DESC LIMIT 1",
            (series, int(points.times[0])),
        ).fetchone()
        if row is None or row[1] != seconds or row[4] >= JOINED_POINTS:
            return None
        self._connection.execute("DELETE FROM chunks WHERE id = ?", (row[0],))
        return _piece(row[1], row[2], row[3], kind)


def as_points(rows: Sequence[tuple[int, int, object]], kind: Kind) -> Points:
    """Of rows that are not packed."""
    times, steps, values = zip(*rows, strict=True) if rows else ((), (), ())
    told = np.empty(len(rows), DTYPES[kind])
    told[:] = [np.nan if each is None else each for each in values]
    return Points(np.array(times, np.int64), np.array(steps, np.int64), told)


def as_kind(points: Points, kind: Kind) -> Points:
    """Whole numbers of a field that has others by now."""
    if points.values.dtype == DTYPES[kind]:
        return points
    return Points(points.times, points.steps, points.values.astype(DTYPES[kind]))


def _piece(seconds: int, content: bytes, minutes: bytes | None, kind: Kind) -> SeriesSpan:
    known = None if minutes is None else unpack_minutes(minutes)
    return SeriesSpan(as_kind(unpack(content)[0], kind), seconds, known)


def _joined(earlier: SeriesSpan, later: SeriesSpan) -> SeriesSpan:
    known = [each.minutes for each in (earlier, later) if each.minutes is not None]
    return SeriesSpan(
        joined([earlier.points, later.points]),
        later.seconds,
        regrouped(known, later.seconds * 10**9) if len(known) == 2 else None,
    )


def _late(old: SeriesSpan, new: Points) -> SeriesSpan:
    """Points of a span that has been thinned out. What is known of its minutes is added up."""
    width = old.seconds * 10**9
    kept = thinned(SeriesSpan(replaced(old.points, new)), old.seconds).points
    known = minutes_of(new, width)
    if old.minutes is None or known is None:
        return SeriesSpan(kept, old.seconds)
    return SeriesSpan(kept, old.seconds, regrouped([old.minutes, known], width))
