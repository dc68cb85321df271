"""A damaged database is refused in one line, or one row is set aside and the rest served."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from scheduler.core.errors import ConfigError
from scheduler.core.invariants import check_job
from scheduler.core.model import (
    Fact,
    Job,
    JobFamily,
    JobId,
    JobSpec,
    Outcome,
    Profile,
    Run,
    RunPhase,
    Share,
    Used,
    View,
)
from scheduler.core.ports import Step
from scheduler.store.reader import Query, Reader
from scheduler.store.writer import SqliteStore

SECRET = "kept-to-themselves"
FLIPS = int(os.environ.get("FLIPS", "50"))  # databases with a few flipped bytes


def job(number: int) -> Job:
    spec = JobSpec(f"n{number}", "ada", env=(("KEY", SECRET),), args=("x" * 300,), max_epochs=5)
    made = replace(Job.submitted(JobId(f"job-{number}"), spec, 1.0 + number), epochs_done=2)
    if number % 3 == 0:
        run = Run(1, (Share("n", "gpu0", 1000),), RunPhase.RUNNING, 2.0, 2.5, 5)
        return replace(made, run=run, attempts=1)
    if number % 3 == 1:
        return replace(made, outcome=Outcome.FAILED, ended_at=9.0, reason="exit code 1")
    return made


JOBS = {made.id: made for made in map(job, range(60))}
LIVE = {made.id: made for made in JOBS.values() if made.outcome is None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.db"
    facts = [Fact(1.0, "job_submitted", job_id, data={"user": "ada"}) for job_id in JOBS]
    profiles = [Profile(job_id, 1, 1, beside=(JobId("job-2"),)) for job_id in JOBS]
    learned = {f"family {number}": JobFamily() for number in range(9)}
    after = View(jobs=JOBS, kinds=learned, used={"ada": Used(1.0, 2.0)})
    with closing(SqliteStore(path)) as store:
        store.commit(Step(View(), after, tuple(JOBS), facts, profiles, 1.0))
    return path


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, check_job=check_job)


def damage(path: Path, column: str, value: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("pragma ignore_check_constraints = on")
        db.execute(f"update jobs set {column} = ? where id = 'job-3'", (value,))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("spec", '{"name": "n", "env": [["KEY", "kept-to-themselves"]'),
        ("spec", "[" * 100_000),
        ("spec", "{}"),
        ("run", "17"),
        ("run", '{"attempt": 9}'),
        ("failures", '[["luck", 1]]'),
        ("epochs_done", 6),
        ("attempts", 7),
    ],
)
def test_a_damaged_job_fails_and_says_so_and_all_others_are_served(
    path: Path, column: str, value: object
) -> None:
    damage(path, column, value)
    with structlog.testing.capture_logs() as said, closing(opened(path)) as store:
        assert store.load().jobs == {id: one for id, one in LIVE.items() if id != "job-3"}
    (line,) = said
    assert (line["event"], line["job_id"]) == ("row_set_aside", "job-3")
    assert SECRET not in str(line)
    with closing(Reader(path)) as reader:
        (found,) = reader.find_by_id("job-3")
        assert (found.outcome, found.spec.user, found.spec.name) == (Outcome.FAILED, "ada", "n3")
        assert "its row in the database is damaged" in found.reason
        assert reader.story(found.id)[-1].kind == "job_failed"
    with structlog.testing.capture_logs() as said, closing(SqliteStore(path)) as store:
        assert store.load().jobs.keys() == LIVE.keys() - {"job-3"}
    assert said == [], "it is set aside once"
    with closing(sqlite3.connect(path)) as db:
        assert len(db.execute("select data from damaged").fetchall()) == 1, "nothing is thrown away"


def test_text_that_is_no_text_is_not_quoted(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b'"env":[["KEY"', content.index(b"job-3"))
    path.write_bytes(content[: at + 2] + b"\xff" + content[at + 3 :])
    with structlog.testing.capture_logs() as said, closing(SqliteStore(path)) as store:
        assert len(store.load().jobs) >= len(LIVE) - 1
    assert SECRET not in str(said)


def test_an_ended_job_that_cannot_be_read_does_not_hide_the_others(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update jobs set spec = '{' where id = 'job-1'")
    ended = len(JOBS) - len(LIVE)
    with closing(Reader(path)) as reader:
        found, total = reader.jobs(Query(limit=100))
        assert (len(found), total) == (ended - 1, ended)
        assert reader.job(JobId("job-1")) is None
        assert reader.existing_ids([JobId("job-1")]), "its run is not one of an unknown job"


def test_what_cannot_be_read_of_what_was_learned_is_forgotten(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update learned set data = '[[[' where name = 'family 3'")
    with closing(SqliteStore(path)) as store:
        view = store.load()
    assert (view.jobs.keys(), len(view.kinds)) == (LIVE.keys(), 8)


@pytest.mark.parametrize("seed", range(FLIPS))
def test_flipped_bytes_are_refused_in_one_line_or_harm_no_other_job(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    content = bytearray(path.read_bytes())
    flips = dice.choice((1, 1, 3))
    for _ in range(flips):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    try:
        harmed = use(path)
    except ConfigError as error:
        said = str(error)
        if "\n" in said or SECRET in said:
            raise
    else:
        assert len(harmed) <= flips, harmed


def use(path: Path) -> list[JobId]:
    """As a daemon does. Returns the jobs that are not as they were."""
    with closing(opened(path)) as store, closing(Reader(path)) as reader:
        view = store.load()
        more = replace(job(99), id=JobId("job-99"))
        after = replace(view, jobs={**view.jobs, more.id: more})
        store.commit(Step(view, after, [more.id], [], [], 1.0))
        assert reader.job(more.id) == more
        reader.jobs(Query(limit=100))
        for job_id in JOBS:
            reader.story(job_id)
            reader.profiles(job_id, 9)
        return [id for id in LIVE if view.jobs.get(id) != LIVE[id]]
