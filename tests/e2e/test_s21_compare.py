"""S21: what is different between runs of one script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tracked_job import TrackedJob, tracked_job

SCRIPT = """
import sys
from kubernetesdlprofile import kubeprofiler

api = kubeprofiler.KubeProfiler()
lr = float(sys.argv[2])
api.log_params({"model": {"depth": 3}, "batch": 64})
for epoch in range(2):
    api.start_epoch()
    for step in range(5 * epoch, 5 * epoch + 5):
        api.measure()
        api.log_metric("loss", lr * abs(step - 7), step)
    api.end_epoch()
api.end()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        (made.code / "train.py").write_text(SCRIPT)
        yield made


def trained(place: TrackedJob, name: str, lr: str) -> str:
    job_id = place.daemon.submit(
        *("--num_gpus", "0", "--snapshots_dir", str(place.snapshots), "--max_epochs", "2"),
        *("--code", str(place.code)),
        *("--wait", name, "--", sys.executable, "train.py", "--lr", lr),
    )
    place.id = job_id
    place.await_delivery()
    return job_id


def compared(place: TrackedJob, *words: str) -> dict[str, list[str]]:
    done = place.daemon.run("scheduler-compare", *words)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    split = [[each.strip() for each in line.split("  ") if each.strip()] for line in lines]
    return {words[0]: words[1:] for words in split}


def test_runs_are_compared_by_what_differs(place: TrackedJob) -> None:
    for name, lr in (("high", "0.1"), ("low", "0.01"), ("again", "0.01")):
        trained(place, name, lr)
    two = compared(place, "high", "low")
    assert two["param.lr"] == ["0.1", "0.01"]
    assert two["loss last"] == ["0.2", "0.02"]
    assert two["loss max"] == ["0.7", "0.07"]
    assert "param.model.depth" not in two, "it is the same in both"
    assert two["code"][0].startswith("the same package")
    three = compared(place, "high", "low", "again")
    assert three["param.lr"] == ["0.1", "0.01", "0.01"]
    assert compared(place, "high", "low", "--all")["param.model.depth"] == ["3", "3"]
    alike = place.daemon.run("scheduler-compare", "low", "again")
    assert (alike.returncode, alike.stdout.splitlines()[0]) == (0, "no differences"), alike.stderr

    script = place.code / "train.py"
    script.write_text(script.read_text().replace("step - 7", "step - 3"))
    trained(place, "nearer", "0.01")
    code = place.daemon.run("scheduler-compare", "low", "nearer", "--code").stdout.splitlines()
    assert [line for line in code if line.startswith(("- ", "+ "))] == [
        '-        api.log_metric("loss", lr * abs(step - 7), step)',
        '+        api.log_metric("loss", lr * abs(step - 3), step)',
    ]
