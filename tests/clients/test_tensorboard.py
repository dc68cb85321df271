"""Unmodified scripts for the real writers of event files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import ALL_STEPS, EPOCHS, TrackedJob, python_with, tracked_job
from tests.clients.trainings.epochs import STEPS

pytestmark = pytest.mark.clients


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


def test_a_script_is_tracked_through_a_preemption_and_kills(job: TrackedJob) -> None:
    job.submit(python_with("tensorboard", "tensorboardX"), "with_tensorboard.py")
    job.train_through_hardship(written_to="loss")
    job.await_delivery()
    losses = job.values("metrics", "loss", run="")
    assert losses == pytest.approx([1 / (step + 1) for step in range(ALL_STEPS)])
    ends = [STEPS * epoch + STEPS - 1 for epoch in range(EPOCHS)]
    assert job.values("metrics", "loss", run="validation") == ends
    assert job.metrics()["accuracy"]["last"] == "NaN"
    assert job.pairs("params") == {"lr": "0.1", "model": "resnet", "layers": "64"}
    assert job.pairs("tags") == {"note": "it went well"}
    assert job.troubles() == [], job.said()
