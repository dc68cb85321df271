"""S24: a search submits exactly its trials, whatever is killed; `KILLS=100` kills more often."""

from __future__ import annotations

import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Daemons
from tests.support import BIN, Daemon, eventually

KILLS = int(os.environ.get("KILLS", "6"))
TRAIN = """
import sys, time
from kubernetesdlprofile import kubeprofiler

api = kubeprofiler.KubeProfiler()
for epoch in api.epochs():
    time.sleep(float(sys.argv[2]))
    api.log_metric("loss", (float(sys.argv[1]) - 3) ** 2 + 1 / (epoch + 1))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "t.py"
    file.write_text(TRAIN)
    return str(file)


def words(script: str, trials: int, *flags: str, seconds: float = 0.0) -> list[str]:
    return [
        *("--search", "random", "--sweep", "x=0.0..10.0", "--metric", "loss"),
        *("--trials", str(trials), "--label", "sweep=s", "--parallel", "4", *flags),
        *("try", "--", sys.executable, script, "{x}", str(seconds)),
    ]


def test_a_search_finds_the_best_of_its_trials(daemons: Daemons, script: str) -> None:
    daemon = daemons("0")
    flags = ("--num_gpus", "0", "--max_epochs", "9", "--prune", "asha", "--output", "json")
    done = daemon.run("run-scheduler", *words(script, 12, *flags))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jobs = {job["id"]: job for job in found["jobs"]}
    assert [job["name"] for job in found["jobs"]] == [f"try-{number}" for number in range(12)]
    best = min(jobs.values(), key=lambda job: job["best"])
    assert (found["best"], best["state"]) == (best["id"], "FINISHED")
    pruned = [job for job in jobs.values() if job["pruned"]]
    assert len(pruned) >= 4
    assert sum(job["epochs_done"] for job in jobs.values()) < 12 * 9 * 0.75
    assert f"best: {best['name']} loss={best['best']:.6g} x={best['values']['x']}" in done.stderr
    again = daemon.run("run-scheduler", *words(script, 12, *flags))
    assert json.loads(again.stdout) == found  # nothing is left to do


def test_a_search_has_exactly_its_trials_whatever_is_killed(daemons: Daemons, script: str) -> None:
    """Driver and daemon are killed at any moment, the driver is started again each time."""
    daemon, chance = daemons("0"), random.Random(1)
    trials = max(12, KILLS)
    asked = words(script, trials, "--num_gpus", "0", "--max_epochs", "3", seconds=0.2)
    for _ in range(KILLS):
        driver = start(daemon, asked)
        time.sleep(chance.uniform(0.3, 1.5))
        if chance.random() < 0.5:
            daemon.kill()
            time.sleep(chance.uniform(0.0, 0.5))
            daemon.start()
            time.sleep(chance.uniform(0.0, 1.0))
        driver.send_signal(chance.choice([signal.SIGKILL, signal.SIGINT]))
        driver.communicate()
    done = daemon.run("run-scheduler", *asked)
    assert done.returncode == 0, done.stderr
    jobs = daemon.state_of("--nlast", "1000")["jobs"]
    assert Counter(job["name"] for job in jobs) == {f"try-{n}": 1 for n in range(trials)}
    assert {job["state"] for job in jobs} == {"FINISHED"}
    assert f"{trials} jobs: {trials} finished, 0 pruned, 0 failed" in done.stderr
    assert {len(record(daemon, job["id"])["scores"]) for job in jobs} == {3}


def test_a_daemon_that_is_killed_between_trials_compares_with_those_before(
    daemons: Daemons, script: str
) -> None:
    """No job of the sweep is live when the daemon starts: what they reported is read again."""
    daemon = daemons("0")
    words = ("--num_gpus", "0", "--max_epochs", "9", "--label", "sweep=s", "--metric", "loss")

    def run(name: str, x: str) -> dict[str, Any]:
        job = daemon.submit(*words, "--prune", "asha", name, "--", sys.executable, script, x, "0")
        eventually(lambda: record(daemon, job)["ended_at"])
        return record(daemon, job)

    assert run("good", "3.0")["state"] == "FINISHED"
    daemon.kill()
    daemon.start()
    bad = run("bad", "9.0")
    assert bad["state"] == "CANCELED"
    assert "pruned after epoch 1: loss 37 is not among the best third of 2 jobs" in bad["reason"]
    # An epoch of no time may begin before the report of the one before has come.
    assert len(bad["scores"]) <= 2


def test_the_name_of_another_users_search_is_refused_in_one_line(
    daemons: Daemons, script: str
) -> None:
    daemon = daemons("0")
    asked = words(script, 1, "--num_gpus", "0", "--max_epochs", "1")
    assert daemon.run("run-scheduler", *asked).returncode == 0
    done = daemon.run("run-scheduler", *asked, user="nobody")
    assert done.returncode == 4
    owner = pwd.getpwuid(os.geteuid()).pw_name
    said = f"--label sweep=s: {owner} has a search of this name; give yours another one"
    assert done.stderr.splitlines()[-1] == f"run-scheduler: {said}"


def record(daemon: Daemon, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = daemon.state_of(job_id)["jobs"][0]
    return found


def start(daemon: Daemon, asked: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "SCHEDULER_SERVER": daemon.address}
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    return subprocess.Popen(
        [str(BIN / "run-scheduler"), *asked], env=environment, stdout=-1, stderr=-1, text=True
    )
