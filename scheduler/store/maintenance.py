"""Regular chores that keep the database small and safe: backups, pruning, checkpoints.

No chore changes anything that a decision depends on, so none needs the loop. Only pruning writes
while the loop does: it deletes old stories in transactions of a few milliseconds, and SQLite lets
the two writers wait for each other (database.BUSY_SECONDS).
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from scheduler.core.model import Time
from scheduler.store import database

DAY_SECONDS = 86_400.0
COPY_PAGES = 1_000  # between two checks whether we must stop
DELETE_MAX = 1_000  # rows in a transaction
UNFINISHED = ".unfinished"

Failed = Callable[[str, Exception], None]


@dataclass(frozen=True, slots=True)
class Chore:
    name: str
    trigger: Any  # one of APScheduler's, which has no types
    work: Callable[[Event], object]  # the event is set when the chore must be abandoned


def chores(
    path: Path,
    *,
    backup_hour: int,
    backups_kept: int,
    facts_kept_days: int,
    journal_kept_days: int,
    checkpoint_every_seconds: float,
) -> tuple[Chore, ...]:
    """Returns the chores of a database, and when they are due. The hour is local time, in the time
    zone of the daemon's start."""
    night = CronTrigger(hour=backup_hour, timezone=datetime.now(UTC).astimezone().tzinfo)
    often = every(checkpoint_every_seconds)
    kept_seconds = facts_kept_days * DAY_SECONDS
    # If no journal is kept any more, nothing is added to the newest start either.
    journal_seconds = journal_kept_days * DAY_SECONDS or -math.inf
    return (
        Chore("backup", night, lambda stop: back_up(path, backups_kept, time.time(), stop)),
        Chore("prune", night, lambda stop: prune(path, time.time() - kept_seconds, stop)),
        Chore(
            "prune_journal",
            night,
            lambda stop: prune_journal(path, time.time() - journal_seconds, stop),
        ),
        Chore("checkpoint", often, lambda _: checkpoint(path)),
    )


def every(seconds: float) -> Any:
    """The trigger of a chore."""
    return IntervalTrigger(seconds=seconds, timezone=UTC)


class Maintenance:
    """Does chores in a separate thread, one at a time. A failure is reported, and the chore is
    tried again at its next time."""

    def __init__(self, chores: Iterable[Chore], failed: Failed) -> None:
        self._failed = failed
        self._stopping = Event()
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        for chore in chores:
            self._scheduler.add_job(self._do, chore.trigger, (chore,), id=chore.name)

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        """Returns soon: the present chore is abandoned and leaves nothing behind."""
        self._stopping.set()
        self._scheduler.remove_all_jobs()  # a chore that is just due would find the store closed
        self._scheduler.shutdown(wait=True)

    def _do(self, chore: Chore) -> None:
        try:
            chore.work(self._stopping)
        except Exception as error:  # noqa: BLE001 - a thread's entry point
            if not self._stopping.is_set():
                self._failed(chore.name, error)


class BackupAbandoned(Exception):
    """The daemon stops before the backup is complete."""


def back_up(path: Path, kept: int, at: Time, stopping: Event) -> Path:
    """Writes a verified copy with the time in its name, and removes all but the newest copies."""
    folder = path.parent / database.BACKUPS
    copy = folder / f"{path.stem}-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}.db"
    with database.translate_errors(copy):
        folder.mkdir(mode=0o700, exist_ok=True)
        for left in folder.glob(f"*{UNFINISHED}"):  # of a daemon that was killed
            left.unlink()
        write_copy(path, copy, stopping)
        # This copy counts as the newest, even if the clock was set since the others were made.
        others = sorted(set(folder.glob(f"{path.stem}-*.db")) - {copy}, reverse=True)
        for old in others[kept - 1 :]:
            old.unlink()
    return copy


def write_copy(path: Path, copy: Path, stopping: Event) -> None:
    """Writes a verified copy, which only its owner can read, whole or not at all."""
    unfinished = copy.with_name(f"{copy.stem}{UNFINISHED}")
    with database.translate_errors(copy):
        try:
            _copy(path, unfinished, stopping)
            _verify(unfinished, path, stopping)
            unfinished.replace(copy)
        finally:
            unfinished.unlink(missing_ok=True)
        database.sync_folder(copy.parent)


def prune(path: Path, before: Time, stopping: Event) -> int:
    """Deletes the stories and profiles of jobs that ended before this time. The jobs stay."""
    with database.translate_errors(path), closing(database.connect(path)) as db:
        db.execute(
            "pragma synchronous = normal"
        )  # rows that reappear after a crash are deleted next time
        return _prune_facts(db, before, stopping) + _prune_profiles(db, before, stopping)


