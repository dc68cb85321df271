"""The store of series: one folder, one thread that writes, and any number that read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from scheduler.gateway.series import series_file
from scheduler.gateway.series.intake import SentEntries, Taken, tags_of
from scheduler.gateway.series.limits import Retention, SeriesLimits
from scheduler.gateway.series.reading import (
    DTYPES,
    Artifact,
    JobRecord,
    Kind,
    Points,
    Series,
)
from scheduler.gateway.series.series_writer import SeriesWriter


class SeriesStore:
    """Implements SeriesReader."""

    def __init__(
        self,
        folder: Path,
        limits: SeriesLimits | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.folder, self.limits = folder, limits or SeriesLimits()
        self.retention = retention or Retention()
        self.is_open = False

    def open(self) -> SeriesStore:
        """Raises SeriesFileError."""
        path = self.folder / series_file.NAME
        self._connection = series_file.open_to_write(path)
        self._reading = series_file.ReadConnections(path)
        self._writer = SeriesWriter(self._connection, self.folder, self.limits, lambda _: False)
        self.is_open = True
        return self

    def close(self) -> None:
        """Takes in what was delivered."""
        if self.is_open:
            self.is_open = False
            self._writer.close()
            self._reading.close()
            self._connection.close()

    def __enter__(self) -> SeriesStore:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, delivery: SentEntries) -> Future[Taken]:
        """Raises TakenLater, as the future does."""
        return self._writer.deliver(delivery)

    # --- reading --------------------------------------------------------------------------------

    def series(
        self, jobs: Collection[str] | None = None, measurement: str | None = None
    ) -> list[Series]:
        wanted, values = [], list[str]()
        if jobs is not None:
            wanted.append("job IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(jobs)))
        if measurement is not None:
            wanted.append("measurement = ?")
            values.append(measurement)
        where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
        with self._reading.snapshot() as connection:
            rows = connection.execute(
                "SELECT id, job, attempt, measurement, field, kind, tags FROM series"
                f" {where} ORDER BY id",
                values,
            ).fetchall()
        return [
            Series(number, job, attempt, of, field, kind, tags_of(tags))
            for number, job, attempt, of, field, kind, tags in rows
        ]

    def points(
        self, series: Sequence[int], first_ns: int | None = None, last_ns: int | None = None
    ) -> dict[int, Points]:
        with self._reading.snapshot() as connection:
            return {each: _hot(connection, each, first_ns, last_ns) for each in series}

    def record(self, job: str) -> JobRecord:
        with self._reading.snapshot() as connection:
            pairs = connection.execute(
                "SELECT kind, key, value FROM pairs WHERE job = ? ORDER BY key", (job,)
            ).fetchall()
            troubles = connection.execute(
                "SELECT kind, reason, count FROM troubles WHERE job = ? ORDER BY reason", (job,)
            ).fetchall()
            artifacts = connection.execute(
                "SELECT path, size, sha256, at FROM artifacts WHERE job = ? ORDER BY path", (job,)
            ).fetchall()
            about = connection.execute(
                "SELECT description FROM jobs WHERE job = ?", (job,)
            ).fetchone()
        refused = {reason: count for kind, reason, count in troubles if kind == "refused"}
        for reason, count in self._writer.untold(job).items():
            refused[reason] = refused.get(reason, 0) + count
        return JobRecord(
            params={key: value for kind, key, value in pairs if kind == "params"},
            tags={key: value for kind, key, value in pairs if kind == "tags"},
            description=about[0] if about else "",
            artifacts=[Artifact(*row) for row in artifacts],
            refused=refused,
            lost={reason: count for kind, reason, count in troubles if kind == "lost"},
        )


def _hot(
    connection: sqlite3.Connection, series: int, first_ns: int | None, last_ns: int | None
) -> Points:
    (kind,) = connection.execute("SELECT kind FROM series WHERE id = ?", (series,)).fetchone()
    rows = connection.execute(
        "SELECT at, step, value FROM points WHERE series = ? AND at >= ? AND at < ?"
        " ORDER BY at, step",
        (series, _least(first_ns), _most(last_ns)),
    ).fetchall()
    return as_points(rows, kind)


def as_points(rows: Sequence[tuple[int, int, object]], kind: Kind) -> Points:
    times, steps, values = zip(*rows, strict=True) if rows else ((), (), ())
    told = np.empty(len(rows), DTYPES[kind])
    told[:] = [np.nan if each is None else each for each in values]
    return Points(np.array(times, np.int64), np.array(steps, np.int64), told)


def _least(first_ns: int | None) -> int:
    return -(2**63) if first_ns is None else max(first_ns, -(2**63))


def _most(last_ns: int | None) -> int:
    return 2**63 - 1 if last_ns is None else min(last_ns, 2**63 - 1)
