"""The scripts of docs/experiments.md, as jobs: what each logs can be compared."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import TrackedJob, python_with, tracked_job
from tests.support import eventually

GUIDE = Path(__file__).parents[2] / "docs" / "experiments.md"
SCRIPTS = dict(re.findall(r"^```python (\w+)\n(.*?)^```", GUIDE.read_text(), re.S | re.M))
PARAMS = {"mlflow": {"lr": "0.1", "layers": "4"}, "wandb": {"lr": "0.1", "layers": "4"}}

pytestmark = pytest.mark.clients


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_guide_has_its_curve(job: TrackedJob, name: str) -> None:
    python = python_with("mlflow", "wandb", "tensorboard", "telegraf")
    (job.code / "train.py").write_text(SCRIPTS[name])
    job.id = job.daemon.submit(
        *("--num_gpus", "1", "--snapshots_dir", str(job.snapshots), "--custom_dir", str(job.code)),
        *("--env", f"PATH={Path(python).parent}:{os.environ['PATH']}"),
        *("--script_path", "/custom/train.py", "first"),
    )
    jobs = job.daemon.wait(lambda jobs: jobs["first"].state in ("FINISHED", "FAILED"))
    assert jobs["first"].state == "FINISHED", job.output
    # A script that ends at once has ended before its relay has begun.
    eventually(lambda: job.metrics().get("loss", {}).get("points") == 100)
    loss = job.metrics()["loss"]
    assert loss["last_step"] == (None if name == "telegraf" else 99)
    assert loss["last"] == pytest.approx(0.01)
    assert job.pairs("params") == PARAMS.get(name, {})
    assert job.troubles() == [], job.said()


def test_every_client_has_its_script() -> None:
    assert set(SCRIPTS) == {"mlflow", "wandb", "tensorboard", "telegraf"}
