from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from queue import Queue
from threading import Event

import pytest
from apscheduler.triggers.date import DateTrigger

from scheduler.core.errors import ConfigError
from scheduler.core.model import Fact, Job, JobId, JobSpec, Outcome, Profile, Rules, View
from scheduler.core.ports import Step
from scheduler.daemon.config import MaintenanceSettings as Settings
from scheduler.store import database
from scheduler.store.journal import Decider
from scheduler.store.maintenance import (
    DELETE_MAX,
    BackupAbandoned,
    Chore,
    Maintenance,
    back_up,
    checkpoint,
    chores,
    prune,
    prune_journal,
)
from scheduler.store.reader import Reader
from scheduler.store.writer import SqliteStore

HANGS_SECONDS = 30.0
NEVER = Event()
AT = 1_700_000_000.0  # 14 November 2023


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as store:
        yield store


def job(number: int, ended_at: float | None = None) -> Job:
    made = Job(JobId(f"job-{number}"), JobSpec(name="n", user="u"), submitted_at=1.0)
    if ended_at is None:
        return made
    return replace(made, outcome=Outcome.SUCCEEDED, ended_at=ended_at)


def add(store: SqliteStore, *jobs: Job, facts: int = 1, at: float = 1.0) -> None:
    """Jobs with this number of facts each, and as many profiles."""
    told = [Fact(at, "told", job.id, n) for job in jobs for n in range(facts)]
    measured = [Profile(job.id, 1, n) for job in jobs for n in range(facts)]
    after = View(jobs={job.id: job for job in jobs})
    store.commit(Step(View(), after, tuple(after.jobs), told, measured, at))


def jobs_in(path: Path) -> list[Job]:
    with closing(SqliteStore(path)) as store:
        return list(store.load().jobs.values())


# --- backups --------------------------------------------------------------------------------------


def chores_of(path: Path, settings: Settings) -> dict[str, Chore]:
    """As the daemon chooses them: other settings are of other chores."""
    keys = signature(chores).parameters
    wanted = {key: each for key, each in asdict(settings).items() if key in keys}
    return {chore.name: chore for chore in chores(path, **wanted)}


def test_a_backup_holds_what_was_committed_also_what_is_only_in_the_log(
    path: Path, store: SqliteStore
) -> None:
    add(store, job(1))
    copy = back_up(path, 7, AT, NEVER)
    add(store, job(2))
    assert copy == path.parent / "backups" / "scheduler-20231114T221320Z.db"
    assert [file.name for file in copy.parent.iterdir()] == [copy.name]
    assert copy.stat().st_mode & 0o077 == 0
    assert jobs_in(copy) == [job(1)]


def test_a_damaged_database_is_replaced_by_its_backup_as_the_message_says(
    path: Path, store: SqliteStore
) -> None:
    add(store, job(1))
    copy = back_up(path, 7, AT, NEVER)
    add(store, job(2))
    store.close()
    path.write_bytes(b"nothing that one could read")
    with pytest.raises(ConfigError, match=str(copy.parent)):
        SqliteStore(path)
    for file in path.parent.glob("scheduler.db*"):
        file.rename(file.with_name(f"damaged-{file.name}"))
    shutil.copy(copy, path)
    assert jobs_in(path) == [job(1)]


def test_the_newest_backups_are_kept(path: Path, store: SqliteStore) -> None:
    made = [back_up(path, 3, AT + 86_400.0 * day, NEVER) for day in range(5)]
    assert sorted(made[0].parent.iterdir()) == made[2:]


@pytest.mark.parametrize("kept", [1, 2])
def test_a_clock_that_was_wrong_does_not_cost_the_newest_backup(
    path: Path, store: SqliteStore, kept: int
) -> None:
    for day in (1000, 1001, 1002):
        back_up(path, 3, AT + 86_400.0 * day, NEVER)
    copy = back_up(path, kept, AT, NEVER)
    assert copy.exists()
    assert len(list(copy.parent.iterdir())) == kept


def test_what_a_killed_daemon_left_of_a_backup_is_removed(path: Path, store: SqliteStore) -> None:
    left = path.parent / "backups" / "scheduler-20200101T000000Z.unfinished"
    left.parent.mkdir()
    left.write_bytes(b"half of it")
    copy = back_up(path, 7, AT, NEVER)
    assert list(copy.parent.iterdir()) == [copy]


def test_a_backup_of_a_damaged_database_fails_and_keeps_the_good_ones(
    path: Path, store: SqliteStore
) -> None:
    add(store, job(1), facts=1000)
    good = back_up(path, 1, AT, NEVER)
    store.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 8192)
    with pytest.raises(ConfigError, match=f"{path}: .*backups"):
        back_up(path, 1, AT + 1.0, NEVER)
    assert list(good.parent.iterdir()) == [good]


