"""What a search costs that learns and prunes, until it is as good as random trials.

`python -m benchmarks.search --json`, with Optuna installed (`SEARCH_PYTHON=...` names a Python that
has it).
The task is shipped with it: search_train.py trains a small network on data of its own; what is
searched are its learning rate, momentum, weight decay and width. Both searches run on a real
daemon, with jobs of the same length. The cost is the GPU time of the trials until one is as good
as the best of the random ones (their mean over all seeds), relative to that of the random ones; the
median over the seeds. GPU time is counted in epochs: all epochs of the task take equally long, and
on a machine without GPUs the time of an epoch depends on what runs beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures import ROOT, options, show
from tests.support import Daemon

TASK = Path(__file__).with_name("search_train.py")
SPACE = (
    *("--sweep", "lr=1e-5..3.0:log", "--sweep", "momentum=0.0..0.99"),
    *("--sweep", "decay=1e-6..1e-1:log", "--sweep", "width=2..64:log"),
)
PRUNING = ("--prune", "median", "--prune_after", "3")

Jobs = list[dict[str, Any]]  # of a search


def main() -> None:
    given = options(__doc__, trials=40, epochs=27, parallel=4, seeds=4)
    randoms, learned = [], []
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            daemon = Daemon(Path(folder) / "state", f"{given.parallel}x16384").start()
            try:
                randoms.append(_search(daemon, "random", given, seed))
                learned.append(_search(daemon, "tpe", given, seed, *PRUNING))
            finally:
                daemon.end()
    target = statistics.mean(_best(jobs) for jobs in randoms)
    whole = given.trials * given.epochs
    costs = [_epochs_until(jobs, target) / whole for jobs in learned]
    show(
        search_cost=round(statistics.median(costs), 3),
        search_cost_of_each=[round(cost, 3) for cost in costs],
        random_best=round(target, 4),
        tpe_best=round(statistics.mean(_best(jobs) for jobs in learned), 4),
        tpe_whole_cost=round(statistics.mean(map(_epochs, learned)) / whole, 3),
        seeds=given.seeds,
        trials=given.trials,
    )


def _best(jobs: Jobs) -> float:
    found: float = min(job["best"] for job in jobs if job["best"] is not None)
    return found


def _epochs(jobs: Jobs) -> int:
    return sum(job["epochs_done"] for job in jobs)


def _epochs_until(jobs: Jobs, target: float) -> float:
    """All epochs of the trials up to the first one that is as good."""
    for number, job in enumerate(jobs):
        if job["best"] is not None and job["best"] <= target:
            return _epochs(jobs[: number + 1])
    return math.inf


def _search(daemon: Daemon, how: str, given: argparse.Namespace, seed: int, *flags: str) -> Jobs:
    python = os.environ.get("SEARCH_PYTHON", sys.executable)
    environment = {**os.environ, "SCHEDULER_SERVER": daemon.address}
    environment["PYTHONPATH"] = f"{ROOT}:{environment.get('PYTHONPATH', '')}"
    words = [
        *(python, "-c", "from cli.run import main; main()", "--search", how, *SPACE, *flags),
        *("--metric", "val_loss", "--trials", str(given.trials), "--parallel", str(given.parallel)),
        *("--label", f"sweep={how}-{seed}", "--max_epochs", str(given.epochs), "--output", "json"),
        *("--estimated_memory", "4000", how, "--", sys.executable, str(TASK)),
        *("{lr}", "{momentum}", "{decay}", "{width}"),
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jobs: Jobs = json.loads(done.stdout)["jobs"]
    return jobs


if __name__ == "__main__":
    main()
