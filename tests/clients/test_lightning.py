"""Loggers of Lightning, PyTorch and TensorFlow, with these frameworks: `make test-frameworks`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import ALL_STEPS, TrackedJob, python_with, tracked_job
from tests.clients.trainings.epochs import STEPS

pytestmark = pytest.mark.frameworks
NEEDS = "lightning", "mlflow", "tensorboard", "tensorflow", "torch"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        made.patience_seconds = 600.0  # frameworks are slow to import
        yield made


def test_loggers_of_frameworks_are_tracked_through_a_preemption_and_kills(
    job: TrackedJob, tmp_path: Path
) -> None:
    python = python_with(*NEEDS, python=os.environ.get("FRAMEWORKS", ""))
    job.submit(python, "with_frameworks.py", LOGS=str(tmp_path / "logs"))
    job.train_through_hardship(written_to="plain_loss")
    job.await_delivery()
    losses = [1 / (step + 1) for step in range(ALL_STEPS)]
    assert job.values("metrics", "loss") == losses
    assert job.values("metrics", "half") == [0.5] * ALL_STEPS
    assert job.values("metrics", "board_loss") == pytest.approx(losses)
    assert job.values("metrics", "plain_loss") == [*range(ALL_STEPS)]
    assert job.values("metrics", "tf_loss") == [1.5 * step for step in range(STEPS)]
    assert job.pairs("params") == {"lr": "0.1", "net/layers": "64"}
    tags = job.pairs("tags")
    assert tags["team"] == "vision"
    assert "from TensorFlow" in {*tags.values()}
    assert job.troubles() == [], job.said()
