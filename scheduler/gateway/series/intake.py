"""What trainings log, taken in: each entry once, durable before it is acknowledged.

Theory of operation. Entries of a spool are numbered. How many were taken of a spool is written in
the transaction that takes them, so what is sent again, after whichever process was killed, counts
once. What is wrong is refused alone, and counted by its reason in the record of its job. A delivery
fails as a whole only if the disk does: then nothing of it is taken, and the relay sends it again.

Everything here runs in the one thread that writes (`series_writer.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.gateway.series import summaries
from scheduler.gateway.series.forward_queue import ForwardQueue
from scheduler.gateway.series.limits import SeriesLimits
from scheduler.gateway.series.line_parser import points_of
from scheduler.gateway.series.reading import NO_STEP, Kind
from scheduler.relay.entries import (
    ArtifactEntry,
    BadEntry,
    DescriptionEntry,
    Entry,
    LinesEntry,
    LoggedPoint,
    LossEntry,
    PairsEntry,
    PointsEntry,
    Tags,
    parse,
    shown,
)

NEXT_MAX = 2**62
CHUNK_POINTS = 32_768  # of a chunk, at most
REASONS_TOLD = 10
OTHER_REASONS = "other reasons"
MISSED = "taken before from this relay, and not in the store any more"
_JOBS_KNOWN, _SERIES_KNOWN = 1_000, 100_000  # are remembered

_KINDS: dict[type, Kind] = {float: "float", int: "integer", bool: "boolean", str: "string"}


@dataclass(frozen=True, slots=True)
class SentEntries:
    """Entries of one spool, from number `first` on, one in a line. Without a spool, they have no
    numbers, and count each time."""

    job: str
    attempt: int
    spool: str
    first: int
    content: bytes
    now: float


class Taken(NamedTuple):
    next: int  # all entries before it are durable
    refused: int  # points and entries
    reasons: list[str]  # some of them


@dataclass(slots=True)
class KnownSeries:
    id: int
    kind: Kind


@dataclass(slots=True)
class KnownJob:
    """What the database has of a job, or will have if the transaction succeeds."""

    series: dict[tuple[int, str, str, Tags], KnownSeries]
    points: int
    pairs: int


@dataclass(slots=True)
class Gathered:
    """What one delivery adds."""

    rows: list[summaries.Row] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


class HotPoints:
    """How many points of each series are not packed, roughly; and which have as many as a chunk."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.full: set[int] = set()

    def add(self, counts: Mapping[int, int]) -> None:
        for series, count in counts.items():
            total = self.counts[series] = self.counts.get(series, 0) + count
            if total >= CHUNK_POINTS:
                self.full.add(series)

    def remove(self, series: int, count: int, all_of_it: bool) -> None:
        left = self.counts.get(series, 0) - count
        if left < CHUNK_POINTS:
            self.full.discard(series)
        if all_of_it or left <= 0:
            self.counts.pop(series, None)
            self.full.discard(series)
        else:
            self.counts[series] = left


