"""A search with the real Optuna."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_s24_search import TRAIN
from tests.support import Daemon

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "0").start()
    yield made
    made.end()


def test_optuna_learns_from_jobs_also_from_those_of_a_search_that_was_ended(
    daemon: Daemon, tmp_path: Path
) -> None:
    script = tmp_path / "t.py"
    script.write_text(TRAIN)

    def searched(trials: int, *more: str) -> dict[str, object]:
        words = [
            *(os.environ["CLIENTS"], "-c", "from cli.run import main; main()"),
            *("--search", "tpe", "--sweep", "x=0.0..10.0", *more, "--metric", "loss"),
            *("--trials", str(trials), "--parallel", "2", "--label", "sweep=s", "--num_gpus", "0"),
            *("--max_epochs", "2", "--output", "json", "try", "--"),
            *(sys.executable, str(script), "{x}", "0"),
        ]
        environment = {**os.environ, "SCHEDULER_SERVER": daemon.address, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    first = searched(12)
    jobs = searched(30)["jobs"]
    assert isinstance(jobs, list)
    assert isinstance(first["jobs"], list)
    assert [job["id"] for job in jobs[:12]] == [job["id"] for job in first["jobs"]]
    late = [abs(float(job["values"]["x"]) - 3) for job in jobs[18:]]
    early = [abs(float(job["values"]["x"]) - 3) for job in jobs[:10]]
    assert sorted(late)[len(late) // 2] < sorted(early)[len(early) // 2]  # medians
    assert min(job["best"] for job in jobs) < 0.6  # 0.5 is the least that there is


# Settings near 3 are the best in the end, and the worst after one epoch, for which most are pruned.
LATE_BLOOMERS = """
import random, statistics
from cli.search import SearchedJob, choose
from cli.search_space import space_of
from scheduler.v1 import scheduler_pb2 as pb

chance, trials = random.Random(1), []
for number in range(60):
    x, goes_on = chance.uniform(0, 10), number % 4 == 0
    state = "FINISHED" if goes_on else "CANCELED"
    job = pb.Job(state=state, reason="pruned after epoch 1", ended_at=1)
    job.spec.env.add(key="SWEEP_VALUES", value='{"x": "%r"}' % x)
    job.scores.add(epoch=1, value=10 - abs(x - 3))
    if goes_on:
        job.scores.add(epoch=9, value=abs(x - 3))
    trials.append(SearchedJob(number, job))
space = space_of([("x", ["0.0..10.0"])])
found = [choose("tpe", space, number, "s", trials, False)["x"] for number in range(60, 80)]
print(statistics.median(abs(x - 3) for x in found))
"""


def test_jobs_that_were_pruned_early_are_not_taken_for_bad() -> None:
    words = [os.environ["CLIENTS"], "-c", LATE_BLOOMERS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.0  # by chance it would be 2.5
