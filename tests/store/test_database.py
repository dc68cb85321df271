from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations

from scheduler.core.errors import ConfigError, InvariantError, Unavailable
from scheduler.core.model import Job, JobId, JobSpec, View
from scheduler.core.ports import Step
from scheduler.store import database, rows
from scheduler.store.migrations import migrations
from scheduler.store.writer import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.db"


@pytest.fixture
def filled(path: Path) -> Path:
    """Some hundred pages, all of them in the file itself."""
    jobs = {
        job.id: job
        for job in (
            Job(JobId(f"job-{n}"), JobSpec(name="n", user="u", args=("x" * 200,)), submitted_at=1.0)
            for n in range(1000)
        )
    }
    with closing(SqliteStore(path)) as store:
        store.commit(Step(View(), View(jobs=jobs), tuple(jobs), [], [], 1.0))
    return path


def load(path: Path) -> View:
    with closing(SqliteStore(path)) as store:
        return store.load()


def refusal(path: Path) -> str:
    """Why this is no database to work with, in one line; and the file stays as it is."""
    content = path.read_bytes() if path.exists() else None
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert content == (path.read_bytes() if path.exists() else None)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line


# --- making ---------------------------------------------------------------------------------------


def test_a_new_file_is_strict_and_safe(path: Path) -> None:
    with closing(database.open_or_create(path)) as db:
        assert db.execute("pragma journal_mode").fetchone() == ("wal",)
        assert db.execute("pragma synchronous").fetchone() == (2,)  # FULL
        assert db.execute("pragma foreign_keys").fetchone() == (1,)
        loose = "select name from pragma_table_list where schema = 'main' and not strict"
        names = {name for (name,) in db.execute(loose)}
        assert {name for name in names if not name.startswith(("sqlite_", "_sqlite_"))} == set()


def test_what_a_killed_daemon_left_half_made_is_no_obstacle(path: Path) -> None:
    path.with_name("scheduler.db.new").write_bytes(b"SQLite format 3\0 and then no more")
    database.open_or_create(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["scheduler.db"]


def test_opening_it_again_changes_nothing(filled: Path) -> None:
    content = filled.read_bytes()
    database.open_or_create(filled).close()
    assert filled.read_bytes() == content


# --- refusing -------------------------------------------------------------------------------------


def test_a_text_file_is_refused(path: Path) -> None:
    path.write_text("jobs: none\n" * 1000)
    assert f"the newest file of {path.parent / 'backups'}" in refusal(path)


def test_an_empty_file_is_refused(path: Path) -> None:
    path.touch()
    assert "empty" in refusal(path)


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table jobs (salary integer)")
    assert "not a database of epoch-scheduler" in refusal(path)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(filled: Path, part: float) -> None:
    os.truncate(filled, int(filled.stat().st_size * part))
    assert f"the newest file of {filled.parent / 'backups'}" in refusal(filled)


def test_a_file_with_a_hole_in_it_is_refused(filled: Path) -> None:
    with filled.open("r+b") as file:
        file.seek(filled.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096 * 8)
    assert f"the newest file of {filled.parent / 'backups'}" in refusal(filled)


def test_a_database_of_a_newer_program_is_refused(filled: Path) -> None:
    newer = Migrations("scheduler")
    newer(name="colours")(lambda db: None)
    with closing(sqlite3.connect(filled)) as db:
        newer.apply(Database(db))
    assert "a newer version" in refusal(filled)


def test_a_lost_database_is_not_replaced_while_its_log_is_there(path: Path) -> None:
    path.with_name("scheduler.db-wal").write_bytes(b"the newest jobs")
    assert "its log scheduler.db-wal exists" in refusal(path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "nowhere" / "scheduler.db")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = Path("/sys") if os.geteuid() == 0 else tmp_path  # root may write to any other
    if folder == tmp_path:
        tmp_path.chmod(0o500)
    refusal(folder / "scheduler.db")


def test_a_restored_backup_is_taken(filled: Path) -> None:
    content = filled.read_bytes()
    os.truncate(filled, 5000)
    refusal(filled)
    for file in filled.parent.glob("scheduler.db*"):
        shutil.move(file, file.with_name(f"damaged-{file.name}"))
    filled.write_bytes(content)
    assert len(load(filled).jobs) == 1000


# --- explaining -----------------------------------------------------------------------------------


def full(db: sqlite3.Connection) -> None:
    (pages,) = db.execute("pragma page_count").fetchone()
    db.execute(f"pragma max_page_count = {pages}")
    db.execute("insert into facts values (null, 1.0, 'kind', null, null, ?)", ("x" * 100_000,))


def readonly(db: sqlite3.Connection) -> None:
    db.execute("pragma query_only = on")
    db.execute("delete from facts")


def locked(db: sqlite3.Connection) -> None:
    (path,) = (file for _, name, file in db.execute("pragma database_list") if name == "main")
    with closing(sqlite3.connect(path, timeout=0.0)) as other:
        db.execute("begin immediate")
        other.execute("begin immediate")


def unknown_job(db: sqlite3.Connection) -> None:
    db.execute("insert into labels values ('key', 'value', 77)")


def wrong_type(db: sqlite3.Connection) -> None:
    db.execute("insert into facts values (null, 'noon', 'kind', null, null, '{}')")


def misspelt(db: sqlite3.Connection) -> None:
    db.execute("delete from fcats")


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        (full, Unavailable, "the disk is full"),
        (readonly, ConfigError, "may the daemon write"),
        (locked, Unavailable, "has locked it"),
        (unknown_job, InvariantError, "an invalid row"),
        (wrong_type, InvariantError, "an invalid row"),
        (misspelt, ConfigError, "no such table: fcats: move scheduler.db"),
    ],
)
def test_what_sqlite_says_is_told_in_our_words(
    path: Path, trouble: Callable[[sqlite3.Connection], None], kind: type, words: str
) -> None:
    with (
        closing(database.open_or_create(path)) as db,
        pytest.raises(kind, match=words) as caught,
        database.translate_errors(path),
    ):
        trouble(db)
    assert str(caught.value).startswith(f"{path}: ")


