"""What a search costs that learns and prunes, until it is as good as random trials.

`SEARCH_PYTHON=PYTHON python -m benchmarks.search --json`: a Python that has Optuna.
The goal is a loss that half of all random searches of 40 trials reach which train each trial to the
end. The cost is the GPU time until a trial has reported it, starts included, relative to that of
the 40 trials; the median over seeds. The tasks are in search_tasks.py: networks that really learn.
In virtual time (search_trials.py) runs the code of the search, the loop and the rules; some
searches are repeated on a real daemon, whose jobs train on simulated GPUs, for one second in each
epoch.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.figures import ROOT, interval, options, show
from benchmarks.search_tasks import EPOCHS, TASKS
from tests.support import Daemon

TRAIN = Path(__file__).with_name("search_train.py")
TRIALS, PARALLEL, FULL = 40, 4, 8
EPOCH_SECONDS = 1.0
PYTHON = os.environ.get("SEARCH_PYTHON", sys.executable)


def main() -> None:
    given = options(__doc__, seeds=12, real_seeds=5)
    program = "from benchmarks.search_trials import main; main()"
    words = [PYTHON, "-c", program, f"--seeds={given.seeds}"]
    done = subprocess.run(
        [*words, f"--trials={TRIALS}"], env=_environment(), stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        sys.exit("benchmarks.search: the simulation failed: does SEARCH_PYTHON have Optuna?")
    simulated = json.loads(done.stdout)
    figures: dict[str, object] = {}
    for task, methods in simulated["costs"].items():
        for method, costs in methods.items():
            figures |= _figure(f"{task}_{method}", costs)
    figures |= _figure("real", list(_on_a_daemon(given.real_seeds, simulated["goals"]["shipped"])))
    show(**figures, goals=simulated["goals"], seeds=given.seeds, trials=TRIALS)


def _figure(name: str, costs: Sequence[float]) -> Mapping[str, object]:
    low, high = interval(costs)
    values = {"": median(costs), "_low": low, "_high": high}
    rounded = {f"{name}_cost{end}": round(value, 3) for end, value in values.items()}
    return rounded | {f"{name}_costs": [round(cost, 3) for cost in sorted(costs)]}


# --- on a real daemon ---------------------------------------------------------------------------


def _on_a_daemon(seeds: int, goal: float) -> Iterator[float]:
    with _daemon() as daemon:
        words = _search(daemon, "random", "full", FULL)
        subprocess.run(words, env=_environment(daemon), check=True, capture_output=True)
        whole = TRIALS * mean(until - at for at, until in _spans(daemon, math.inf))
    for seed in range(seeds):
        with _daemon() as daemon:
            yield _cost(daemon, goal, 2 * whole, f"tpe-{seed}") / whole


@contextlib.contextmanager
def _daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", f"{PARALLEL}x16384").start()
        try:
            yield daemon
        finally:
            daemon.end()


def _cost(daemon: Daemon, goal: float, most: float, label: str) -> float:
    """GPU seconds until a job has reported the goal."""
    words = _search(daemon, "tpe", label, 1000, "--prune", "asha")
    with subprocess.Popen(words, env=_environment(daemon), stdout=subprocess.DEVNULL) as driver:
        try:
            while driver.poll() is None:
                time.sleep(0.5)
                asked = "select min(at) from profiles where score <= ?"
                reached_at = _asked(daemon, asked, goal)[0][0] or math.inf
                spent = sum(until - at for at, until in _spans(daemon, reached_at))
                if reached_at < math.inf or spent > most:
                    return min(spent, most)
        finally:
            driver.kill()
    raise RuntimeError(f"the search ended with exit code {driver.returncode}")


def _search(daemon: Daemon, how: str, label: str, trials: int, *flags: str) -> list[str]:
    axes = TASKS["shipped"].axes
    return [
        *(PYTHON, "-c", "from cli.run import main; main()", "--search", how, *flags),
        *(word for key, (of,) in axes for word in ("--sweep", f"{key}={of}")),
        *("--metric", "val_loss", "--trials", str(trials), "--parallel", str(PARALLEL)),
        *("--label", f"sweep={label}", "--max_epochs", str(EPOCHS), "--disable_gpu_sharing"),
        # The ids of the jobs follow from the label: here they have no checkpoints from last time.
        *("--snapshots_dir", str(daemon.state / "snapshots"), "--env", f"PYTHONPATH={ROOT}"),
        *("--env", f"EPOCH_SECONDS={EPOCH_SECONDS}", label, "--", sys.executable, str(TRAIN)),
        *(f"--{key}={{{key}}}" for key, _ in axes),
    ]


def _asked(daemon: Daemon, sql: str, *values: float) -> list[tuple[float | None, ...]]:
    path = next(daemon.state.glob("*.db"))
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute(sql, values).fetchall()


def _environment(daemon: Daemon | None = None) -> Mapping[str, str]:
    paths = f"{ROOT}:{ROOT / 'kubernetesdlprofile'}:{os.environ.get('PYTHONPATH', '')}"
    threads = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}
    server = {"SCHEDULER_SERVER": daemon.address} if daemon else {}
    return {**os.environ, **threads, **server}


def _spans(daemon: Daemon, end: float) -> list[tuple[float, float]]:
    """From when to when each job has had its GPU."""
    jobs = _asked(daemon, "select started_at, ended_at from jobs where started_at is not null")
    now = min(end, time.time())
    return [(at, min(now, until or now)) for at, until in jobs if at is not None and at < now]


if __name__ == "__main__":
    main()
