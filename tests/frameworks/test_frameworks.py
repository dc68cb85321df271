"""The examples that need a framework, and their hooks, with the real frameworks.

`make test-frameworks` passes the Python that has them in FRAMEWORKS."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scheduler.clusters.environment import Paths, environment
from scheduler.core.model import PRETENDED, Gpu, JobId, JobSpec, Launch, Share
from tests.frameworks.conftest import (
    CARD_MIB,
    EPOCHS,
    ROUNDS,
    Alone,
    Example,
    Preempted,
    Trained,
)

pytestmark = pytest.mark.frameworks
PYTHON = os.environ.get("FRAMEWORKS", "")
NEEDS = {
    "pytorch": ["torch"],
    "pytorch_ddp": ["torch"],
    "lightning": ["torch", "lightning"],
    "keras": ["tensorflow", "keras"],
    "hugging_face": ["torch", "transformers", "accelerate"],
}
LOOK = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
GPUS = {"pytorch_ddp": 2}


@pytest.fixture(params=NEEDS)
def example(request: pytest.FixtureRequest) -> Example:
    name = request.param
    return Example(name, python_with(name), GPUS.get(name, 1))


def python_with(name: str) -> str:
    """The Python that runs this example; without it the test is skipped."""
    if not PYTHON:
        pytest.skip("FRAMEWORKS names no Python that has them: `make test-frameworks` installs one")
    if subprocess.run([PYTHON, "-c", LOOK, *NEEDS[name]]).returncode:
        pytest.skip(f"{PYTHON} lacks one of {', '.join(NEEDS[name])}")
    return PYTHON


def test_it_trains_alone_and_learns(alone: Alone, example: Example) -> None:
    losses = alone(example).losses()
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_stopped_anywhere_it_ends_with_the_same_weights(
    alone: Alone, preempted: Preempted, example: Example, seed: int
) -> None:
    whole, pieces = alone(example), preempted(example, seed)
    assert pieces.log == whole.log, "each epoch once, with the very loss"
    assert apart(whole, pieces) == 0.0, "bit for bit"


def apart(one: Trained, other: Trained) -> float:
    script = Path(__file__).with_name("difference.py")
    done = subprocess.run(
        [PYTHON, script, one.checkpoint, other.checkpoint], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return float(done.stdout.split()[0])


def test_two_nodes_with_a_gpu_each_train_as_one_with_two(alone: Alone, tmp_path: Path) -> None:
    """S19 on one machine: two processes with the environment of two nodes."""
    script = Example("pytorch_ddp", python_with("pytorch_ddp"), gpus=2)
    gpu, paths = Gpu("card", 0, PRETENDED, CARD_MIB), Paths(snapshots=str(tmp_path))
    shares = tuple(Share(node, gpu.uuid, CARD_MIB) for node in ("n1", "n2"))
    launch = Launch(JobId("j"), 1, JobSpec("j", "ada"), shares, 0, EPOCHS, "")
    hosts = ("127.0.0.1", "127.0.0.1")
    told = [environment(launch, [gpu], "", paths, rank=rank, hosts=hosts) for rank in (0, 1)]
    ranks = [
        subprocess.Popen(
            [script.python, script.script],
            env={**os.environ, **script.environment, **own},
            stdout=subprocess.PIPE,
            text=True,
        )
        for own in told
    ]
    said, nothing = (rank.communicate()[0] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert (tuple(said.splitlines()), nothing) == (alone(script).log, "")
