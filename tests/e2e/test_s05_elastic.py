"""S05: while a job is alone it gets all GPUs that make it faster, and gives back what others need.

EPOCH_SECONDS sets the duration of an epoch by the training's own clock, so that the scheduler
learns the same on any machine. A gate holds the end of each epoch until the test has seen what it
waits for.
"""

import json
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.conftest import Daemons, Gates, Train
from tests.support import Daemon, Gate

LINEAR = "1:4 2:2 3:1.4 4:1"
LONG = ("--max_epochs", "500", "--estimated_memory", "3000")
ONE_TO_FOUR = ("--min_gpus", "1", "--max_gpus", "4")
WHOLE = ("--disable_gpu_sharing", "--estimated_memory", "3000")
TWO, THREE = ("--num_gpus", "2", *WHOLE), ("--num_gpus", "3", *WHOLE)
# Root's daemon accepts several users; a daemon of another user accepts only that user's jobs.
USER2 = "nobody" if os.geteuid() == 0 else None


class Elastic:
    """A job that the test leads from epoch to epoch. It begins beside a job on all GPUs but one:
    otherwise it would begin on several."""

    def __init__(self, daemon: Daemon, gate: Gate, *words: str) -> None:
        self.daemon, self.gate = daemon, gate
        self.epochs = self.attempts = self.plans = 0
        self.first = daemon.submit(*THREE, "first", "--", "sleep", "1000")
        daemon.wait_state(first="RUNNING")
        self.id = daemon.submit(*words, "elastic")
        self.runs_on(1)

    def runs_on(self, gpus: int) -> None:
        """A new run is on that many GPUs, and is in an epoch."""
        self.attempts += 1
        self.gate.await_ring()
        job = self.daemon.wait_state(elastic="RUNNING")["elastic"]
        assert (job.attempt, len(job.shares)) == (self.attempts, gpus)

    def does_epochs(self, count: int = 1) -> None:
        """It ends in the epoch after these."""
        for _ in range(count):
            self.does_one_and_leaves()
            self.gate.await_ring()

    def does_one_and_leaves(self) -> None:
        self.gate.open()
        self.epochs += 1
        self.daemon.wait(lambda jobs: jobs["elastic"].epochs_done >= self.epochs)

    def is_planned_anew(self) -> str:
        """Submits a job, since any event triggers a plan (else one is made each minute). Returns
        the state after the plan."""
        self.plans += 1
        news = f"news {self.plans}"
        self.daemon.submit("--num_gpus", "0", news, "--", "true")
        return self.daemon.wait(lambda jobs: jobs[news].state != "QUEUED")["elastic"].state

    def told(self) -> dict[str, Any]:
        return self.daemon.job_of(self.id)

    def measured(self) -> dict[str, float]:
        speeds = self.told()["learned"]["epoch_seconds"]
        return {s["gpus"].removeprefix("pretended"): s["measured"] for s in speeds if s["measured"]}

    def begins(self) -> list[str]:
        """What each of its runs printed at its start."""
        logs = self.daemon.run("scheduler-get-logs", self.id).stdout.splitlines()
        return [f"{line}, {after}" for line, after in pairwise(logs) if line.startswith("begins")]

    def is_alone(self) -> None:
        assert self.daemon.run("scheduler-cancel-job", self.first).returncode == 0
        self.daemon.wait_state(first="CANCELED")

    def grows_to_four(self) -> None:
        self.does_epochs(2)
        self.is_alone()
        self.daemon.wait_state(elastic="STOPPING")
        self.does_one_and_leaves()
        self.runs_on(4)


Make = Callable[..., Elastic]


@pytest.fixture
def elastic(daemons: Daemons, gates: Gates, train: Train) -> Make:
    """Submits the job to an empty cluster of four GPUs; `seconds` are the durations of its
    epochs."""

    def make(seconds: str, *words: str) -> Elastic:
        daemon, gate = daemons("4x16384", "--policy", "gpu_sharing"), gates("elastic")
        asked = words or ONE_TO_FOUR
        return Elastic(daemon, gate, *train(gate, EPOCH_SECONDS=seconds), *LONG, *asked)

    return make


