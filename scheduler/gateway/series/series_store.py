"""The store of series: one folder, one thread that writes, and any number that read."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scheduler.gateway.series import forward_queue, series_file, summaries
from scheduler.gateway.series.artifact_files import ArtifactFiles, HalfArtifact
from scheduler.gateway.series.chunk_format import unpack
from scheduler.gateway.series.forward_queue import ForwardQueue, QueuedPoint
from scheduler.gateway.series.intake import Intake, SentEntries, Taken, tags_of
from scheduler.gateway.series.limits import Retention, SeriesLimits
from scheduler.gateway.series.packer import Packer, as_kind, as_points
from scheduler.gateway.series.reading import (
    Artifact,
    Int64s,
    JobRecord,
    Kind,
    Minutes,
    Points,
    Series,
    joined,
)
from scheduler.gateway.series.series_writer import SeriesWriter, TakenLater
from scheduler.gateway.series.summaries import JobSummary
from scheduler.gateway.series.thinning import (
    minutes_of,
    regrouped,
    replaced,
    unpack_minutes,
)


class SeriesStore:
    """Implements MinutesReader."""

    def __init__(
        self,
        folder: Path,
        limits: SeriesLimits | None = None,
        retention: Retention | None = None,
        forwards: ForwardQueue | None = None,
    ) -> None:
        """`forwards`: what is taken in is queued there as well."""
        self.folder, self.limits, self._forwards = folder, limits or SeriesLimits(), forwards
        self.retention = retention or Retention()
        self.is_open = False

    def open(self) -> SeriesStore:
        """Raises SeriesFileError."""
        path = self.folder / series_file.NAME
        self._connection = series_file.open_to_write(path)
        self._reading = series_file.ReadConnections(path)
        if self._forwards:
            self._forwards.open(self._connection)
        intake = Intake(self._connection, self.limits, self._forwards)
        self._hot: Mapping[int, int] = intake.hot.counts
        self._packer = Packer(self._connection, self.retention, intake)
        self._artifacts = ArtifactFiles(self.folder, self._connection, self.limits)
        self._writer = SeriesWriter(self._connection, self.folder, intake, self._packer)
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

    # --- what is sent on ------------------------------------------------------------------------

    def unforwarded(self, most: int) -> list[QueuedPoint]:
        with self._reading.snapshot() as connection:
            return forward_queue.read(connection, most)

    def forwarded(self, last: QueuedPoint) -> None:
        """It, and all before it. Raises TakenLater."""
        assert self._forwards
        self._writer.submit(partial(self._forwards.forget, last.id)).result()

    # --- artifacts ------------------------------------------------------------------------------

    def receive_artifact(self, job: str, size: int) -> HalfArtifact:
        """Raises TakenLater."""
        self._writer.check_room(job, size)
        try:
            return self._artifacts.receive(job)
        except OSError as error:
            raise TakenLater(f"no artifact can be written: {error}") from error

    def keep_artifact(self, job: str, path: str, half: HalfArtifact) -> None:
        """It is on disk then. Raises BadEntry, TakenLater."""
        try:
            half.finish()
            keep = partial(self._artifacts.keep, job, path, half, time.time())
            self._writer.submit(keep).result()
            self._writer.submit(partial(self._artifacts.remove_unused, job)).result()
        except OSError as error:
            raise TakenLater(f"no artifact can be written: {error}") from error
        finally:
            half.discard()

    def artifact(self, job: str, path: str) -> tuple[Artifact, Path] | None:
        with self._reading.snapshot() as connection:
            row = connection.execute(
                "SELECT path, size, sha256, at FROM artifacts WHERE job = ? AND path = ?",
                (job, path),
            ).fetchone()
        return (Artifact(*row), self._artifacts.file(job, row[2])) if row else None

    # --- reading --------------------------------------------------------------------------------

    def tidy(self, now: float) -> None:
        """Packs and thins out what is old enough, at once: for tests, and for measurements."""

        def all_of_it() -> None:
            self._packer.look(now)
            while self._packer.step(now):
                pass

        self._writer.submit(all_of_it).result()

    def jobs(self) -> set[str]:
        with self._reading.snapshot() as connection:
            return {job for (job,) in connection.execute("SELECT DISTINCT job FROM series")}

    def measurements(self, jobs: Collection[str] | None = None) -> list[str]:
        where = "" if jobs is None else "WHERE job IN (SELECT value FROM json_each(?))"
        values = [] if jobs is None else [json.dumps(sorted(jobs))]
        with self._reading.snapshot() as connection:
            found = connection.execute(f"SELECT DISTINCT measurement FROM series {where}", values)
            return sorted(name for (name,) in found)

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
            found = [_found(connection, each, first_ns, last_ns) for each in series]
        return {each.series: each.points(first_ns, last_ns) for each in found}

    def pieces(
        self, series: int, first_ns: int | None = None, last_ns: int | None = None
    ) -> Iterator[Points]:
        """What `points` has of one series, in parts that follow each other: for more points than
        should be in memory at once."""
        with self._reading.snapshot() as connection:
            kind, chunks, hot = _query(connection, series, first_ns, last_ns)
            late: list[StoredChunk] = []
            for chunk in chunks:
                if late or (len(hot) and chunk.last >= int(hot.times[0])):
                    late.append(chunk)
                else:
                    yield within(_unpacked(chunk, kind), first_ns, last_ns)
            yield FoundSeries(series, kind, late, hot).points(first_ns, last_ns)

    def count(self, series: Sequence[int], first_ns: int, last_ns: int) -> int:
        with self._reading.snapshot() as connection:
            (packed,) = connection.execute(
                "SELECT coalesce(sum(points), 0) FROM json_each(?) JOIN chunks ON series = value"
                " AND last >= ? AND first < ?",
                (json.dumps(list(series)), max(first_ns, -(2**63)), min(last_ns, 2**63 - 1)),
            ).fetchone()
        return int(packed) + sum(self._hot.get(each, 0) for each in series)

    def minutes(
        self, series: Sequence[int], first_ns: int | None = None, last_ns: int | None = None
    ) -> dict[int, Minutes]:
        with self._reading.snapshot() as connection:
            found = [_found(connection, each, first_ns, last_ns) for each in series]
        return {each.series: each.minutes(first_ns, last_ns) for each in found}

    def summaries(self, jobs: Collection[str]) -> dict[str, JobSummary]:
        """Of each of these jobs, also if it has told nothing. Reads no points."""
        with self._reading.snapshot() as connection:
            return summaries.read(connection, jobs)

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


class StoredChunk(NamedTuple):
    first: int
    last: int
    content: bytes
    minutes: bytes | None
    seconds: int


class FoundSeries(NamedTuple):
    """What the file has of one series and a span of time. Unpacked outside of the snapshot."""

    series: int
    kind: Kind
    chunks: list[StoredChunk]  # in order, without overlap
    hot: Points

    def points(self, first_ns: int | None, last_ns: int | None) -> Points:
        parts = [within(_unpacked(chunk, self.kind), first_ns, last_ns) for chunk in self.chunks]
        parts = [part for part in parts if len(part)]
        if not parts:
            return self.hot
        return replaced(joined(parts), self.hot) if self._overlap() else joined([*parts, self.hot])

    def minutes(self, first_ns: int | None, last_ns: int | None) -> Minutes:
        """Reads a chunk only where nothing is known of its minutes, or where a point that is not
        yet packed may replace one of its."""
        known: list[Minutes | None] = []
        read: list[Points] = []
        overlap = self._overlap()
        for chunk in self.chunks:
            if chunk.minutes is None or (overlap and not self._is_before(chunk)):
                read.append(_unpacked(chunk, self.kind))
                continue
            if read:
                known.append(minutes_of(within(joined(read), first_ns, last_ns)))
                read = []
            known.append(minutes_within(unpack_minutes(chunk.minutes), first_ns, last_ns))
        rest = replaced(joined(read), self.hot) if read else self.hot
        known.append(minutes_of(within(rest, first_ns, last_ns)))
        return regrouped([each for each in known if each is not None])

    def _overlap(self) -> bool:
        return bool(len(self.hot) and self.chunks and not self._is_before(self.chunks[-1]))

    def _is_before(self, chunk: StoredChunk) -> bool:
        return chunk.last < int(self.hot.times[0])


def _unpacked(chunk: StoredChunk, kind: Kind) -> Points:
    return as_kind(unpack(chunk.content)[0], kind)


def _found(
    connection: sqlite3.Connection, series: int, first_ns: int | None, last_ns: int | None
) -> FoundSeries:
    kind, chunks, hot = _query(connection, series, first_ns, last_ns)
    return FoundSeries(series, kind, list(chunks), hot)


def _query(
    connection: sqlite3.Connection, series: int, first_ns: int | None, last_ns: int | None
) -> tuple[Kind, Iterator[StoredChunk], Points]:
    """Chunks are read as they are taken."""
    least = -(2**63) if first_ns is None else max(first_ns, -(2**63))
    most = 2**63 - 1 if last_ns is None else min(last_ns, 2**63 - 1)
    row = connection.execute("SELECT kind FROM series WHERE id = ?", (series,)).fetchone()
    kind: Kind = row[0] if row else "float"
    chunks = connection.execute(
        "SELECT first, last, content, minutes, seconds FROM chunks"
        " WHERE series = ? AND last >= ? AND first < ? ORDER BY first",
        (series, least, most),
    )
    hot = connection.execute(
        "SELECT at, step, value FROM points WHERE series = ? AND at >= ? AND at < ?"
        " ORDER BY at, step",
        (series, least, most),
    ).fetchall()
    return kind, (StoredChunk(*each) for each in chunks), as_points(hot, kind)


def within(points: Points, first_ns: int | None, last_ns: int | None) -> Points:
    start, end = _span(points.times, first_ns, last_ns)
    if (start, end) == (0, len(points)):
        return points
    return points.chosen(slice(start, end))


def minutes_within(minutes: Minutes, first_ns: int | None, last_ns: int | None) -> Minutes:
    start, end = _span(minutes.starts, first_ns, last_ns)
    return Minutes(*(getattr(minutes, field.name)[start:end] for field in fields(Minutes)))


def _span(times: Int64s, first_ns: int | None, last_ns: int | None) -> tuple[int, int]:
    start = 0 if first_ns is None else int(np.searchsorted(times, first_ns))
    return start, len(times) if last_ns is None else int(np.searchsorted(times, last_ns))
