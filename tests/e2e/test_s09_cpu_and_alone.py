"""S09: a job without GPUs uses none, and a script runs without a scheduler too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import TRAIN, Daemons, Gates, Train


def test_a_job_without_gpus_uses_none(daemons: Daemons, gates: Gates, train: Train) -> None:
    daemon, gate = daemons("1x16384"), gates("cpu")
    daemon.submit(*train(gate), "--num_gpus", "0", "--max_epochs", "1", "cpu")
    daemon.submit(*train(gate), "--max_epochs", "1", "--disable_gpu_sharing", "true", "gpu")
    daemon.wait_state(cpu="RUNNING", gpu="RUNNING")
    state = daemon.state_of("--cluster")
    assert [job["name"] for job in state["gpus"][0]["jobs"]] == ["gpu"]
    assert next(job for job in state["jobs"] if job["name"] == "cpu")["shares"] == []
    gate.open(2)
    daemon.wait_state(cpu="FINISHED", gpu="FINISHED")


def test_a_job_that_never_reports_finishes(daemons: Daemons) -> None:
    daemon = daemons("0")
    job_id = daemon.submit("--image", "i", "--num_gpus", "0", "plain", "--", "echo", "voc 20")
    daemon.wait_state(plain="FINISHED")
    assert daemon.run("scheduler-get-logs", job_id).stdout == "voc 20\n"


def test_a_script_runs_without_any_scheduler(tmp_path: Path) -> None:
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("KUBEPROFILER", "JOB_", "SCHEDULER"))
    }
    environment["KUBEPROFILER_SNAPSHOTS"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, TRAIN], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("not running under the scheduler") == 1
    assert done.stdout.splitlines() == [
        "begins at epoch 0 restarted False epochs done 0",
        "epoch 1 done",
    ]


def test_a_job_that_reports_nothing_ends_at_its_time_limit(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_LOCAL__OBSERVE_EVERY_SECONDS", "0.2")
    daemon = daemons("0")
    words = ("--num_gpus", "0", "--time_limit", "1s", "--retries", "3", "late", "--")
    daemon.submit(*words, "sleep", "1000")
    jobs = daemon.wait_state(late="FAILED")
    assert jobs["late"].reason == "time limit 1s reached after epoch 0"
