"""What the points of a series come to: counted while they are taken in, so that a table of hundreds
of jobs reads no points.

What is told twice at one time and step counts twice here: the last, the least and the greatest are
right nevertheless, unless the second value differs from the first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from scheduler.gateway.series.reading import NO_STEP, Points, Series, Values

Row = tuple[int, int, int, object]  # series, time, step, value; a NaN is None

# Of the table `series`. Steps are NULL if no point has one, `last` also if it is NaN.
COLUMNS = """
    points INTEGER NOT NULL DEFAULT 0,
    first_step INTEGER,
    final_step INTEGER,
    last_at INTEGER,
    last_step INTEGER,
    last,
    least,
    least_step INTEGER,
    greatest,
    greatest_step INTEGER,
"""
NAMES = [line.split()[0].strip(",") for line in COLUMNS.split("\n") if line.strip()]

# The newer of two points of one time is the one that comes later.
_UPDATE = """
UPDATE series SET
    points = points + :points,
    first_step = min(coalesce(first_step, :first_step), coalesce(:first_step, first_step)),
    final_step = max(coalesce(final_step, :final_step), coalesce(:final_step, final_step)),
    last = iif(last_at > :last_at, last, :last),
    last_step = iif(last_at > :last_at, last_step, :last_step),
    last_at = max(coalesce(last_at, :last_at), :last_at),
    least_step = iif(least <= :least OR :least IS NULL, least_step, :least_step),
    least = iif(least <= :least OR :least IS NULL, least, :least),
    greatest_step = iif(greatest >= :greatest OR :greatest IS NULL, greatest_step, :greatest_step),
    greatest = iif(greatest >= :greatest OR :greatest IS NULL, greatest, :greatest)
WHERE id = :series
"""


@dataclass(slots=True)
class Summary:
    """`least` and `greatest` are of numbers, and None if there was none."""

    points: int = 0
    first_step: int | None = None
    final_step: int | None = None
    last_at: int | None = None  # nanoseconds
    last_step: int | None = None
    last: object = None
    least: float | None = None
    least_step: int | None = None
    greatest: float | None = None
    greatest_step: int | None = None

    def add(self, at: int, step: int | None, value: object) -> None:
        self.points += 1
        if step is not None:
            if self.first_step is None or step < self.first_step:
                self.first_step = step
            if self.final_step is None or step > self.final_step:
                self.final_step = step
        if self.last_at is None or at >= self.last_at:
            self.last_at, self.last_step, self.last = at, step, value
        if isinstance(value, int | float):
            if self.least is None or value < self.least:
                self.least, self.least_step = value, step
            if self.greatest is None or value > self.greatest:
                self.greatest, self.greatest_step = value, step


@dataclass(slots=True)
class JobSummary:
    """What a job has told of itself, and what its series come to."""

    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    description: str = ""
    series: list[tuple[Series, Summary]] = field(default_factory=list)


def add(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Within a transaction of the caller."""
    found: dict[int, Summary] = {}
    for series, at, step, value in rows:
        summary = found.get(series)
        if summary is None:
            summary = found[series] = Summary()
        summary.add(at, None if step == NO_STEP else step, value)
    connection.executemany(
        _UPDATE,
        [
            {"series": series} | {name: getattr(summary, name) for name in NAMES}
            for series, summary in found.items()
        ],
    )


def over_attempts(attempts: Mapping[int, Summary]) -> Summary | None:
    """Of one series over the attempts of a job, as `reading.newest` joins their points. None: only
    the points can tell, because the least or the greatest was at a step that a newer attempt has
    been at again."""
    whole = Summary()
    covered: list[tuple[int, int]] = []
    for number in sorted(attempts, reverse=True):
        each = attempts[number]
        for step in (each.least_step, each.greatest_step):
            if step is not None and any(first <= step <= last for first, last in covered):
                return None
        whole = _joined(whole, each)
        if each.first_step is not None and each.final_step is not None:
            covered.append((each.first_step, each.final_step))
    return whole


def _joined(newer: Summary, older: Summary) -> Summary:
    """The older one has only what the newer one has not been at."""
    if not newer.points:
        return replace(older)
    joined = replace(newer, points=newer.points + older.points)
    if older.least is not None and (newer.least is None or older.least < newer.least):
        joined.least, joined.least_step = older.least, older.least_step
    if older.greatest is not None and (newer.greatest is None or older.greatest > newer.greatest):
        joined.greatest, joined.greatest_step = older.greatest, older.greatest_step
    return joined


def of_points(points: Points) -> Summary:
    """Counted from the points themselves."""
    if not len(points):
        return Summary()
    stepped = points.steps[points.steps != NO_STEP]
    summary = Summary(
        points=len(points),
        first_step=int(stepped.min()) if len(stepped) else None,
        final_step=int(stepped.max()) if len(stepped) else None,
    )
    for at in sorted(
        {len(points) - 1, *_extremes(points.values)}
    ):  # the first of equal ones counts
        summary.add(int(points.times[at]), _step(points.steps[at]), _told(points.values[at]))
    summary.points = len(points)
    return summary


def _extremes(values: Values) -> list[int]:
    """Where the least and the greatest are."""
    if values.dtype == object:
        return []
    numbers = values.astype(np.float64)
    if np.isnan(numbers).all():
        return []
    return [int(np.nanargmin(numbers)), int(np.nanargmax(numbers))]


def _step(step: np.int64) -> int | None:
    return None if step == NO_STEP else int(step)


def _told(value: Any) -> object:
    told = value if isinstance(value, str) else value.item()
    return None if told != told else told


def read(connection: sqlite3.Connection, jobs: Collection[str]) -> dict[str, JobSummary]:
    """Of each of these jobs, also if it has told nothing."""
    found = {job: JobSummary() for job in jobs}
    wanted = (json.dumps(sorted(found)),)
    for number, job, attempt, of, name, kind, tags, *summary in connection.execute(
        f"SELECT id, job, attempt, measurement, field, kind, tags, {', '.join(NAMES)} FROM series"
        " WHERE job IN (SELECT value FROM json_each(?)) ORDER BY id",
        wanted,
    ):
        series = Series(number, job, attempt, of, name, kind, read_tags(tags))
        found[job].series.append((series, Summary(*summary)))
    for job, kind, key, value in connection.execute(
        "SELECT job, kind, key, value FROM pairs WHERE job IN (SELECT value FROM json_each(?))"
        " ORDER BY job, key",
        wanted,
    ):
        (found[job].params if kind == "params" else found[job].tags)[key] = value
    for job, description in connection.execute(
        "SELECT job, description FROM jobs WHERE job IN (SELECT value FROM json_each(?))",
        wanted,
    ):
        found[job].description = description
    return found


@lru_cache(4096)
def read_tags(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in json.loads(text))
