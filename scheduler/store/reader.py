"""The reader: queries for threads other than the loop's. Nothing is written here.

Live jobs are best read from the loop's view; ended jobs, stories and profiles are here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from scheduler.core.model import Fact, Job, JobId, Outcome, Profile
from scheduler.store import database, rows

MATCHES_MAX = 20

_Value = TypeVar("_Value", Job, Fact, Profile)

log = structlog.get_logger("scheduler.store.reader")

_JOB = ", ".join(rows.JOB)
# Each uses an index (see migrations.py): a test checks SQLite's query plans.
EXISTS = "select 1 from jobs where id = ?"
BY_ID = f"select {_JOB} from jobs where id = ?"
MATCHING = f"""
    select {_JOB} from jobs where seq in (
        select seq from jobs where id_reversed between ? and ? order by seq desc limit ?
    ) order by seq desc
"""
ENDED_NAMED = f"""
    select {_JOB} from jobs where outcome is not null and name = ? order by seq desc limit ?
"""
_LABELLED = "seq in (select seq from labels where key = ? and value = ?)"
STORY = f"select {', '.join(rows.FACT)} from facts where job_id = ? order by seq"
PROFILES = f"""
    select {", ".join(rows.PROFILE)} from profiles where job_id = ?
    order by attempt desc, epoch desc, rank limit ?
"""
# Each step finds the next name in the index, however many jobs a user has.
_ENDED_USERS = """
    with recursive ended (user) as (
        select min(user) from jobs where outcome is not null
        union all
        select (select min(user) from jobs where outcome is not null and user > ended.user)
        from ended where user is not null
    )
"""
USERS = f"""{_ENDED_USERS}
    select user from (
        select user, (
            select min(seq) from jobs where outcome is not null and user = ended.user
        ) as first from ended where user is not null
        union all
        select user, seq from jobs where outcome is null
    ) group by user order by min(first)
"""


@dataclass(frozen=True, slots=True)
class Query:
    """Selects ended jobs. Every given condition must hold; empty fields match all jobs."""

    users: tuple[str, ...] = ()
    project: str = ""
    experiment: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    limit: int = 20


class Reader:
    """For any thread. Each answer comes from one read-only connection and one snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # As many connections as have ever been in use at the same time. They are not kept per
        # thread, because threads end without notice.
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    def job(self, job_id: JobId) -> Job | None:
        with self._snapshot() as db:
            found = db.execute(BY_ID, (job_id,)).fetchone()
        return next(_readable(rows.job, [found]), None) if found else None

    def existing_ids(self, job_ids: Iterable[JobId]) -> set[JobId]:
        """Returns the ids of jobs that exist or existed."""
        with self._snapshot() as db:
            return {job_id for job_id in job_ids if db.execute(EXISTS, (job_id,)).fetchone()}

    def find_by_id(self, ref: str) -> list[Job]:
        """Returns the job with this id, else the jobs with ids that end in it: newest first, at
        most 20."""
        if not ref:
            return []
        first = ref[::-1]
        last = first + chr(0x10FFFF)
        with self._snapshot() as db:
            found = db.execute(BY_ID, (ref,)).fetchall()
            if not found:
                found = db.execute(MATCHING, (first, last, MATCHES_MAX)).fetchall()
        return list(_readable(rows.job, found))

    def find_ended(self, name: str) -> list[Job]:
        """Newest first, at most 20."""
        with self._snapshot() as db:
            found = db.execute(ENDED_NAMED, (name, MATCHES_MAX)).fetchall()
        return list(_readable(rows.job, found))

    def jobs(self, query: Query) -> tuple[list[Job], int]:
        """Returns ended jobs, newest first, up to the limit, and the total number of matches."""
        page, count, values = listing_sql(query)
        with self._snapshot() as db:
            found = db.execute(page, (*values, query.limit)).fetchall()
            (total,) = db.execute(count, values).fetchone()
        return list(_readable(rows.job, found)), total

    def users(self) -> list[str]:
        """All users who have or had jobs, in the order of their first jobs."""
        with self._snapshot() as db:
            return [user for (user,) in db.execute(USERS)]

    def story(self, job_id: JobId) -> list[Fact]:
        """Oldest first."""
        with self._snapshot() as db:
            found = db.execute(STORY, (job_id,)).fetchall()
        return list(_readable(rows.fact, found))

    def profiles(self, job_id: JobId, limit: int) -> list[Profile]:
        """Newest first."""
        with self._snapshot() as db:
            found = db.execute(PROFILES, (job_id, limit)).fetchall()
        return list(_readable(rows.profile, found))

    def newest_epoch(self, job_ids: Iterable[JobId]) -> dict[JobId, Profile]:
        """Returns the newest profile of each job that has any."""
        newest: dict[JobId, Profile] = {}
        with self._snapshot() as db:
            for job_id in job_ids:
                found = db.execute(PROFILES, (job_id, 1)).fetchone()
                for profile in _readable(rows.profile, [found] if found else []):
                    newest[job_id] = profile
        return newest

    def close(self) -> None:
        """Connections in use are closed after their present query."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        with database.translate_errors(self._path):
            db = self._borrow()
            try:
                db.execute("begin")
                yield db
                db.execute("commit")
            except BaseException:
                db.close()
                raise
        self._idle.append(db)
        if self._closed:
            self.close()

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return database.connect_readonly(self._path)


def _readable(convert: Callable[[rows.Row], _Value], found: list[rows.Row]) -> Iterator[_Value]:
    """Yields what can be read. Of an ended job nothing but its display depends on the rest."""
    for row in found:
        try:
            yield convert(row)
        except (rows.DamagedRowError, *rows.UNREADABLE) as error:
            told = str(error) if isinstance(error, rows.DamagedRowError) else convert.__name__
            log.warning("row_not_read", row=told)


def listing_sql(query: Query) -> tuple[str, str, Sequence[object]]:
    """Returns the query that lists, the query that counts, and the values for both. The index has
    the order of the jobs and all columns of the conditions: to count jobs, no row is read."""
    conditions = ["outcome is not null"]
    values: list[object] = []

    def need(condition: str, *given: object) -> None:
        conditions.append(condition)
        values.extend(given)

    if query.users:
        need(_in_clause("user", query.users), *query.users)
    if query.outcomes:
        need(_in_clause("outcome", query.outcomes), *query.outcomes)
    if query.project:
        need("project = ?", query.project)
    if query.experiment:
        need("experiment = ?", query.experiment)
    for label in query.labels:
        need(_LABELLED, *label)
    index = "jobs_ended_by_user" if len(query.users) == 1 else "jobs_ended"
    source = f"from jobs indexed by {index} where {' and '.join(conditions)}"
    page = f"select {_JOB} {source} order by seq desc limit ?"
    return page, f"select count(*) {source}", values


def _in_clause(column: str, wanted: Sequence[str]) -> str:
    return f"{column} in ({','.join('?' * len(wanted))})"