def test_alone_it_gets_all_gpus_at_the_end_of_an_epoch_and_loses_nothing(elastic: Make) -> None:
    job = elastic(LINEAR)
    job.grows_to_four()
    (asked,) = [fact for fact in job.daemon.story(job.id) if fact.kind == "run_asked_to_stop"]
    assert json.loads(asked.data_json)["stop_at_epoch"] == 3, "the epoch in progress is finished"
    job.does_epochs(2)

    assert job.begins() == [
        "begins at epoch 0 restarted False epochs done 0, on 1 GPUs",
        "begins at epoch 3 restarted True epochs done 3, on 4 GPUs",
    ]
    assert job.measured() == pytest.approx({"x1": 4.0, "x4": 1.0})
    shown = job.daemon.run("scheduler-state", job.id, "--extended").stdout
    assert "  on pretendedx1       4.0 s an epoch, measured\n" in shown
    assert "  on pretendedx4       1.0 s an epoch, measured\n" in shown


def test_it_gives_back_what_another_user_needs_and_keeps_the_rest(elastic: Make) -> None:
    job = elastic(LINEAR)
    daemon = job.daemon
    job.grows_to_four()
    job.does_epochs(2)

    second = daemon.submit(*TWO, "second", "--", "sleep", "1000", user=USER2)
    waits = daemon.wait_state(elastic="STOPPING")
    assert waits["elastic"].reason == "moved from 4 GPUs to 2, for second"
    assert waits["second"].reason == "stopping (waits for elastic to stop at the end of an epoch)"
    job.does_one_and_leaves()
    daemon.wait_state(second="RUNNING")
    job.runs_on(2)
    job.does_epochs(2)
    assert job.measured() == pytest.approx({"x1": 4.0, "x2": 2.0, "x4": 1.0})
    assert job.told()["why"]["detail"] == "0.50 of its speed on 4 GPUs, where second is"

    assert daemon.run("scheduler-cancel-job", second, user=USER2).returncode == 0
    daemon.wait_state(second="CANCELED", elastic="STOPPING")
    job.does_one_and_leaves()
    job.runs_on(4)
    assert job.begins()[2:] == [
        "begins at epoch 6 restarted True epochs done 6, on 2 GPUs",
        "begins at epoch 9 restarted True epochs done 9, on 4 GPUs",
    ]


def test_a_job_that_requests_a_single_gpu_keeps_it(elastic: Make) -> None:
    job = elastic(LINEAR, "--max_gpus", "4", "--is_single_gpu", "true")
    job.does_epochs(3)
    job.is_alone()
    assert job.is_planned_anew() == "RUNNING"
    job.does_epochs()
    assert job.begins() == ["begins at epoch 0 restarted False epochs done 0, on 1 GPUs"]


def test_a_job_not_faster_on_four_gpus_than_on_two_stays_on_two(elastic: Make) -> None:
    job = elastic("1:4 2:2.2 3:2.2 4:2.2")
    daemon = job.daemon
    job.grows_to_four()
    job.does_epochs(2)
    second = daemon.submit(*TWO, "second", "--", "sleep", "1000", user=USER2)
    daemon.wait_state(elastic="STOPPING")
    job.does_one_and_leaves()
    job.runs_on(2)
    job.does_epochs(2)
    assert job.measured() == pytest.approx({"x1": 4.0, "x2": 2.2, "x4": 2.2})

    assert daemon.run("scheduler-cancel-job", second, user=USER2).returncode == 0
    daemon.wait_state(second="CANCELED")
    assert job.is_planned_anew() == "RUNNING", "four GPUs are free, but would not make it faster"
    job.does_epochs()
    assert job.begins()[-1].endswith("on 2 GPUs")


def test_a_move_that_does_not_pay_for_the_restart_is_not_made(elastic: Make) -> None:
    job = elastic("1:0.0002 2:0.0001 3:0.00007 4:0.00005")
    job.does_epochs(3)
    job.is_alone()
    assert job.is_planned_anew() == "RUNNING", "0.1 s are left, and a restart takes longer"


def test_it_is_not_moved_twice_without_a_finished_epoch_between(elastic: Make) -> None:
    job = elastic(LINEAR)
    job.grows_to_four()
    job.daemon.submit(*TWO, "second", "--", "sleep", "1000", user=USER2)
    assert job.is_planned_anew() == "RUNNING", "it has not finished an epoch on four yet"
    job.does_epochs()
    assert job.is_planned_anew() == "STOPPING"
    job.does_one_and_leaves()
    job.daemon.wait_state(second="RUNNING")
    job.runs_on(2)


def test_a_new_job_begins_on_several_gpus_while_they_are_idle(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, gate = daemons("4x16384", "--policy", "gpu_sharing"), gates("new")
    words = train(gate, EPOCH_SECONDS=LINEAR)
    daemon.submit(*words, *LONG, *ONE_TO_FOUR, "new")
    gate.await_ring()
    assert len(daemon.wait_state(new="RUNNING")["new"].shares) == 4