def prune_journal(path: Path, before: Time, stopping: Event) -> int:
    """Deletes each start that another one followed before this time, with all its steps: a replay
    needs both. The newest start ends at infinity."""
    with database.translate_errors(path), closing(database.connect(path)) as db:
        db.execute("pragma synchronous = normal")
        return sum(_delete_start(db, start, stopping) for start in _starts_over(db, before))


def checkpoint(path: Path) -> None:
    """Empties the write-ahead log, or leaves it for the next time if readers block it."""
    with database.translate_errors(path), closing(database.connect(path)) as db:
        db.execute("pragma busy_timeout = 100")  # the loop must not wait for long
        # The first does most of the work without blocking the loop; little is left for the second.
        db.execute("pragma wal_checkpoint(passive)").fetchone()
        db.execute("pragma wal_checkpoint(truncate)").fetchone()


def _copy(source: Path, target: Path, stopping: Event) -> None:
    def look(*_: int) -> None:
        if stopping.is_set():
            raise BackupAbandoned

    target.unlink(missing_ok=True)
    target.touch(mode=0o600, exist_ok=False)
    with closing(database.connect_readonly(source)) as db, closing(sqlite3.connect(target)) as copy:
        copy.execute("pragma journal_mode = off")
        copy.execute("pragma synchronous = off")  # it is synced before it gets its final name
        with database.translate_errors(source):
            db.execute("begin")
            db.execute(
                "select count(*) from sqlite_schema"
            ).fetchone()  # from now on it is one snapshot
        db.backup(copy, pages=COPY_PAGES, progress=look)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _verify(copy: Path, source: Path, stopping: Event) -> None:
    uri = f"{copy.absolute().as_uri()}?mode=ro&immutable=1"  # leaves no files beside it
    with database.translate_errors(source), closing(sqlite3.connect(uri, uri=True)) as db:
        db.set_progress_handler(stopping.is_set, 10_000)
        fault = database.run_check(db, "integrity_check(1)")
    if fault:
        raise database.damage_error(
            source, f"a copy of it is damaged ({fault}), so the original is too"
        )


def _prune_facts(db: sqlite3.Connection, before: Time, stopping: Event) -> int:
    """Also deletes old facts about no job, and about jobs that the database does not know."""
    page = """
        select facts.seq, facts.at < :before as old,
            jobs.seq is null or coalesce(jobs.ended_at < :before, false) as over,
            facts.seq = (select max(seq) from facts) as newest
        from facts left join jobs on jobs.id = facts.job_id
        where facts.seq > :last order by facts.seq limit :most
    """
    deleted, last = 0, 0
    while not stopping.is_set():
        found = db.execute(page, {"before": before, "last": last, "most": DELETE_MAX}).fetchall()
        if not found or not found[0][1]:  # they are in the order of time
            break
        last = found[-1][0]
        # The newest one stays, so that no later fact gets a number that others had.
        due = [(seq,) for seq, old, over, newest in found if old and over and not newest]
        deleted += _delete(db, "delete from facts where seq = ?", due)
    return deleted


def _prune_profiles(db: sqlite3.Connection, before: Time, stopping: Event) -> int:
    due = db.execute(
        "select id from jobs where outcome is not null and ended_at < ?"
        " and exists (select 1 from profiles where job_id = jobs.id)",
        (before,),
    ).fetchall()
    deleted = 0
    for job_id in due:
        if stopping.is_set():
            break
        deleted += _delete(db, "delete from profiles where job_id = ?", [job_id])
    return deleted


def _starts_over(db: sqlite3.Connection, before: Time) -> list[int]:
    found = db.execute("select start, at from starts order by start").fetchall()
    return [
        start for (start, _), (_, over_at) in pairwise([*found, (0, math.inf)]) if over_at <= before
    ]


def _delete_start(db: sqlite3.Connection, start: int, stopping: Event) -> int:
    """Deletes the steps, the last ones first, and then the start: if this is abandoned, the rest is
    still a complete journal."""
    deleted = 0
    while not stopping.is_set():
        page = "select start, number from steps where start = ? order by number desc limit ?"
        due = db.execute(page, (start, DELETE_MAX)).fetchall()
        if not due:
            _delete(db, "delete from starts where start = ?", [(start,)])
            break
        deleted += _delete(db, "delete from steps where start = ? and number = ?", due)
    return deleted


def _delete(db: sqlite3.Connection, sql: str, due: list[tuple[Any, ...]]) -> int:
    if not due:
        return 0
    db.execute("begin immediate")
    deleted = db.executemany(sql, due).rowcount
    db.execute("commit")
    return deleted
