"""The library of today in an image without `grpcio`: it speaks to the listener for old images."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.legacy.conftest import Submit
from tests.support import Daemon, Gate

EPOCHS = 4
TRAIN = Path(__file__).parents[1] / "e2e" / "train.py"


@pytest.fixture
def submit(daemon: Daemon, gate: Gate, tmp_path: Path) -> Submit:
    """A training in which `grpc` cannot be imported."""
    broken = tmp_path / "image" / "grpc.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('this image has none')\n")

    def submitted(*flags: str) -> str:
        told = {"GATE": gate.path, "PYTHONPATH": broken.parent, "PRINT_ENVIRONMENT": 1}
        words = [word for name, value in told.items() for word in ("--env", f"{name}={value}")]
        words += ["--image", "new:1", "--snapshots_dir", str(tmp_path / "snapshots")]
        return daemon.submit(*words, "--script_path", str(TRAIN), *flags, "new")

    return submitted


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_LEGACY__TOKEN_REQUIRED", "true")


@pytest.mark.usefixtures("watchful")
def test_without_grpcio_a_job_makes_room_and_does_every_epoch_once(
    daemon: Daemon, gate: Gate, submit: Submit, legacy: str
) -> None:
    job_id = submit("--max_epochs", str(EPOCHS))
    gate.await_ring()
    gate.open()
    gate.await_ring()
    daemon.wait(lambda jobs: jobs["new"].epochs_done == 1)
    daemon.kill()
    daemon.start()

    urgent = ("--image", "none", "--priority", "10", "urgent", "--", "sleep", "1000")
    urgent_id = daemon.submit(*urgent)
    daemon.wait_state(new="STOPPING")
    gate.open()
    made_room = daemon.wait_state(urgent="RUNNING")["new"]
    assert (made_room.state, made_room.preempted, made_room.epochs_done) == ("QUEUED", True, 2)

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    for _ in range(2, EPOCHS):
        gate.await_ring()
        gate.open()
    ended = daemon.wait_state(new="FINISHED")["new"]
    assert (ended.epochs_done, ended.attempt) == (EPOCHS, 2)

    logs = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    done = [line for line in logs if line.startswith("epoch ")]
    assert done == [f"epoch {number} done" for number in range(1, EPOCHS + 1)]
    assert any(f'"KUBEPROFILER_HTTP": "{legacy}"' in line for line in logs)
    assert not any("refuses" in line for line in logs), "it was heard, with its token"
    story = daemon.story(job_id)
    assert not any("lost_work_seconds" in fact.data_json for fact in story)
