"""An unmodified script for MLflow's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import ALL_STEPS, EPOCHS, TrackedJob, python_with, tracked_job
from tests.clients.trainings.epochs import STEPS
from tests.support import eventually

pytestmark = pytest.mark.clients


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


def test_a_script_is_tracked_through_a_preemption_and_kills(job: TrackedJob) -> None:
    job.submit(python_with("mlflow"), "with_mlflow.py")
    job.train_through_hardship()
    assert f"history {[*range(ALL_STEPS)]}" in job.output
    assert "found True" in job.output
    assert "params [64, 32] 0.1" in job.output

    job.await_delivery()
    assert job.values("metrics", "loss") == [1 / (step + 1) for step in range(ALL_STEPS)]
    ends = [STEPS * epoch + STEPS - 1 for epoch in range(EPOCHS)]
    assert job.values("metrics", "epoch_end") == ends
    loss, accuracy = (job.metrics()[name] for name in ("loss", "accuracy"))
    assert (loss["min"], loss["last_step"]) == (1 / ALL_STEPS, ALL_STEPS - 1)
    assert (accuracy["last"], accuracy["last_step"]) == ("NaN", EPOCHS - 1)
    assert job.pairs("params") == {"lr": "0.1", "model": "resnet", "layers": "[64, 32]"}
    assert job.pairs("tags")["team"] == "vision"
    assert job.troubles() == [], job.said()
    assert job.artifact("models/weights.bin") == bytes(range(256)) * 1000
    assert job.artifact("notes/summary.txt") == b"it went well"


def test_what_is_left_when_a_job_ends_is_delivered_when_the_gateway_is_back(
    job: TrackedJob,
) -> None:
    job.submit(python_with("mlflow"), "with_mlflow.py", epochs=1)
    job.gate.await_ring()
    for _ in range(4):  # so that it is away for a while
        eventually(job.kill_gateway)
    job.gate.open()
    job.daemon.wait_state(job="FINISHED")
    assert job.waiting
    job.await_delivery()
    assert job.values("metrics", "loss") == [1 / (step + 1) for step in range(STEPS)]
    assert job.troubles() == [], job.said()
    assert job.artifact("notes/summary.txt") == b"it went well"
