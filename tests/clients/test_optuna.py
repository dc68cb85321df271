"""The bridge with the real Optuna: exactly its trials, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_s24_search import TRAIN
from tests.support import Daemon

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("KILLS", "3"))

PROGRAM = """
import sys
import optuna
from epoch_scheduler_client import Client, JobSpec
from epoch_scheduler_optuna import optimize

def job(trial):
    x = trial.suggest_float("x", 0.0, 10.0)
    command = [sys.argv[2], sys.argv[1], str(x), "0.1"]
    return JobSpec("try", command=command, num_gpus=0, max_epochs=3, metric="loss", prune="median")

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(study_name="s", storage="sqlite:///s.db", load_if_exists=True)
optimize(study, job, n_trials=12, client=Client.from_environment())
print(sorted(trial.state.name for trial in study.trials), study.best_value)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "0").start()
    yield made
    made.end()


def test_a_study_has_exactly_its_trials_and_none_stays_running(
    daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(TRAIN)
    paths = f"{ROOT}:{ROOT / 'integrations' / 'optuna'}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "SCHEDULER_SERVER": daemon.address, "PYTHONPATH": paths.strip(":")}
    words = [os.environ["CLIENTS"], "-c", PROGRAM, str(tmp_path / "t.py"), sys.executable]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True
        )

    for number in range(KILLS):
        process = start()
        time.sleep(2.5 + number * 0.3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    said, error = (process := start()).communicate(timeout=300)
    assert process.returncode == 0, error
    assert "RUNNING" not in said
    assert said.count("COMPLETE") + said.count("PRUNED") == 12, said
    jobs = daemon.state_of("--nlast", "100")["jobs"]
    assert Counter(job["name"] for job in jobs) == {f"try-{number}": 1 for number in range(12)}
