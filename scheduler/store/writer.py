"""The writer: writes what the loop has decided, one transaction for each step.

Rows are the truth, facts are the story; both are written together. Reading is in reader.py.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from pathlib import Path

import msgspec
import structlog

from scheduler.core import sweeps
from scheduler.core.counts import Counts
from scheduler.core.errors import InvariantError
from scheduler.core.model import Fact, Job, JobId, Profile, View
from scheduler.core.ports import Step
from scheduler.store import database, day_usage, journal, rows
from scheduler.store.journal import Decider, Journal

log = structlog.get_logger("scheduler.store.writer")


def _insert(table: str, columns: Sequence[str], conflict: str = "") -> str:
    marks = ",".join("?" * len(columns))
    return f"insert into {table} ({', '.join(columns)}) values ({marks}) {conflict}"


def _update_live_job(columns: Sequence[str]) -> str:
    values = ", ".join(f"{column} = ?" for column in columns)
    return f"update jobs set {values} where id = ? and outcome is null"


_JOB_WRITTEN = (*rows.JOB_FIXED, *rows.JOB_SEARCHED, *rows.JOB_STATE, rows.JOB_END)
_LOAD = f"""
    select seq, user, name, {", ".join(rows.JOB)} from jobs where outcome is null order by seq
"""
_LOAD_LEARNED = f"select {', '.join(rows.LEARNED)} from learned order by about, name"
# The sweeps of the newest jobs that have a rule, the newest sweep first.
_RECENT_SWEEPS = """
    select user, value from labels join jobs using (seq)
    where key = ? and seq > (select max(seq) from jobs) - ? and spec glob '*"prune":"[a-z]*'
    group by user, value order by max(seq) desc limit ?
"""
# What all jobs of a sweep have reported, in the order of their submission.
_LOAD_SCORES = """
    select epoch, id, score from labels join jobs using (seq) join profiles on job_id = id
    where key = ? and value = ? and user = ? and rank = 0 and score is not null
    order by seq, attempt, epoch
"""
_SET_ASIDE = _insert("damaged", ("at", "data"))
_FAIL_JOB = f"""
    update jobs set {", ".join(f"{column} = ?" for column in _JOB_WRITTEN)} where seq = ?