# --- growing --------------------------------------------------------------------------------------


def test_a_file_of_the_first_version_is_read_with_its_running_job(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        first = Database(db, execute_plugins=False)
        migrations.apply(first, stop_before="what_was_learned")
        first.table("jobs").insert(
            {
                **dict.fromkeys(("id", "name", "user"), "job-1"),
                **dict.fromkeys(("id_reversed", "project", "experiment", "token", "reason"), ""),
                **dict.fromkeys(("priority", "held", "cancelled", "memory_mib", "epochs_done"), 0),
                **dict.fromkeys(("eligible_at", "ran_seconds", "submitted_at"), 0.0),
                "max_epochs": 7,
                "attempts": 1,
                "failures": "[]",
                "run": '{"attempt": 1, "shares": [], "phase": "running", "started_at": 1.0,'
                ' "phase_at": 1.0}',
                "spec": '{"name": "job-1", "user": "ada"}',
            }
        )
        db.commit()
    job = load(path).jobs[JobId("job-1")]
    assert job.run
    assert (job.run.max_epochs, job.measured, job.gpu_util) == (7, (), 0.0)
    assert (job.peaks, job.profiles_ignored) == ((), 0)


def test_profiles_of_before_say_that_they_count_all_holders(path: Path) -> None:
    """Until then `beside` named jobs that held memory on the GPUs, now those that train there."""
    with closing(sqlite3.connect(path)) as db:
        first = Database(db, execute_plugins=False)
        migrations.apply(first, stop_before="profiles_say_whom_they_count")
        numbers = ("attempt", "epoch", "rank", "memory_mib")
        seconds = ("step_seconds", "epoch_seconds", "samples_per_second", "gpu_util", "at")
        db.execute("pragma foreign_keys = off")
        first.table("profiles").insert(
            {
                **dict.fromkeys(numbers, 1),
                **dict.fromkeys(seconds, 1.0),
                "job_id": "job-1",
                "placement": "t4x1",
                "beside": '["job-2"]',
            }
        )
        db.commit()
    load(path)
    with closing(sqlite3.connect(path)) as db:
        columns = ", ".join(rows.PROFILE)
        (row,) = db.execute(f"select {columns} from profiles").fetchall()
        assert rows.profile(row).beside == (JobId("job-2"),)
        assert db.execute("select beside_counts from profiles").fetchall() == [("holders",)]
