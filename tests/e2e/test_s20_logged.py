"""S20: what a training logs with the library arrives once, whatever happens meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import EPOCHS, TrackedJob, tracked_job
from tests.support import eventually

STEPS = 10
LOGS = Path(__file__).with_name("logs.py")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


def test_each_step_is_there_once_after_a_preemption_and_kills(job: TrackedJob) -> None:
    job.submit(sys.executable, str(LOGS))
    job.gate.await_ring()
    job.kill_gateway()
    job.gate.open()
    job.gate.await_ring()  # the second epoch has logged: the job is stopped after it
    job.daemon.submit("--num_gpus", "1", "--priority", "10", "urgent", "--", "true")
    job.daemon.wait_state(job="STOPPING")
    job.gate.open()
    job.daemon.wait_state(urgent="FINISHED")
    job.gate.await_ring()
    job.kill_gateway()
    job.gate.open()
    job.gate.await_ring()  # the fourth epoch has logged: it is repeated
    eventually(lambda: len(job.values("metrics", "loss")) == 4 * STEPS)
    job.kill()
    for _ in range(EPOCHS - 3):
        job.gate.await_ring()
        job.gate.open()
    ended = job.daemon.wait(lambda jobs: jobs["job"].state in ("FINISHED", "FAILED"))["job"]
    assert (ended.state, ended.attempt) == ("FINISHED", 3), job.output
    job.await_delivery()

    assert job.values("metrics", "loss") == [1 / n for n in range(1, EPOCHS * STEPS + 1)]
    assert job.values("metrics", "accuracy") == [epoch / 10 for epoch in range(EPOCHS)]
    loss, accuracy = (job.metrics()[name] for name in ("loss", "accuracy"))
    assert (loss["last"], loss["last_step"]) == (1 / (EPOCHS * STEPS), EPOCHS * STEPS - 1)
    assert (accuracy["last"], accuracy["last_step"]) == (0.4, EPOCHS)
    assert job.pairs("params") == {
        "lr": "0.1",
        "model.name": "resnet",
        "model.layers": "[64, 32]",
    }
    assert job.rows("SELECT path FROM artifacts") == [("epochs.json",)]
    assert job.troubles() == [], job.said()
    assert "relay" not in job.output


def test_a_job_that_is_not_tracked_logs_nothing_and_ends_well(job: TrackedJob) -> None:
    job.submit(sys.executable, str(LOGS), "--no_tracking")
    job.gate.open(EPOCHS)
    job.daemon.wait_state(job="FINISHED")
    assert job.output.count("[KUBE_API_LIBRARY]") == 1
    assert "this run has no relay: what it logs is not kept" in job.output
    told = "SELECT measurement FROM series WHERE measurement NOT LIKE 'scheduler_%'"
    assert job.rows(told) == [], "but what the daemon knows itself"