"""
_FORGET_LEARNED = "delete from learned where about = ? and name = ?"
_NEW_JOB = _insert("jobs", _JOB_WRITTEN)
_LABEL = _insert("labels", ("key", "value", "seq"), "on conflict do nothing")
# An outcome never changes. While a job lives, its outcome is not even assigned: SQLite would then
# update each index that depends on it.
_CHANGE_JOB = _update_live_job(rows.JOB_STATE)
_END_JOB = _update_live_job((*rows.JOB_STATE, rows.JOB_END))
_PROFILE = _insert(
    "profiles", rows.PROFILE_WRITTEN, "on conflict do nothing"
)  # sent twice, stored once
_LEARNED = _insert("learned", rows.LEARNED, "on conflict do update set data = excluded.data")
_FACT = _insert("facts", rows.FACT)
_USAGE = _insert(
    "usage",
    day_usage.COLUMNS,
    "on conflict do update set gpu_seconds = gpu_seconds + excluded.gpu_seconds,"
    " run_seconds = run_seconds + excluded.run_seconds, runs = runs + excluded.runs",
)
_COUNT = _insert("counts", rows.COUNT, "on conflict do update set value = value + excluded.value")
_LOAD_START = "select coalesce(max(start), 0) from starts"
_START = _insert("starts", journal.START)
_STEP = _insert("steps", journal.STEP)


# Of ended jobs, a start reads what sweeps of so many of the newest jobs have reported, and not much
# more than so many scores: 0.2 s.
RECENT_JOBS, RECENT_SCORES = 10_000, 100_000


class SqliteStore:
    """A database in a file, or in memory for the simulator. For one thread at a time."""

    def __init__(
        self,
        path: Path | None = None,
        before_write: Callable[[], None] = lambda: None,
        decider: Decider | None = None,
        check_job: Callable[[Job], None] = lambda job: None,
        count: Callable[[Step, Sequence[Profile]], Counts] = lambda step, stored: {},
    ) -> None:
        """`before_write` is called before each commit, and before each statement that writes what
        decisions depend on: tests let it fail.

        `decider`: its steps are kept in the journal for replays; None: no journal is kept.

        `check_job` raises InvariantError for a job that contradicts itself. The first step that
        changes it would end the daemon, so such a row counts as damaged.

        `count` returns by how much the counts grow with a step; see core/counts.py.
        """
        self._path = path
        self._before_write = before_write
        self._decider = decider
        self._check_job = check_job
        self._count = count
        self._journal: Journal | None = None
        self._db = database.open_or_create(path) if path else database.open_in_memory()

    def load(self) -> View:
        with database.translate_errors(self._path):
            found = self._db.execute(_LOAD).fetchall()
            learned = self._db.execute(_LOAD_LEARNED).fetchall()
            (start,) = self._db.execute(_LOAD_START).fetchone()
            self._journal = Journal(self._decider, start) if self._decider else None
            jobs: dict[JobId, Job] = {}
            for seq, user, name, *columns in found:
                try:
                    job = self._read_job(row := tuple(columns))
                    jobs[job.id] = job
                except rows.DamagedRowError as error:
                    self._fail_damaged(seq, rows.rescued_job(row, user, name, time.time()), row)
                    log.error("row_set_aside", job_id=error.job_id, column=error.column)
            kinds, used, damaged = rows.read_learned(learned)
            for row in damaged:
                self._set_aside(row, _FORGET_LEARNED, row[:2])
                log.error("row_set_aside", column="learned.data")
            return View(jobs=jobs, kinds=kinds, used=used, scores=self._load_scores(jobs.values()))

    def _load_scores(self, jobs: Iterable[Job]) -> dict[str, sweeps.Scores]:
        """Of the sweeps that prune: those of these jobs, and the newest others, so that a job that
        is submitted to one of them later is compared as if this daemon had never been away."""
        specs = [job.spec for job in jobs if job.spec.prune and sweeps.sweep_of(job.spec)]
        live = [(of.user, sweeps.sweep_of(of).removeprefix(f"{of.user}/")) for of in specs]
        asked = sweeps.LABEL, RECENT_JOBS, sweeps.KEPT
        recent = self._db.execute(_RECENT_SWEEPS, asked).fetchall()
        found: dict[str, sweeps.Scores] = {}
        left = RECENT_SCORES
        for user, name in dict.fromkeys([*live, *recent]):
            sweep, is_over = f"{user}/{name}", (user, name) not in live
            if is_over and (left <= 0 or len(found) >= sweeps.KEPT):
                break
            read = self._db.execute(_LOAD_SCORES, (sweeps.LABEL, name, user)).fetchall()
            left -= len(read) * is_over
            if read:
                found[sweep] = rows.read_scores(read)
        return dict(reversed(found.items()))  # the one that was silent for longest comes first

    def _read_job(self, row: rows.Row) -> Job:
        job = rows.job(row)
        try:
            self._check_job(job)
        except InvariantError:  # its text quotes the job
            raise rows.DamagedRowError(row, "values that contradict each other") from None
        return job

    def _fail_damaged(self, seq: int, job: Job, row: rows.Row) -> None:
        reason: dict[str, str | int | float | bool | None] = {
            "reason": job.reason,
            "epochs_done": job.epochs_done,
        }
        fact = Fact(job.ended_at or 0.0, "job_failed", job.id, job.attempts or None, reason)
        values = (*rows.job_fixed(job), *rows.job_state(job), job.outcome)
        self._set_aside(row, _FAIL_JOB, (*values, seq))
        self._db.execute(_FACT, rows.fact_row(fact))

    def _set_aside(self, row: rows.Row, mend: str, values: rows.Row) -> None:
        """Keeps a damaged row as it is, where nothing reads it."""
        self._db.execute("begin immediate")
        data = msgspec.msgpack.encode([repr(value) for value in row])
        self._db.execute(_SET_ASIDE, (time.time(), data))
        self._db.execute(mend, values)
        self._db.execute("commit")

    def commit(self, step: Step) -> None:
        before = step.before
        changed = rows.changed_jobs(before, step.after, step.touched)
        learned = rows.learned_rows(before, step.after)
        steps = self._journal
        if steps:
            steps = steps.with_step(step, changed)
        if not (changed or step.facts or step.profiles or learned or (steps and steps.full)):
            self._journal = steps
            return
        with database.translate_errors(self._path):
            self._write("begin immediate")
            try:
                for job, state in changed:
                    if job.id in before.jobs:
                        self._update_job(job, state)
                    else:
                        self._insert_job(job, state)
                stored = [profile for profile in step.profiles if self._insert_profile(profile)]
                for row in learned:
                    self._write(_LEARNED, row)
                for fact in step.facts:
                    self._write(_FACT, rows.fact_row(fact))
                for used in day_usage.ended(before, step.after, step.touched, step.at):
                    self._write(_USAGE, astuple(used))
                counts = self._count(step, stored)
                self._db.executemany(_COUNT, [(*key, value) for key, value in counts.items()])
                if steps:
                    self._db.executemany(_START, steps.starts)
                    self._db.executemany(_STEP, steps.steps)
                self._write("commit")
            except BaseException:
                if (
                    self._db.in_transaction
                ):  # SQLite itself ends the transaction when the disk is full
                    self._db.execute("rollback")
                raise
        self._journal = steps and steps.emptied()

    def content(self) -> bytes:
        """The whole database, as the content of a file."""
        return self._db.serialize()

    def close(self) -> None:
        self._db.close()

    def _insert_job(self, job: Job, state: rows.Row) -> None:
        row = (*rows.job_fixed(job), *state, job.outcome)
        seq = self._write(_NEW_JOB, row).lastrowid
        for key, value in job.spec.labels:
            self._write(_LABEL, (key, value, seq))

    def _insert_profile(self, profile: Profile) -> bool:
        """Returns whether it was not there before."""
        return self._write(_PROFILE, rows.profile_row(profile)).rowcount == 1

    def _update_job(self, job: Job, state: rows.Row) -> None:
        if job.outcome is None:
            written = self._write(_CHANGE_JOB, (*state, job.id))
        else:
            written = self._write(_END_JOB, (*state, job.outcome, job.id))
        if written.rowcount != 1:
            raise InvariantError(f"job {job.id}: it has ended, or never existed, and cannot change")

    def _write(self, sql: str, row: rows.Row = ()) -> sqlite3.Cursor:
        self._before_write()
        return self._db.execute(sql, row)
