"""A daemon that hears old images, and trainings with one of them in it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import Daemon, Gate

TRAIN = Path(__file__).with_name("train.py")
PORTS = range(20_000, 30_000)  # none that the kernel gives to outgoing connections
Submit = Callable[..., str]


@pytest.fixture
def legacy(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the daemon is to hear old images."""
    while True:
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                break
    monkeypatch.setenv("SCHEDULER_LEGACY__LISTEN", f"127.0.0.1:{port}")
    return f"127.0.0.1:{port}"


@pytest.fixture
def daemon(tmp_path: Path, legacy: str) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state")
    made.start()
    yield made
    made.end()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "old.gate")
    yield made
    made.close()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def submit(daemon: Daemon, gate: Gate, checkpoint: Path, legacy: str) -> Submit:
    """A training of this generation. `host`: what it takes for the daemon."""

    def submitted(generation: str, *flags: str, host: str = legacy) -> str:
        told = {
            "GENERATION": generation,
            "LEGACY": host,
            "GATE": str(gate.path),
            "CHECKPOINT": str(checkpoint),
        }
        words = [word for name, value in told.items() for word in ("--env", f"{name}={value}")]
        words += ["--image", "old:1", "--script_path", str(TRAIN), *flags]
        return daemon.submit(*words, "old")

    return submitted
