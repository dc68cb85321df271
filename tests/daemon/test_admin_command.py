from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.core.model import Job, JobId, JobSpec, View
from scheduler.core.ports import Step
from scheduler.store.writer import SqliteStore

JOB = Job(JobId("job-1"), JobSpec("n", "ada", env=(("KEY", "value"),)), submitted_at=1.0)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def store(state: Path) -> SqliteStore:
    """Of a daemon that runs: its newest rows are in the write-ahead log."""
    store = SqliteStore(state / "scheduler.db")
    store.commit(Step(View(), View(jobs={JOB.id: JOB}), [JOB.id], [], [], 1.0))
    return store


def backup(state: Path, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from scheduler.daemon.admin_command import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "--state_dir", state, "backup", *words],
        capture_output=True,
        check=False,
        umask=0o022,
    )


def restored(content: bytes, folder: Path) -> View:
    path = folder / "restored.db"
    path.write_bytes(content)
    with closing(SqliteStore(path)) as store:
        return store.load()


def test_a_backup_is_whole_and_only_its_owner_can_read_it(
    state: Path, store: SqliteStore, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    with closing(store):
        assert backup(state, file).returncode == 0
        written = backup(state)
    assert file.stat().st_mode & 0o777 == 0o600
    assert restored(file.read_bytes(), tmp_path).jobs == {JOB.id: JOB}
    (nightly,) = (state / "backups").iterdir()
    assert written.stdout.decode().strip() == str(nightly)
    assert nightly.stat().st_mode & 0o777 == 0o600


def test_a_backup_may_go_to_stdout(state: Path, store: SqliteStore, tmp_path: Path) -> None:
    with closing(store):
        done = backup(state, "-")
        assert not list(state.glob(".backup*"))
    assert restored(done.stdout, tmp_path).jobs == {JOB.id: JOB}


def test_no_file_is_overwritten(state: Path, store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("mine")
    with closing(store):
        done = backup(state, file)
    assert done.returncode == 2
    assert done.stderr.decode() == f"scheduler-admin: {file} exists: name another file\n"
    assert file.read_text() == "mine"


@pytest.mark.parametrize("target", ["nowhere/backup.db", "/proc/backup.db"])
def test_a_place_that_cannot_be_written_is_named(
    state: Path, store: SqliteStore, target: str
) -> None:
    with closing(store):
        done = backup(state, state / target)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.decode().splitlines()
    assert target in line


def test_without_a_database_there_is_no_backup(state: Path) -> None:
    done = backup(state)
    assert done.returncode == 2
    assert "has a daemon been started" in done.stderr.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_state_folder_of_another_user_is_refused(state: Path, store: SqliteStore) -> None:
    with closing(store):
        os.chown(state, 65534, 65534)
        done = backup(state)
    assert done.returncode == 2
    assert "belongs to nobody" in done.stderr.decode()