class Intake:
    def __init__(
        self,
        connection: sqlite3.Connection,
        limits: SeriesLimits,
        forwards: ForwardQueue | None = None,
    ) -> None:
        self._connection, self.limits, self._forwards = connection, limits, forwards
        self._jobs: OrderedDict[str, KnownJob] = OrderedDict()
        self.hot = HotPoints()

    def forget(self) -> None:
        """After a transaction that failed."""
        self._jobs.clear()

    def take(self, delivery: SentEntries) -> Taken:
        """Within a transaction of the caller."""
        job, gathered = self._job(delivery.job), Gathered()
        expected = self._expected(delivery)
        if delivery.spool and delivery.first > expected:
            gathered.lost[MISSED] += delivery.first - expected
        number = delivery.first
        for line in _lines(delivery.content):
            if number >= expected or not delivery.spool:
                self._take_line(delivery, job, line, gathered)
            number += 1
        self._write(delivery, job, gathered)
        self._remember(delivery, max(number, expected))
        told = list(gathered.refused)[:REASONS_TOLD]
        return Taken(max(number, expected), gathered.refused.total(), told)

    def count(self, job: str, kind: str, reasons: Counter[str]) -> None:
        """`kind`: refused or lost. Of reasons there are not more than can be read."""
        for reason, times in reasons.items():
            known = self._connection.execute(
                "UPDATE troubles SET count = count + ? WHERE job = ? AND kind = ? AND reason = ?",
                (times, job, kind, reason),
            ).rowcount
            if known:
                continue
            (there,) = self._connection.execute(
                "SELECT count(*) FROM troubles WHERE job = ?", (job,)
            ).fetchone()
            kept = reason if there < self.limits.reasons else OTHER_REASONS
            self._connection.execute(
                "INSERT INTO troubles VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET count = count + excluded.count",
                (job, kind, kept, times),
            )

    # --- spools ---------------------------------------------------------------------------------

    def _expected(self, delivery: SentEntries) -> int:
        row = self._connection.execute(
            "SELECT next FROM spools WHERE job = ? AND attempt = ? AND spool = ?",
            (delivery.job, delivery.attempt, delivery.spool),
        ).fetchone()
        return int(row[0]) if row else 0

    def _remember(self, delivery: SentEntries, number: int) -> None:
        if delivery.spool:
            self._connection.execute(
                "INSERT OR REPLACE INTO spools VALUES (?, ?, ?, ?)",
                (delivery.job, delivery.attempt, delivery.spool, number),
            )

    # --- entries --------------------------------------------------------------------------------

    def _take_line(
        self, delivery: SentEntries, job: KnownJob, line: bytes, gathered: Gathered
    ) -> None:
        try:
            entry = parse(line)
            if entry is not None:
                self._take_entry(delivery, job, entry, gathered)
        except BadEntry as error:
            gathered.refused[str(error)] += 1

    def _take_entry(
        self, delivery: SentEntries, job: KnownJob, entry: Entry, gathered: Gathered
    ) -> None:
        match entry:
            case PointsEntry():
                gathered.refused.update(entry.refused)
                self._take_points(delivery, job, entry.points, gathered)
            case LinesEntry():
                self._take_points(delivery, job, points_of(entry), gathered)
            case PairsEntry():
                self._take_pairs(delivery.job, job, entry)
            case DescriptionEntry():
                self._connection.execute(
                    "INSERT INTO jobs (job, description) VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET description = excluded.description",
                    (delivery.job, entry.text),
                )
            case ArtifactEntry():
                self._check_artifact(delivery.job, entry)
            case LossEntry():
                gathered.lost[entry.why or "its relay gives no reason"] += entry.entries

    def _take_points(
        self,
        delivery: SentEntries,
        job: KnownJob,
        points: Iterable[LoggedPoint | BadEntry],
        gathered: Gathered,
    ) -> None:
        latest = int((delivery.now + self.limits.ahead_seconds) * 1e9)
        for point in points:
            if isinstance(point, BadEntry):
                gathered.refused[str(point)] += 1
                continue
            try:
                if point.at_ns > latest:
                    raise BadEntry(
                        f"field {shown(point.field)}: its time is far ahead of the gateway's clock"
                    )
                gathered.rows.append(self._row(delivery, job, point))
            except BadEntry as error:
                gathered.refused[str(error)] += 1

    def _row(self, delivery: SentEntries, job: KnownJob, point: LoggedPoint) -> summaries.Row:
        if job.points >= self.limits.points:
            raise BadEntry(f"this job has logged {self.limits.points} points: no more are kept")
        key = (delivery.attempt, point.measurement, point.field, point.tags)
        value, kind = point.value, _KINDS[type(point.value)]
        series = job.series.get(key) or self._new_series(delivery, job, point, kind)
        if series.kind != kind:
            if series.kind == "float" and kind == "integer":
                value = float(value)
            elif series.kind == "integer" and kind == "float":
                self._widen(series)
            else:
                raise BadEntry(
                    f"field {shown(point.field)}: its value is a {kind}, and was a {series.kind}"
                )
        job.points += 1
        if value != value:  # NaN, which SQLite has not
            value = None  # type: ignore[assignment]
        return series.id, point.at_ns, NO_STEP if point.step is None else point.step, value

    def _new_series(
        self, delivery: SentEntries, job: KnownJob, point: LoggedPoint, kind: Kind
    ) -> KnownSeries:
        if len(job.series) >= self.limits.series:
            raise BadEntry(f"this job has {self.limits.series} series: no new ones are kept")
        made = self._connection.execute(
            "INSERT INTO series (job, attempt, measurement, field, tags, kind)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                *(delivery.job, delivery.attempt, point.measurement, point.field),
                *(json.dumps(point.tags, ensure_ascii=False), kind),
            ),
        )
        assert made.lastrowid is not None
        series = KnownSeries(made.lastrowid, kind)
        job.series[delivery.attempt, point.measurement, point.field, point.tags] = series
        return series

    def _widen(self, series: KnownSeries) -> None:
        """What was 1 and 2 goes on with 2.5."""
        self._connection.execute("UPDATE series SET kind = 'float' WHERE id = ?", (series.id,))
        series.kind = "float"

    def _take_pairs(self, job_id: str, job: KnownJob, entry: PairsEntry) -> None:
        for key, value in entry.pairs.items():
            known = self._connection.execute(
                "UPDATE pairs SET value = ? WHERE job = ? AND kind = ? AND key = ?",
                (value, job_id, entry.kind, key),
            ).rowcount
            if known:
                continue
            if job.pairs >= self.limits.pairs:
                raise BadEntry(f"this job has {self.limits.pairs} params and tags: no more")
            self._connection.execute(
                "INSERT INTO pairs VALUES (?, ?, ?, ?)", (job_id, entry.kind, key, value)
            )
            job.pairs += 1

    def _check_artifact(self, job_id: str, entry: ArtifactEntry) -> None:
        row = self._connection.execute(
            "SELECT 1 FROM artifacts WHERE job = ? AND path = ?", (job_id, entry.path)
        ).fetchone()
        if row is None:  # another SHA-256: it has been replaced since
            raise BadEntry(f"artifact {shown(entry.path)}: its bytes have not arrived")

    # --- rows -----------------------------------------------------------------------------------

    def _write(self, delivery: SentEntries, job: KnownJob, gathered: Gathered) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", gathered.rows
        )
        summaries.add(self._connection, gathered.rows)
        self.hot.add(Counter(row[0] for row in gathered.rows))
        if self._forwards:
            self._forwards.add(gathered.rows)
        self.count(delivery.job, "refused", gathered.refused)
        self.count(delivery.job, "lost", gathered.lost)
        if gathered.rows:
            self._connection.execute(
                "INSERT INTO jobs (job, points) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET points = excluded.points",
                (delivery.job, job.points),
            )

    def _job(self, job_id: str) -> KnownJob:
        known = self._jobs.get(job_id)
        if known is None:
            known = self._jobs[job_id] = self._read_job(job_id)
        self._jobs.move_to_end(job_id)
        remembered = sum(1 + len(each.series) for each in self._jobs.values())
        while len(self._jobs) > 1 and (remembered > _SERIES_KNOWN or len(self._jobs) > _JOBS_KNOWN):
            _, forgotten = self._jobs.popitem(last=False)
            remembered -= 1 + len(forgotten.series)
        return known

    def _read_job(self, job_id: str) -> KnownJob:
        series = {
            (attempt, measurement, name, tags_of(tags)): KnownSeries(number, kind)
            for number, attempt, measurement, name, tags, kind in self._connection.execute(
                "SELECT id, attempt, measurement, field, tags, kind FROM series WHERE job = ?",
                (job_id,),
            )
        }
        points = self._connection.execute(
            "SELECT points FROM jobs WHERE job = ?", (job_id,)
        ).fetchone()
        (pairs,) = self._connection.execute(
            "SELECT count(*) FROM pairs WHERE job = ?", (job_id,)
        ).fetchone()
        return KnownJob(series, points[0] if points else 0, pairs)


def tags_of(text: str) -> Tags:
    return tuple((key, value) for key, value in json.loads(text))


def _lines(content: bytes) -> Iterator[bytes]:
    """The last one may lack its end."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield content[start:end]
        start = end + 1
