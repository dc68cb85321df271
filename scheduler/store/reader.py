"""The reader: queries for threads other than the loop's. Nothing is written here.

Live jobs are best read from the loop's view; ended jobs, stories and profiles are here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from scheduler.core.counts import Count
from scheduler.core.model import Fact, Job, JobId, Outcome, Profile, Time
from scheduler.store import database, rows
from scheduler.store.day_usage import COLUMNS as USAGE_COLUMNS
from scheduler.store.day_usage import KEYS as USAGE_KEYS
from scheduler.store.day_usage import DayUsage, of_run, total

MATCHES_MAX = 20

_Value = TypeVar("_Value")

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
NUMBER = "select seq from jobs where id = ?"
LIVE_NUMBERS = "select id, seq from jobs where outcome is null"
ANY_VALUE = "*"  # of a label that is looked for; no label has it
_LABELLED = "seq in (select seq from labels where key = ? and value = ?)"
_LABELLED_ANYHOW = "seq in (select seq from labels where key = ?)"
# Each part reads one index and no row.
_FOUND = """seq in (
    select seq from jobs indexed by jobs_ended_by_name
    where outcome is not null and instr(lower(name), ?)
    union all select seq from jobs indexed by jobs_ended
    where outcome is not null
    and (instr(lower(user), ?) or instr(lower(project), ?) or instr(lower(experiment), ?))
    union all select seq from jobs indexed by jobs_by_end_of_id where instr(id_reversed, ?)
)"""
STORY = f"select seq, {', '.join(rows.FACT)} from facts where job_id = ? order by seq"
FACTS = f"select seq, {', '.join(rows.FACT)} from facts where seq > ? order by seq limit ?"
FACT_NUMBERS = "select (select min(seq) from facts), (select max(seq) from facts)"
PROFILES = f"""
    select {", ".join(rows.PROFILE)} from profiles where job_id = ?
    order by attempt desc, epoch desc, rank limit ?
"""
SCORES = """
    select epoch, score from profiles where job_id = ? and rank = 0 and score is not null
    order by epoch, attempt
