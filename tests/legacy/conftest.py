"""A daemon that hears old images, and trainings with one of them in it."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import Daemon, Gate

TRAIN = Path(__file__).with_name("train.py")
IMAGES = Path(__file__).with_name("images")
# A folder with real old libraries, each in a folder that is called like its generation, and
# `site-packages` with what they need. They are other people's code, and not part of this project.
REAL = os.environ.get("OLD_LIBRARIES", "")
PORTS = range(20_000, 30_000)  # none that the kernel gives to outgoing connections
Submit = Callable[..., str]

# Its caller is its parent, or the parent of the shell between them.
NVIDIA_SMI = """#!/bin/sh
echo "<nvidia_smi_log><gpu><processes>"
read -r pid name state parent rest < /proc/$PPID/stat  # without programs that an image may lack
for pid in $PPID $parent; do
    echo "<process_info><pid>$pid</pid><used_memory>250 MiB</used_memory></process_info>"
done
echo "</processes></gpu></nvidia_smi_log>"
"""


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
def snapshots(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def search_path(tmp_path: Path) -> str:
    """A PATH with a program `nvidia-smi`, which shows the memory of whoever calls it."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    return f"{smi.parent}:{plain_path()}"


def plain_path() -> str:
    return f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def image(generation: str) -> list[str]:
    """The folders on the PYTHONPATH of this image: the first has its library."""
    if REAL and Path(REAL, generation).is_dir():
        return [f"{REAL}/{generation}", f"{REAL}/site-packages"]
    return [str(IMAGES)]


@pytest.fixture
def submit(daemon: Daemon, gate: Gate, snapshots: Path, legacy: str, search_path: str) -> Submit:
    """A training of this generation. `host`: what it takes for the daemon."""

    def submitted(
        generation: str, *flags: str, host: str = legacy, name: str = "old", path: str = search_path
    ) -> str:
        told = {
            "GENERATION": generation,
            "IMAGE": image(generation)[0],
            "PYTHONPATH": ":".join(image(generation)),
            "PATH": path,
            "LEGACY": host,
            "GATE": str(gate.path),
        }
        words = [word for key, value in told.items() for word in ("--env", f"{key}={value}")]
        words += ["--image", "old:1", "--snapshots_dir", str(snapshots)]
        words += ["--script_path", str(TRAIN), *flags]
        return daemon.submit(*words, name)

    return submitted


def weights(snapshots: Path, job_id: str) -> list[int]:
    """The epochs in what the job has saved, in the order in which they were trained."""
    saved = snapshots / job_id / "net"
    return [int(line) for line in saved.read_text().split()] if saved.exists() else []
