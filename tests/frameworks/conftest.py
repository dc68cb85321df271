"""The examples of `examples/`: each alone, and as a job that is preempted and resumes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import kubernetesdlprofile
from kubernetesdlprofile import checkpoints
from scheduler.v1 import scheduler_pb2
from tests.support import Daemon

ROOT = Path(__file__).parent.parent.parent
LIBRARY = Path(kubernetesdlprofile.__file__).parent.parent
EPOCHS = 20
CARD_MIB = 16384
TRIES = 5  # a job of small epochs may end before it can be stopped
PATIENCE_SECONDS = 600.0  # frameworks are slow to import
ROUNDS = int(os.environ.get("ROUNDS", "2"))  # 20 for the figure that is published


@dataclass(frozen=True, slots=True)
class Example:
    """A training script, the Python with its packages, and its number of GPUs."""

    name: str
    python: str = sys.executable
    gpus: int = 1
    epochs: int = EPOCHS  # it is stopped in the first half, and goes on until it is frozen

    @property
    def latest_to_stop(self) -> int:
        """It may have ended one more, and begun another; the last epoch is not interrupted."""
        return self.epochs - 4

    @property
    def script(self) -> Path:
        return ROOT / "examples" / self.name / "train.py"

    @property
    def environment(self) -> dict[str, str]:
        # So frameworks print less, and use no more threads than the other tests leave them.
        path = f"{Path(self.python).parent}:{os.environ['PATH']}"
        return {"PATH": path, "PYTHONPATH": str(LIBRARY), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Trained:
    """The results of an example."""

    log: tuple[str, ...]  # a line for each epoch
    checkpoint: str

    def losses(self, epochs: int = EPOCHS) -> list[float]:
        """Requires one line for each epoch, in order."""
        assert [line.split(":")[0] for line in self.log] == [
            f"epoch {n + 1}" for n in range(epochs)
        ]
        return [float(line.split()[-1]) for line in self.log]


Alone = Callable[[Example], Trained]
Preempted = Callable[[Example, int], Trained]


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """`python train.py` as it is, without any scheduler, once for all tests."""

    @functools.cache
    def train(example: Example) -> Trained:
        return trained_alone(example, tmp_path_factory.mktemp(example.name), example.epochs)

    return train


def trained_alone(example: Example, folder: Path, epochs: int) -> Trained:
    ours = {"KUBEPROFILER_SNAPSHOTS": str(folder), "EPOCHS_TO_BE_DONE": str(epochs)}
    # Nothing else of this environment, because a job gets nothing else of it either: variables for
    # OpenBLAS or oneDNN choose other kernels, which give other last digits.
    login = {"HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [example.python, example.script],
        env={**login, **example.environment, **ours},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return trained(done.stdout, folder)


@pytest.fixture
def preempted(tmp_path: Path) -> Iterator[Preempted]:
    """The same script as a job that stops after an epoch, chosen by the seed, and resumes."""
    daemons = []

    def train(example: Example, seed: int, tries: int = TRIES) -> Trained:
        folder = tmp_path / str(tries)
        folder.mkdir()
        daemon = Daemon(folder / "state", f"{example.gpus}x{CARD_MIB}").start()
        daemons.append(daemon)
        cards = ["--image", "i", "--num_gpus", str(example.gpus), "--estimated_memory", "9000"]
        job_id = daemon.submit(
            *cards,
            *(word for pair in example.environment.items() for word in ("--env", "=".join(pair))),
            *("--snapshots_dir", folder / "snapshots", "--max_epochs", str(example.epochs)),
            *("--script_path", example.script, "example"),
        )
        moment = random.Random(seed).randrange(example.epochs // 2 + 1)
        try:
            jobs = daemon.wait(
                lambda jobs: _reached(jobs["example"], moment) or _ended(jobs["example"]),
                PATIENCE_SECONDS,
            )
            if _ended(jobs["example"]) and tries > 1:  # before this busy machine saw its moment
                return train(example, seed, tries - 1)
            with _frozen(daemon, job_id):
                if daemon.job_of(job_id)["epochs_done"] > example.latest_to_stop and tries > 1:
                    return train(example, seed, tries - 1)  # frozen too late on this busy machine
                daemon.submit(*cards, "--priority", "10", "urgent", "--", "true")
                daemon.wait_state(example="STOPPING")
            jobs = daemon.wait(lambda jobs: _ended(*jobs.values()), PATIENCE_SECONDS)
        except AssertionError as error:
            error.add_note(daemon.run("scheduler-get-logs", job_id).stdout)
            raise
        said = daemon.run("scheduler-get-logs", job_id).stdout
        assert jobs["example"].state == "FINISHED", said
        assert (jobs["example"].attempt, jobs["example"].epochs_done) == (2, example.epochs), said
        return trained(said, folder / "snapshots" / job_id)

    yield train
    for daemon in daemons:
        daemon.end()


def _reached(job: scheduler_pb2.Job, epochs: int) -> bool:
    """Waits for the first report: a run is not asked to stop before it."""
    return job.heard_at > 0 and job.epochs_done >= epochs


def _ended(*jobs: scheduler_pb2.Job) -> bool:
    return all(job.state in ("FINISHED", "FAILED") for job in jobs)


@contextlib.contextmanager
def _frozen(daemon: Daemon, job_id: str) -> Iterator[None]:
    """Freezes its processes, so that it does not end before it is asked to stop."""
    started = json.loads((daemon.state / "runs" / f"{job_id}-1" / "started.json").read_text())
    first = psutil.Process(started["pid"])
    processes = [first, *first.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def trained(output: str, folder: Path) -> Trained:
    checkpoint = checkpoints.newest(str(folder))
    assert checkpoint, output
    lines = (line for line in output.splitlines() if line.startswith("epoch "))
    return Trained(tuple(lines), checkpoint)
