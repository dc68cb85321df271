"""Failures of the machine: a full disk, a read-only disk, truncated files.

Failures at the start that daemon/test_command.py covers (a port or a folder in use, a truncated
database or secret) are not repeated here. A clock that jumps is in test_inbox.py, because the clock
of one process alone cannot be set.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually

DISK_BYTES = 2 * 2**20
PAGE_BYTES = 4096
SLEEP = ("--image", "none", "--num_gpus", "0", "--max_epochs", "5")
BEGUN = ("RUNNING", 1)


class Disk:
    """A separate file system, mounted as the state folder of a daemon."""

    def __init__(self, path: Path) -> None:
        self.path, self._ballast = path, path / "ballast"

    def fill(self, pages_left: int = 0) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            free = os.statvfs(self.path).f_bavail - pages_left
            ballast.write(bytes(max(0, free) * PAGE_BYTES))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    path = tmp_path / "state"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "none", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this root cannot mount anything: {mounted.stderr.strip()}")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state")
    yield made
    made.end()


def ended(daemon: Daemon) -> int:
    assert daemon.process
    return daemon.process.wait(DEADLINE_SECONDS)


def training(daemon: Daemon) -> psutil.Process:
    """The process of the only run."""
    (started,) = daemon.state.glob("runs/*/started.json")
    return psutil.Process(json.loads(started.read_text())["pid"])


# --- a full disk --------------------------------------------------------------------------------


def test_a_disk_that_fills_up_loses_nothing_that_was_acknowledged(
    disk: Disk, daemon: Daemon
) -> None:
    daemon.start()
    daemon.submit(*SLEEP, "running", "--", "sleep", "1000")
    daemon.wait_state(running="RUNNING")
    trains = training(daemon)
    disk.fill(pages_left=128)
    accepted: set[str] = set()
    while True:  # until there is no more room: each job takes about 100 kB
        done = daemon.run("run-scheduler", "--hold", *SLEEP, "held", "--", "true", "x" * 100_000)
        if done.returncode != 0:
            break
        accepted.add(done.stdout.strip())
    assert accepted
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert ended(daemon) == 74
    last = json.loads(daemon.said().splitlines()[-1])
    assert last["event"] == "cannot_write"
    assert last["error"].startswith(f"{disk.path}/scheduler.db: ")
    assert "nothing was written" in last["error"]
    assert trains.is_running()

    disk.free()
    daemon.start()
    jobs = daemon.state_of("--nlast", "1000")["jobs"]
    assert {job["id"] for job in jobs if job["name"] == "held"} == accepted
    (kept,) = (job for job in jobs if job["name"] == "running")
    assert (kept["state"], kept["attempt"]) == BEGUN
    assert training(daemon) == trains
    daemon.submit("--hold", *SLEEP, "one-more", "--", "true")


@pytest.mark.parametrize("pages_left", [0, 1, 8, 17])
def test_a_start_on_a_full_disk_is_refused_in_one_line(
    disk: Disk, daemon: Daemon, pages_left: int
) -> None:
    disk.fill(pages_left)
    done = subprocess.run(
        [BIN / "scheduler-daemon", "--state_dir", disk.path, "--gpus", "0"],
        env={**os.environ, "SCHEDULER_LISTEN": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode in (2, 74)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("scheduler-daemon: ")
    assert str(disk.path) in line
    disk.free()
    daemon.start()  # the failed start left nothing behind that prevents this one


# --- a disk that is read-only -------------------------------------------------------------------


def test_a_read_only_disk_is_refused_and_left_alone(disk: Disk, daemon: Daemon) -> None:
    daemon.start()
    job_id = daemon.submit("--hold", *SLEEP, "held", "--", "true")
    daemon.stop()
    disk.remount("ro")
    daemon.spawn()
    assert ended(daemon) == 2
    last = daemon.said().splitlines()[-1]
    assert last == f"scheduler-daemon: cannot use {disk.path}: Read-only file system"
    disk.remount("rw")
    daemon.start()
    assert [job["id"] for job in daemon.state_of()["jobs"]] == [job_id]


# --- truncated files ----------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_training_is_recognised_although_its_files_are_truncated(
    daemon: Daemon, part: float
) -> None:
    daemon.start()
    daemon.submit(*SLEEP, "running", "--", "sleep", "1000")
    daemon.wait_state(running="RUNNING")
    trains = training(daemon)
    daemon.kill()
    (folder,) = daemon.state.glob("runs/*")
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    for path, content in whole.items():
        path.write_bytes(content[: int(len(content) * part)])
    daemon.start()
    (job,) = daemon.state_of()["jobs"]
    assert (job["state"], job["attempt"]) == BEGUN
    assert trains.is_running()
    daemon.submit("--num_gpus", "0", "other", "--", "true")
    daemon.wait_state(other="FINISHED")
    (job,) = (job for job in daemon.state_of()["jobs"] if job["name"] == "running")
    assert (job["state"], job["attempt"]) == BEGUN, "also after another observation of the cluster"
    for path, content in whole.items():
        path.write_bytes(content)  # so that `daemon.end` finds it
    assert training(daemon) == trains
    trains.kill()
    eventually(lambda: not trains.is_running())