def test_a_backup_ends_when_the_daemon_does(path: Path, store: SqliteStore) -> None:
    add(store, job(1))
    stopping = Event()
    stopping.set()
    with pytest.raises(BackupAbandoned):
        back_up(path, 7, AT, stopping)
    assert list((path.parent / "backups").iterdir()) == []


def test_jobs_are_committed_while_a_backup_is_made(path: Path, store: SqliteStore) -> None:
    add(store, job(0), facts=10_000)
    copies: list[Path] = []
    backup = threading.Thread(target=lambda: copies.append(back_up(path, 7, AT, NEVER)))
    backup.start()
    number = 0
    while backup.is_alive():
        number += 1
        add(store, job(number))
    assert len(store.load().jobs) == number + 1
    found = jobs_in(copies[0])
    assert found == [job(n) for n in range(len(found))], "a moment between two steps"


# --- pruning --------------------------------------------------------------------------------------


def test_only_old_stories_of_ended_jobs_are_pruned(path: Path, store: SqliteStore) -> None:
    live, old, fresh, stranger = job(1), job(2, ended_at=50.0), job(3, ended_at=200.0), job(4)
    add(store, live, old, fresh, facts=2, at=10.0)
    elsewhere = [Fact(10.0, "told", stranger.id), Fact(10.0, "node_seen")]
    store.commit(Step(View(), View(), [], elsewhere, [], 10.0))
    recent = Fact(150.0, "told", stranger.id)
    store.commit(Step(View(), View(), [], [recent], [], 150.0))

    assert prune(path, 100.0, NEVER) == 2 + 2 + 2  # old's facts, the two elsewhere, its profiles
    with closing(Reader(path)) as reader:
        kept = {
            it.id: (len(reader.story(it.id)), len(reader.profiles(it.id, 9)))
            for it in (live, old, fresh, stranger)
        }
        assert kept == {live.id: (2, 2), old.id: (0, 0), fresh.id: (2, 2), stranger.id: (1, 0)}
        assert reader.job(old.id) == old
    assert prune(path, 100.0, NEVER) == 0


def test_pruning_goes_on_past_what_it_keeps(path: Path, store: SqliteStore) -> None:
    add(store, job(1), facts=DELETE_MAX + 1)
    add(store, job(2, ended_at=2.0), facts=DELETE_MAX + 1)
    add(store, job(3))
    assert prune(path, 100.0, NEVER) == 2 * (DELETE_MAX + 1)


def test_no_fact_gets_the_number_of_a_pruned_one(path: Path, store: SqliteStore) -> None:
    add(store, job(1, ended_at=2.0), facts=3)
    prune(path, 100.0, NEVER)
    with closing(Reader(path)) as reader:
        assert reader.fact_numbers() == (3, 3)
        add(store, job(2, ended_at=2.0))
        assert reader.fact_numbers() == (3, 4)
        prune(path, 100.0, NEVER)
        assert reader.fact_numbers() == (4, 4)


def test_pruning_ends_when_the_daemon_does(path: Path, store: SqliteStore) -> None:
    add(store, job(1, ended_at=2.0))
    stopping = Event()
    stopping.set()
    assert prune(path, 100.0, stopping) == 0


def test_jobs_are_committed_while_stories_are_pruned(path: Path, store: SqliteStore) -> None:
    add(store, *(job(n, ended_at=2.0) for n in range(200)), facts=20)
    add(store, job(200))
    pruned: list[int] = []
    pruning = threading.Thread(target=lambda: pruned.append(prune(path, 100.0, NEVER)))
    pruning.start()
    number = 201
    while pruning.is_alive():
        add(store, job(number))
        number += 1
    assert pruned == [200 * 20 * 2]
    assert len(store.load().jobs) == number - 200


DECIDER = Decider("fifo_sharing", Rules())


def record(path: Path, steps: int, at: float) -> None:
    """A daemon that starts at this time, and takes this number of steps."""
    with closing(SqliteStore(path, decider=DECIDER)) as store:
        view = store.load()
        for number in range(steps):
            one = replace(job(int(at) + number), submitted_at=at)
            after = View(number + 1, jobs={one.id: one})
            store.commit(Step(view, after, [one.id], [], [], at))
            view = View(number + 1)


def recorded(path: Path) -> list[tuple[int, int]]:
    """How many steps there are of each start."""
    with closing(database.connect_readonly(path)) as db:
        return db.execute(
            "select start, (select count(*) from steps where steps.start = starts.start)"
            " from starts order by start"
        ).fetchall()