"""
COUNTS = f"select {', '.join(rows.COUNT)} from counts"
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


# What jobs may be ordered by, and the column of ended jobs. Equal ones are in the order of their
# submission.
ORDERS = {
    "submitted": "seq",
    "name": "name",
    "user": "user",
    "project": "project",
    "experiment": "experiment",
    "state": "case outcome when 'cancelled' then 'CANCELED' when 'failed' then 'FAILED'"
    " when 'skipped' then 'SKIPPED' else 'FINISHED' end",
    "priority": "priority",
}
RUNS = "select user, project, run from jobs where outcome is null and run is not null"
_COUNTED_SINCE = (
    "select unixepoch(applied_at) from _sqlite_migrations where name = 'what_runs_used_by_day'"
)


@dataclass(frozen=True, slots=True)
class Query:
    """Selects ended jobs. Every given condition must hold; empty fields match all jobs."""

    users: tuple[str, ...] = ()
    project: str = ""
    experiment: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    limit: int = 20
    search: str = ""  # in lower case
    order: str = "submitted"  # of ORDERS
    ascending: bool = False
    after: tuple[str | int, int] | None = None  # only what comes after this value and number


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
        """Returns ended jobs in the order asked for, newest first if none is, up to the limit, and
        the total number of matches."""
        page, count, values = listing_sql(query)
        with self._snapshot() as db:
            found = db.execute(page, (*values, *_after(query), query.limit)).fetchall()
            (matches,) = db.execute(count, values).fetchone()
        return list(_readable(rows.job, found)), matches

    def numbers(self, job_ids: Iterable[JobId]) -> dict[JobId, int]:
        """Returns the numbers of jobs in the order of their submission."""
        with self._snapshot() as db:
            found = ((job_id, db.execute(NUMBER, (job_id,)).fetchone()) for job_id in job_ids)
            return {job_id: row[0] for job_id, row in found if row}

    def live_numbers(self) -> dict[JobId, int]:
        """The same of all live jobs."""
        with self._snapshot() as db:
            return dict(db.execute(LIVE_NUMBERS).fetchall())

    def users(self) -> list[str]:
        """All users who have or had jobs, in the order of their first jobs."""
        with self._snapshot() as db:
            return [user for (user,) in db.execute(USERS)]

    def story(self, job_id: JobId) -> list[Fact]:
        """Oldest first."""
        return [fact for _, fact in self.numbered_story(job_id)]

    def numbered_story(self, job_id: JobId) -> list[tuple[int, Fact]]:
        """The same, each fact with its number."""
        with self._snapshot() as db:
            found = db.execute(STORY, (job_id,)).fetchall()
        return list(_readable(_numbered_fact, found))

    def fact_numbers(self) -> tuple[int, int]:
        """Returns the numbers of the oldest and the newest fact; 0: there is none."""
        with self._snapshot() as db:
            oldest, newest = db.execute(FACT_NUMBERS).fetchone()
        return oldest or 0, newest or 0

    def facts(self, after: int, limit: int) -> tuple[list[tuple[int, Fact]], list[int]]:
        """Returns the oldest facts after this number, each with its number, and the numbers of all
        that were read: those of damaged facts too."""
        with self._snapshot() as db:
            found = db.execute(FACTS, (after, limit)).fetchall()
        return list(_readable(_numbered_fact, found)), [row[0] for row in found]

    def usage(
        self,
        first: int,
        last: int,
        now: Time,
        user: str = "",
        project: str = "",
        by: Collection[str] = USAGE_KEYS,
    ) -> list[DayUsage]:
        """What runs have used from day `first` to day `last`, the newest day first: a sum for each
        of `by`."""
        sql, values = usage_sql(first, last, user, project, by)
        with self._snapshot() as db:
            parts = [DayUsage(*row) for row in db.execute(sql, values)]
            running = db.execute(RUNS).fetchall()
        for whose, of, text in running:
            if user in ("", whose) and project in ("", of):
                for run in _readable(rows.run, [text]):
                    used = of_run(run, whose, of, now)
                    parts += (part for part in used if first <= part.day <= last)
        return total(parts, by)

    def usage_since(self) -> Time:
        """Returns since when it is written what runs use."""
        with self._snapshot() as db:
            row = db.execute(_COUNTED_SINCE).fetchone()
        return float(row[0]) if row else 0.0

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

    def scores(self, job_ids: Iterable[JobId]) -> dict[JobId, list[tuple[int, float]]]:
        """Returns the scores of each job after its epochs."""
        with self._snapshot() as db:
            return {job_id: db.execute(SCORES, (job_id,)).fetchall() for job_id in job_ids}

    def counts(self) -> dict[Count, float]:
        """Returns all that was ever counted; see core/counts.py."""
        with self._snapshot() as db:
            found = db.execute(COUNTS).fetchall()
        return {(name, label): value for name, label, value in found}

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


def _readable(convert: Callable[[Any], _Value], found: Sequence[Any]) -> Iterator[_Value]:
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
    if query.search:
        need(_FOUND, *[query.search] * 4, query.search[::-1])
    if query.outcomes:
        need(_in_clause("outcome", query.outcomes), *query.outcomes)
    if query.project:
        need("project = ?", query.project)
    if query.experiment:
        need("experiment = ?", query.experiment)
    for key, value in query.labels:
        if value == ANY_VALUE:
            need(_LABELLED_ANYHOW, key)
        else:
            need(_LABELLED, key, value)
    index = "jobs_ended_by_user" if len(query.users) == 1 else "jobs_ended"
    if query.order == "name" and not query.users:
        index = "jobs_ended_by_name"
    source = f"from jobs indexed by {index} where {' and '.join(conditions)}"
    return _page_sql(query, source), f"select count(*) {source}", values


def _page_sql(query: Query, source: str) -> str:
    """The query that lists; its values are followed by those of `_after` and the limit. Rows are
    read when it is known which: sorting them would read all of them."""
    column = ORDERS[query.order]
    way, beyond = ("asc", ">") if query.ascending else ("desc", "<")
    order = f"order by seq {way}" if column == "seq" else f"order by {column} {way}, seq {way}"
    if query.after:
        source += (
            f" and seq {beyond} ?" if column == "seq" else f" and ({column}, seq) {beyond} (?, ?)"
        )
    if column == "seq":
        return f"select {_JOB} {source} {order} limit ?"
    return f"select {_JOB} from jobs where seq in (select seq {source} {order} limit ?) {order}"


def _after(query: Query) -> Sequence[object]:
    if query.after is None:
        return ()
    return query.after[1:] if query.order == "submitted" else query.after


def usage_sql(
    first: int, last: int, user: str, project: str, by: Collection[str] = USAGE_KEYS
) -> tuple[str, Sequence[object]]:
    wanted = {"user": user, "project": project}
    given = {column: value for column, value in wanted.items() if value}
    conditions = " and ".join(["day between ? and ?", *(f"{column} = ?" for column in given)])
    sums = [f"sum({column})" for column in USAGE_COLUMNS if column not in USAGE_KEYS]
    keys = [key if key in by else f"min({key})" for key in USAGE_KEYS]  # of the others, any
    chosen, group = [*keys, *sums], f"group by {', '.join(by)}" if by else ""
    if set(by) == set(USAGE_KEYS):  # each row of the table is a group
        chosen, group = [*USAGE_COLUMNS], ""
    parameters = (first, last, *given.values())
    return f"select {', '.join(chosen)} from usage where {conditions} {group}", parameters


def _numbered_fact(row: rows.Row) -> tuple[int, Fact]:
    return row[0], rows.fact(row[1:])


def _in_clause(column: str, wanted: Sequence[str]) -> str:
    return f"{column} in ({','.join('?' * len(wanted))})"
