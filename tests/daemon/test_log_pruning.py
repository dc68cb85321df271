"""Which logs are deleted, and when there is no room for more jobs."""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler import run_logs
from scheduler.clusters.capped_log import free_bytes
from scheduler.core.model import Job, JobId
from scheduler.daemon.log_pruning import MIB, no_room, prune_logs
from scheduler.store.maintenance import DAY_SECONDS
from tests.builders import spec

NOW = 1_000.0 * DAY_SECONDS


class Logs:
    """Jobs with a log of one MiB each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs: dict[JobId, Job] = {}

    def add(self, user: str, ended_days: float | None) -> JobId:
        job_id = JobId(str(uuid.uuid4()))
        path = run_logs.log_path(self.root, job_id, attempt=1, rank=0)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * MIB)
        job = Job.submitted(job_id, replace(spec("j"), user=user), 0.0)
        ended_at = None if ended_days is None else NOW - ended_days * DAY_SECONDS
        self.jobs[job_id] = replace(job, ended_at=ended_at)
        return job_id

    def prune(self, kept_days: int = 10, user_mib: int = 100) -> int:
        return prune_logs(self.root, self.jobs.get, NOW, kept_days=kept_days, user_mib=user_mib)

    def left(self) -> set[JobId]:
        return {job_id for job_id in self.jobs if run_logs.files(self.root, job_id)}


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_old_logs_are_deleted_and_their_place_says_why(logs: Logs) -> None:
    old, new, live = logs.add("ada", 11), logs.add("ada", 9), logs.add("ada", None)
    assert logs.prune() == 1
    assert logs.left() == {new, live}
    assert run_logs.read_why_deleted(logs.root, old) == "its job ended more than 10 days ago"
    assert run_logs.read_why_deleted(logs.root, new) == ""
    assert logs.prune() == 0, "once"


def test_of_a_user_with_too_many_logs_the_oldest_ended_ones_are_deleted(logs: Logs) -> None:
    bobs = logs.add("bob", 9)
    live = logs.add("ada", None)
    oldest, old, new = logs.add("ada", 5), logs.add("ada", 4), logs.add("ada", 3)
    assert logs.prune(user_mib=2) == 2
    assert logs.left() == {bobs, live, new}
    assert "ada took more than 2 MiB" in run_logs.read_why_deleted(logs.root, oldest)
    assert run_logs.read_why_deleted(logs.root, old)
    assert logs.prune(user_mib=0) == 2
    assert logs.left() == {live}, "what runs keeps its log"


def test_logs_without_a_job_are_deleted_by_their_own_age(logs: Logs) -> None:
    lost = logs.add("ada", 1)
    del logs.jobs[lost]
    assert logs.prune() == 0, "written just now, which is after NOW"
    assert prune_logs(logs.root, logs.jobs.get, 1e11, kept_days=1, user_mib=9) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_below_the_reserve_there_is_no_room_for_jobs(tmp_path: Path) -> None:
    """The reserve is larger than this small disk, so a twentieth of it counts."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        assert no_room(tmp_path, 512) == ""
        (tmp_path / "filler").write_bytes(b"x" * (free_bytes(str(tmp_path)) - 2**16))
        assert no_room(tmp_path, 512).startswith("the scheduler's disk is full: 0 MiB are free, ")
        assert no_room(tmp_path, 0) == ""
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
