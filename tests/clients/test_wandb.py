"""An unmodified script for wandb, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import ALL_STEPS, EPOCHS, TrackedJob, python_with, tracked_job

pytestmark = pytest.mark.clients


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


def test_a_script_is_tracked_through_a_preemption_and_kills(job: TrackedJob) -> None:
    job.submit(python_with("wandb"), "with_wandb.py")
    job.train_through_hardship(written_to="loss")
    job.await_delivery()
    assert job.values("metrics", "loss") == [1 / (step + 1) for step in range(ALL_STEPS)]
    assert job.values("metrics", "train.step") == [*range(ALL_STEPS)]
    assert job.values("metrics", "epoch") == [*range(EPOCHS)]
    metrics = job.metrics()
    assert (metrics["accuracy"]["last"], metrics["best"]["last"]) == ("NaN", 0.5)
    assert job.pairs("params") == {"lr": "0.1", "net.layers": "64"}
    assert job.pairs("tags") == {"wandb.name": "a training", "wandb.tags": "baseline"}
    assert job.rows("SELECT description FROM jobs") == [("with a small network",)]
    assert job.troubles() == [], job.said()
