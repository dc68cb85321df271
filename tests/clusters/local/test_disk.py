"""A state folder that cannot be written: full, or read-only. Mounting one takes root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.core.model import Failure, PodState, Remove
from tests.clusters.machine import Machine, is_alive, machine
from tests.support import Gate, eventually

Fill = Callable[[], None]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(command).returncode:
        pytest.skip("cannot mount a small disk here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def here(small: Path) -> Iterator[Machine]:
    with machine(small / "state") as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_on_a_full_disk_a_launch_fails_with_that_reason(here: Machine, small: Path) -> None:
    fill(small)
    key = here.launch("true")
    pod = here.pod(key)
    assert pod is not None
    assert pod.state == PodState.FAILED
    assert pod.reason == Failure.REFUSED, "the job is not charged"
    assert pod.said.startswith("cannot start: ")
    assert pod.said.endswith("No space left on device")
    here.cluster.perform(Remove(*key))
    (small / "filler").unlink()
    again = here.launch("true", job_id=key[0], attempt=2)
    assert here.wait_until_over(again).state == PodState.SUCCEEDED


def test_a_disk_that_fills_up_meanwhile_loses_no_end(
    here: Machine, small: Path, gate: Gate, tmp_path: Path
) -> None:
    text = f"echo up; head -c 1 {gate.path}; exit 7"
    key = here.launch("sh", "-c", text, snapshots_dir=str(tmp_path))
    here.wait_for_output(key, "up")
    fill(small)
    gate.open()
    assert here.wait_until_over(key).exit_code == 7
    here.cluster.perform(Remove(*key))
    assert here.pod(key) is None


def test_on_a_full_disk_a_training_can_still_be_stopped(
    here: Machine, small: Path, tmp_path: Path
) -> None:
    key = here.launch("sh", "-c", "echo up; sleep 1000", snapshots_dir=str(tmp_path))
    here.wait_for_output(key, "up")
    fill(small)
    here.cluster.perform(Remove(*key))
    assert here.wait_until_over(key).reason == "stopped"
    assert not is_alive(here.read_started(key)["pid"])


def test_a_read_only_disk_is_told_and_got_over(here: Machine, small: Path) -> None:
    done = here.launch("true")
    here.wait_until_over(done)
    eventually(here.is_reaped)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    key = here.launch("true")
    pod = here.pod(key)
    assert pod is not None
    assert pod.said.endswith("Read-only file system")
    here.cluster.perform(Remove(*done))
    assert here.pod(done) is not None, "it is still there, and says so"
    subprocess.run(["mount", "-o", "remount,rw", small], check=True)
    here.cluster.perform(Remove(*done))
    assert here.pod(done) is None
