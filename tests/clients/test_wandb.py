"""An unmodified script for wandb, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import ALL_STEPS, EPOCHS, TrackedJob, python_with, tracked_job
from tests.support import eventually

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


# In the same second, wandb would write both into one file. The first is open until the second one
# begins, because which file is a job's own is seen only while it is open, or at the job's end.
TWO_RUNS = """
import sys, time, wandb
for number in (1, 2):
    with wandb.init(project="p", name=f"number {number}") as run:
        for step in range(5):
            run.log({"value": int(sys.argv[1]) * number})
        time.sleep(3)
"""


def test_two_jobs_may_write_into_one_folder_and_a_job_may_have_two_runs(
    job: TrackedJob, tmp_path: Path
) -> None:
    python, folder, ids = python_with("wandb"), tmp_path / "shared", []
    folder.mkdir()
    for number in (10, 100):
        job.id = job.daemon.submit(
            *("--num_gpus", "0", "--snapshots_dir", str(job.snapshots), "--env"),
            *(f"WANDB_DIR={folder}", f"job-{number}", "--", python, "-c", TWO_RUNS, str(number)),
        )
        ids.append(job.id)
    job.daemon.wait_state(**{"job-10": "FINISHED", "job-100": "FINISHED"})
    for job.id, number in zip(ids, (10, 100), strict=True):
        eventually(lambda: len(job.values("metrics", "value", run="")) == 5)
        job.await_delivery()
        assert job.values("metrics", "value", run="") == [number] * 5
        assert job.values("metrics", "value", run="number 2") == [2 * number] * 5
    assert job.troubles() == []