def test_the_journal_is_pruned_by_whole_starts_and_never_the_newest(path: Path) -> None:
    for at in (100.0, 200.0, 300.0):
        record(path, 3, at)
    assert prune_journal(path, 200.0, NEVER) == 3, "the first was over at 200"
    assert recorded(path) == [(2, 3), (3, 3)]
    assert prune_journal(path, 1e9, NEVER) == 3
    assert recorded(path) == [(3, 3)]
    record(path, 1, 400.0)
    assert recorded(path) == [(3, 3), (4, 1)], "numbers are not given again"


def test_pruning_of_the_journal_ends_when_the_daemon_does(path: Path) -> None:
    record(path, 3, 100.0)
    record(path, 3, 200.0)
    stopping = Event()
    stopping.set()
    assert prune_journal(path, 1e9, stopping) == 0
    assert recorded(path) == [(1, 3), (2, 3)]


def test_a_journal_that_is_no_longer_kept_goes_as_a_whole(path: Path) -> None:
    record(path, DELETE_MAX + 1, 100.0)
    for days, left in ((1, [(1, DELETE_MAX + 1)]), (0, [])):
        settings = Settings(journal_kept_days=days)
        found = chores_of(path, settings)
        found["prune_journal"].work(NEVER)
        assert recorded(path) == left


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_empties_the_log(path: Path, store: SqliteStore) -> None:
    add(store, job(1))
    log = path.with_name("scheduler.db-wal")
    assert log.stat().st_size > 0
    checkpoint(path)
    assert log.stat().st_size == 0
    assert list(store.load().jobs.values()) == [job(1)]


def test_a_reader_in_the_way_of_a_checkpoint_is_no_trouble(path: Path, store: SqliteStore) -> None:
    add(store, job(1))
    with closing(database.connect_readonly(path)) as db:
        db.execute("begin")
        assert db.execute("select count(*) from jobs").fetchone() == (1,)
        add(store, job(2))
        checkpoint(path)
        assert db.execute("select count(*) from jobs").fetchone() == (1,)
    assert len(store.load().jobs) == 2


# --- by the clock ---------------------------------------------------------------------------------


def now() -> DateTrigger:
    return DateTrigger()


def test_what_is_due_is_done_and_a_failure_is_told_and_stops_nothing(
    path: Path, store: SqliteStore
) -> None:
    add(store, job(1))
    done: Queue[Path] = Queue()
    failed: Queue[tuple[str, Exception]] = Queue()
    nowhere = path.with_name("nowhere.db")
    housekeeping = Maintenance(
        [
            Chore("hopeless", now(), lambda _: checkpoint(nowhere)),
            Chore("backup", now(), lambda stop: done.put(back_up(path, 7, AT, stop))),
        ],
        lambda name, error: failed.put((name, error)),
    )
    housekeeping.start()
    try:
        name, error = failed.get(timeout=HANGS_SECONDS)
        assert (name, type(error)) == ("hopeless", ConfigError)
        assert jobs_in(done.get(timeout=HANGS_SECONDS)) == [job(1)]
    finally:
        housekeeping.stop()
    assert failed.empty()


def test_stopping_gives_up_what_is_being_done_and_complains_of_nothing() -> None:
    begun, failed = Event(), Event()

    def work(stopping: Event) -> None:
        begun.set()
        assert stopping.wait(HANGS_SECONDS)
        raise sqlite3.OperationalError("interrupted")

    housekeeping = Maintenance([Chore("long", now(), work)], lambda *_: failed.set())
    housekeeping.start()
    assert begun.wait(HANGS_SECONDS)
    housekeeping.stop()
    assert not failed.is_set()


def test_the_settings_say_when_and_how_much(path: Path, store: SqliteStore) -> None:
    settings = Settings(backup_hour=5, backups_kept=1, checkpoint_every_seconds=60.0)
    found = chores_of(path, settings)
    assert "hour='5'" in str(found["backup"].trigger)
    assert "hour='5'" in str(found["prune"].trigger)
    assert "hour='5'" in str(found["prune_journal"].trigger)
    assert "0:01:00" in str(found["checkpoint"].trigger)
    add(store, job(2, ended_at=2.0))
    add(store, job(1))
    for chore in found.values():
        chore.work(NEVER)
    with closing(Reader(path)) as reader:
        assert len(reader.story(job(1).id)) == 1
        assert reader.story(job(2).id) == []
    assert len(list((path.parent / "backups").iterdir())) == 1
    assert path.with_name("scheduler.db-wal").stat().st_size == 0
