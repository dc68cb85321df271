"""S24: one command submits many jobs, all or none; they are shown and ended by their label."""

from __future__ import annotations

import getpass
import random
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons
from tests.support import eventually

GRID = ("--sweep", "lr=0.1,0.01", "--sweep", "seed=1,2,3", "--num_gpus", "0")


def test_a_grid_runs_with_the_values_of_each_job(daemons: Daemons) -> None:
    daemon = daemons("0")
    command = ("grid", "--", "sh", "-c", 'echo "lr {lr} seed {seed} $SWEEP_VALUES"')
    done = daemon.run("run-scheduler", *GRID, "--wait", *command)
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(ids) == 6
    logs = daemon.run("scheduler-get-logs", ids[4]).stdout
    assert logs == 'lr 0.01 seed 2 {"lr": "0.01", "seed": "2"}\n'
    label = done.stderr.partition("--label ")[2].split()[0]
    assert label.startswith("sweep=")
    names = {job["name"] for job in daemon.state_of("--label", label)["jobs"]}
    assert names == {f"grid-{number}" for number in range(6)}


def test_the_jobs_of_a_sweep_are_compared_by_its_label(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_GATEWAY__LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("SCHEDULER_GATEWAY__USER", getpass.getuser())
    daemon = daemons("0")
    label = ("--label", "sweep=mine")
    done = daemon.run(
        "run-scheduler", *GRID, *label, "--wait", "grid", "--", "echo", "{lr}", "{seed}"
    )
    assert done.returncode == 0, done.stderr

    def compared() -> str:
        return daemon.run("scheduler-compare", *label, "--config").stdout

    eventually(lambda: "0.01" in compared())


def test_waiting_for_a_sweep_tells_which_of_its_jobs_failed(daemons: Daemons) -> None:
    daemon = daemons("0")
    flags = ("--sweep", "code=0,7", "--num_gpus", "0", "--wait")
    done = daemon.run("run-scheduler", *flags, "grid", "--", "sh", "-c", "exit {code}")
    assert done.returncode == 1
    assert "grid-1: FAILED: exit code 7" in done.stderr
    assert "grid-0" not in done.stderr


def test_shuffle_and_limit_choose_some_of_them(daemons: Daemons) -> None:
    daemon = daemons("0")
    done = daemon.run("run-scheduler", *GRID, "--hold", "--shuffle", "--limit", "4", *GRID_COMMAND)
    assert len(done.stdout.split()) == 4, done.stderr
    cancelled = daemon.run(
        "scheduler-cancel-job", "--label", done.stderr.partition("--label ")[2].split()[0], "--yes"
    )
    assert cancelled.returncode == 0, cancelled.stderr
    assert {job["state"] for job in daemon.state_of()["jobs"]} == {"CANCELED"}


GRID_COMMAND = ("grid", "--", "true", "{lr}", "{seed}")


def test_a_function_that_raises_submits_nothing(daemons: Daemons, tmp_path: Path) -> None:
    daemon, file = daemons("0"), tmp_path / "exp.py"
    file.write_text(
        "def spec():\n    yield {'name': 'a', 'command': ['ls'], 'gpus_max': 0}\n    1/0\n"
    )
    done = daemon.run("run-scheduler", "--spec", f"{file}:spec")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("ZeroDivisionError") == 1
    assert daemon.state_of()["jobs"] == []


def test_a_sweep_is_whole_or_not_there_after_a_kill(daemons: Daemons) -> None:
    """The daemon is killed at any moment of the submission."""
    daemon, chance = daemons("0"), random.Random(7)
    values = ",".join(map(str, range(100)))
    for number in range(5):
        command = ("--hold", "--num_gpus", "0", f"s{number}", "--", "true", "{lr}")
        asking = threading.Thread(
            target=daemon.run, args=("run-scheduler", "--sweep", f"lr={values}", *command)
        )
        asking.start()
        time.sleep(chance.uniform(0.1, 0.6))
        daemon.kill()
        daemon.start()
        asking.join()
        jobs = daemon.state_of("--nlast", "1000", "--status", "HELD")["jobs"]
        there = sum(job["name"].startswith(f"s{number}-") for job in jobs)
        assert there in (0, 100)
        if there:
            daemon.run("scheduler-cancel-job", "--yes", "--status", "HELD")
    assert there == 100, "the command sends the jobs again"
