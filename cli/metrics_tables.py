"""SQL over what some jobs have logged: two tables in the memory of this command, and nothing else.

The statement is carried out here, not by the scheduler: it can see only what this user may see, and
can slow down nobody.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from cli.command import CommandError, UsageError
from scheduler.presentation.metrics_view import of_curve, tags_text
from scheduler.presentation.records import Record

ROWS_MAX = 100_000  # of an answer
SECONDS_MAX = 30.0
_STEPS_BETWEEN_LOOKS = 10_000  # of SQLite's machine

SERIES = """
CREATE TABLE series (
    job TEXT, job_name TEXT, user TEXT,
    metric TEXT, measurement TEXT, field TEXT, tags TEXT, kind TEXT,
    last, last_step INTEGER, min, min_step INTEGER, max, max_step INTEGER,
    points INTEGER, last_at REAL
)"""
POINTS = (
    "CREATE TABLE points (job TEXT, job_name TEXT, metric TEXT, step INTEGER, time REAL, value)"
)
_NAMED = ("measurement", "field", "kind", "last_step", "min_step", "max_step", "points", "last_at")
_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


class QueryResult(NamedTuple):
    columns: list[str]
    rows: list[tuple[Any, ...]]
    cut: bool  # there are more


def query(
    statement: str,
    jobs: Sequence[Record],
    curves: Sequence[Record],
    rows_max: int = ROWS_MAX,
    seconds_max: float = SECONDS_MAX,
) -> QueryResult:
    """Raises CommandError."""
    connection = sqlite3.connect(":memory:")
    _fill(connection, jobs, curves)
    until = time.monotonic() + seconds_max
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS_BETWEEN_LOOKS)
    connection.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
    )
    try:
        found = connection.execute(statement)
        rows = found.fetchmany(rows_max + 1)
    except sqlite3.Error as error:
        if time.monotonic() > until:
            raise CommandError(f"--sql took longer than {seconds_max:g} s", 1) from None
        why = str(error)
        if "not authorized" in why or "prohibited" in why:
            why = "only SELECT is possible, of the tables series and points"
        raise UsageError(f"--sql: {why}") from None
    if found.description is None:
        raise UsageError("--sql: this is no SELECT")
    columns = [column[0] for column in found.description]
    return QueryResult(columns, rows[:rows_max], len(rows) > rows_max)


def _fill(connection: sqlite3.Connection, jobs: Sequence[Record], curves: Sequence[Record]) -> None:
    names = {job["job"]: job["job_name"] for job in jobs}
    with connection:
        connection.execute(SERIES)
        connection.execute(POINTS)
        connection.executemany(
            "INSERT INTO series (job, job_name, user, metric, tags, last, min, max,"
            f" {', '.join(_NAMED)}) VALUES (?{', ?' * (7 + len(_NAMED))})",
            (
                (
                    *(job["job"], job["job_name"], job["user"]),
                    *(each["name"], tags_text(each["tags"])),
                    *(_number(each[name]) for name in ("last", "min", "max")),
                    *(each[name] for name in _NAMED),
                )
                for job in jobs
                for each in job["series"]
            ),
        )
        connection.executemany(
            "INSERT INTO points VALUES (?, ?, ?, ?, ?, ?)",
            (
                (curve["job"], names[curve["job"]], curve["name"], step, at, _number(value))
                for curve in curves
                for at, step, value in of_curve(curve)
            ),
        )


def _number(value: Any) -> Any:
    """SQLite has infinities, and NULL for NaN."""
    if value == "NaN":
        return None
    return float(value) if value in ("Infinity", "-Infinity") else value
