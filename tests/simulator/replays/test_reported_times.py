"""The times in reports that are not learned: pauses, starts, and whole runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.core.model import JobId
from simulator.replays.recorded_jobs import read_recorded_cluster
from simulator.replays.reported_times import RunConditions, read_reported_times
from tests.simulator.little import Plain, job
from tests.simulator.replays.test_what_if import record

JOB = JobId("job-00000")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A job's five epochs of 100 s, after 20 s of its run."""
    record(tmp_path / "scheduler.db", [job("a", epochs=5, truth=Plain(seconds=100.0))])
    return tmp_path / "scheduler.db"


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


def put_off(db: sqlite3.Connection) -> None:
    """Changes the reports: a pause of 7 s after each epoch, and 3 s to exit."""
    db.execute("update profiles set at = at + 7 * (epoch - 1)")
    db.execute(
        "update facts set data = json_set(data, '$.seconds', data ->> '$.seconds' + 31)"
        " where kind = 'run_ended'"
    )


def test_a_run_is_told_apart_into_epochs_pauses_and_the_rest(db: sqlite3.Connection) -> None:
    told = read_reported_times(db, -1.0)
    assert told.pauses[JOB] == pytest.approx(0.0, abs=0.01)
    assert told.besides_epochs == pytest.approx(20.0, abs=0.01)
    put_off(db)
    told = read_reported_times(db, -1.0)
    assert told.pauses[JOB] == pytest.approx(7.0, abs=0.01)
    assert told.besides_epochs == pytest.approx(23.0, abs=0.01)
    (situation,) = told.situations[JOB]
    assert situation == RunConditions("t4x1", (), 5, situation.seconds)
    assert situation.seconds == pytest.approx(500.0)


@pytest.mark.parametrize(
    "spoilt",
    [
        "update profiles set epoch_seconds = 1e9 where epoch = 1",
        "delete from profiles where epoch = 3",
        "delete from facts where kind = 'run_ended'",
    ],
)
def test_what_is_absurd_or_missing_says_nothing_of_a_run(
    db: sqlite3.Connection, spoilt: str
) -> None:
    db.execute(spoilt)
    told = read_reported_times(db, -1.0)
    assert (told.pauses, told.besides_epochs) == ({}, None)


def test_a_trace_of_what_was_recorded_has_its_pauses_and_what_runs_took_besides(
    path: Path, db: sqlite3.Connection
) -> None:
    put_off(db)
    here = read_recorded_cluster(path)
    (wish,) = here.trace
    assert wish.truth.epoch_seconds("t4", 1, 1) == pytest.approx(107.0, abs=0.1)
    assert here.restart_seconds == pytest.approx(23.0, abs=0.1)


def test_epochs_that_took_longer_than_was_learned_make_all_of_a_job_slower(
    path: Path, db: sqlite3.Connection
) -> None:
    """Changes the reports: epochs that began beside one neighbour and ended beside another."""
    db.execute("update profiles set epoch_seconds = 150, at = at + 50 * epoch")
    db.execute(
        "update facts set data = json_set(data, '$.seconds', data ->> '$.seconds' + 250)"
        " where kind = 'run_ended'"
    )
    (wish,) = read_recorded_cluster(path).trace
    assert wish.truth.epoch_seconds("t4", 1, 1) == pytest.approx(150.0, abs=0.1)
