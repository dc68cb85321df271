"""A daemon for each test, and a training script that tests control step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import Daemon, Gate

TRAIN = Path(__file__).with_name("train.py")
Daemons = Callable[..., Daemon]
Gates = Callable[[str], Gate]
Train = Callable[..., list[str]]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """Starts daemons: `daemons("1x16384", "--flag", "value")`; all of them use one state folder."""
    made: list[Daemon] = []

    def make(gpus: str = "1x16384", *flags: str) -> Daemon:
        made.append(Daemon(tmp_path / "state", gpus, *flags).start())
        return made[-1]

    yield make
    for daemon in made:
        daemon.end()


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Gates]:
    made: list[Gate] = []

    def make(name: str) -> Gate:
        made.append(Gate(tmp_path / f"{name}.gate"))
        return made[-1]

    yield make
    for gate in made:
        gate.close()


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """The flags that submit the training script; `gate` makes it wait before each epoch's end."""

    def flags(gate: Gate | None = None, memory: int = 0, **env: str) -> list[str]:
        words = ["--image", "img:new", "--snapshots_dir", str(tmp_path / "snapshots")]
        words += ["--env", f"GATE={gate.path if gate else ''}"]
        words += ["--env", f"KUBEPROFILER_PRETEND_MEMORY_MIB={memory}"]
        for key, value in env.items():
            words += ["--env", f"{key}={value}"]
        return [*words, "--script_path", str(TRAIN)]

    return flags
