"""Failures of the machine: a full, slow or read-only disk, truncated files, a clock that is set,
little memory.

Failures at the start that daemon/test_command.py covers (a port or a folder in use, a truncated
database or secret) are not repeated here.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually
from tests.world.machine import WorseMachine

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


def test_output_does_not_fill_the_disk_and_without_room_no_job_is_accepted(
    disk: Disk, daemon: Daemon
) -> None:
    daemon.start()
    daemon.submit(*SLEEP, "running", "--", "sleep", "1000")
    daemon.submit(*SLEEP, "prints", "--", "sh", "-c", "head -c 20000000 /dev/zero; echo end")
    daemon.wait_state(prints="FINISHED", running="RUNNING")
    assert os.statvfs(disk.path).f_bavail * PAGE_BYTES > DISK_BYTES / 40, "kept for the database"
    disk.fill(DISK_BYTES // 40 // PAGE_BYTES)  # what the database may have given back since
    refused = daemon.run("run-scheduler", *SLEEP, "late", "--", "true")
    assert (refused.returncode, refused.stdout) == (4, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("run-scheduler: the scheduler's disk is full: 0 MiB are free, ")
    done = daemon.run("scheduler-cancel-job", "--yes", "running")
    assert done.returncode == 0, "it goes on deciding"
    for log in disk.path.glob("logs/*/*/rank0.log"):
        log.unlink()
    daemon.submit(*SLEEP, "late", "--", "true")
    daemon.wait_state(late="FINISHED", running="CANCELED")


def test_a_disk_that_fills_up_loses_nothing_that_was_acknowledged(
    disk: Disk, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filled by others, or without a reserve."""
    monkeypatch.setenv("SCHEDULER_HOUSEKEEPING__DISK_RESERVE", "0")
    daemon.start()
    daemon.submit(*SLEEP, "running", "--", "sleep", "1000")
    daemon.wait_state(running="RUNNING")
    trains = training(daemon)
    disk.fill(pages_left=128)
    accepted: set[str] = set()
    while True:  # until there is no more room: each job takes about 50 kB
        done = daemon.run("run-scheduler", "--hold", *SLEEP, "held", "--", "true", "x" * 50_000)
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


# --- a slow disk --------------------------------------------------------------------------------


def test_a_slow_disk_loses_nothing_that_was_acknowledged(daemon: Daemon, tmp_path: Path) -> None:
    daemon.environment = WorseMachine(tmp_path, fsync_ms=200).environment
    daemon.start()
    flags = ("--hold", *SLEEP)
    with ThreadPoolExecutor(8) as people:
        names = [f"job{number}" for number in range(24)]
        accepted = list(people.map(lambda name: daemon.submit(*flags, name, "--", "true"), names))
    daemon.kill()
    daemon.environment = {}
    daemon.start()
    jobs = daemon.state_of("--nlast", "1000")["jobs"]
    assert sorted(job["id"] for job in jobs) == sorted(accepted)


# --- a clock that is set ------------------------------------------------------------------------

DAY_SECONDS = 86_400.0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_is_set_by_a_day_ends_no_run(
    daemon: Daemon, tmp_path: Path, sign: int
) -> None:
    machine = WorseMachine(tmp_path)
    daemon.environment = machine.environment
    daemon.start()
    daemon.submit(*SLEEP, "running", "--", "sleep", "1000")
    daemon.wait_state(running="RUNNING")
    for ahead in (sign * DAY_SECONDS, 0.0, -sign * DAY_SECONDS):
        machine.set_clock(ahead)
        name = f"at{ahead:+.0f}"
        daemon.submit("--num_gpus", "1", name, "--", "true")
        jobs = daemon.wait_state(**{name: "FINISHED", "running": "RUNNING"})
        if ahead == DAY_SECONDS:
            assert jobs[name].submitted_at > time.time() + DAY_SECONDS / 2, "it was really set"
    daemon.stop()
    daemon.start()
    (kept,) = (job for job in daemon.state_of()["jobs"] if job["name"] == "running")
    assert (kept["state"], kept["attempt"]) == BEGUN


def test_a_clock_that_is_set_forward_and_back_expires_no_token_for_good(
    daemon: Daemon, tmp_path: Path
) -> None:
    machine = WorseMachine(tmp_path)
    daemon.environment = machine.environment
    daemon.start()
    words = ("token", "issue", "ada", "--days", "1")
    issued = daemon.run("scheduler-daemon", "--state_dir", daemon.state, *words)
    environment = {
        **os.environ,
        "SCHEDULER_SERVER": daemon.address,
        "SCHEDULER_TOKEN": issued.stdout.strip(),
    }

    def code() -> int:
        return subprocess.run([BIN / "scheduler-state"], env=environment, check=False).returncode

    assert code() == 0
    machine.set_clock(400 * DAY_SECONDS)
    assert code() == 4
    machine.set_clock(0.0)
    assert code() == 0


# --- little memory ------------------------------------------------------------------------------

MEMORY_BYTES_MAX = 300 * 2**20
QUEUED = int(os.environ.get("QUEUED", "300"))  # 10,000 at night


def test_many_queued_jobs_fit_into_little_memory(daemon: Daemon) -> None:
    daemon.start()

    def submit(number: int) -> None:
        spec = pb.JobSpec(name=f"held{number}", command=["true"], gpus_max=1, held=True)
        request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
        stub.Submit(request, metadata=metadata, timeout=DEADLINE_SECONDS)

    with daemon.stub() as (stub, metadata), ThreadPoolExecutor(8) as people:
        list(people.map(submit, range(QUEUED)))
    daemon.submit("--num_gpus", "1", "last", "--", "true")
    daemon.wait_state(last="FINISHED")
    assert psutil.Process(daemon.pid).memory_info().rss < MEMORY_BYTES_MAX


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
