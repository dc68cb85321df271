"""Images of each generation of the old library finish their job, with every epoch in the weights
once, through a restart of the daemon and an urgent job that comes between."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clusters.machine import shows_snapshots
from tests.legacy.conftest import Submit, plain_path, weights
from tests.support import Daemon, Gate, eventually

EPOCHS = 6
URGENT = ("--image", "none", "--priority", "10", "urgent", "--", "sleep", "1000")
OLD = ("--keep_library", "--max_epochs", str(EPOCHS))
ALL = list(range(1, EPOCHS + 1))

pytestmark = shows_snapshots


@contextmanager
def opened(gate: Gate) -> Iterator[None]:
    """Answers any client, for a while."""
    enough = threading.Event()

    def lead() -> None:
        while not enough.is_set():
            if gate.rings(0.05):
                gate.open()

    leading = threading.Thread(target=lead)
    leading.start()
    try:
        yield
    finally:
        enough.set()
        leading.join()


def two_epochs_and_a_restart(daemon: Daemon, gate: Gate, folder: Path, job_id: str) -> None:
    """Until it stands in its third epoch."""
    gate.await_ring()
    gate.open()
    gate.await_ring()
    eventually(lambda: weights(folder, job_id) == [1])
    daemon.kill()
    daemon.start()
    daemon.wait_state(old="RUNNING")
    gate.open()
    gate.await_ring()


@pytest.mark.parametrize("generation", ["G1", "G2", "G5", "G6", "G8"])
def test_an_image_that_can_stop_has_every_epoch_in_its_weights_once(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD)
    two_epochs_and_a_restart(daemon, gate, snapshots, job_id)
    daemon.wait(lambda jobs: jobs["old"].epochs_done == 2)

    urgent_id = daemon.submit(*URGENT)
    daemon.wait_state(old="STOPPING")
    gate.open()
    with opened(gate):  # in some of them what is asked and what is told race each other
        made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted) == ("QUEUED", True)
    assert weights(snapshots, job_id) == list(range(1, made_room.epochs_done + 1))

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    with opened(gate):
        ended = daemon.wait_state(old="FINISHED")["old"]
    assert ended.epochs_done == EPOCHS
    assert weights(snapshots, job_id) == ALL
    story = daemon.story(job_id)
    facts = [fact.kind for fact in story]
    assert facts.count("run_ended") == 2
    assert not any("lost_work_seconds" in fact.data_json for fact in story)
    assert "epochs_beyond_max" not in facts
    repeated = [json.loads(fact.data_json) for fact in story if fact.kind == "epoch_unsaved"]
    one = [{"epoch": made_room.epochs_done + 1}]
    # G5 asks and tells in threads. If the restart of the daemon has swallowed a question, it may
    # look like an image that asks at the end of an epoch: an epoch is repeated, and none is lost.
    assert repeated in {"G1": [one], "G2": [one], "G5": [[], one]}.get(generation, [[]])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_RULES__STOP_GRACE_SECONDS", "8")
    monkeypatch.setenv("SCHEDULER_LOCAL__STOP_GRACE_SECONDS", "0.5")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("generation", ["G3", "G4", "G7b"])
def test_an_image_that_cannot_stop_is_killed_and_does_that_epoch_again(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD)
    two_epochs_and_a_restart(daemon, gate, snapshots, job_id)

    urgent_id = daemon.submit(*URGENT)
    daemon.wait_state(old="STOPPING")
    gate.open()  # it is told to stop, if it asks, and goes on
    gate.await_ring()
    made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted) == ("QUEUED", True)
    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    with opened(gate):
        finished = daemon.wait_state(old="FINISHED")["old"]
    assert finished.epochs_done == EPOCHS
    assert weights(snapshots, job_id) == ALL


@pytest.mark.parametrize("generation", ["G0a", "G0b"])
def test_an_image_that_knows_no_epochs_is_left_to_its_end_which_says_so(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD)
    gate.open(EPOCHS)
    ended = daemon.wait_state(old="FINISHED")["old"]
    assert ended.reason == f"finished, but reported none of its {EPOCHS} epochs"
    assert weights(snapshots, job_id) == ALL


def test_an_image_with_a_fault_of_its_own_fails_with_it(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit
) -> None:
    job_id = submit("G7a", *OLD)
    gate.open(EPOCHS)
    failed = daemon.wait_state(old="FAILED")["old"]
    assert failed.reason == "exit code 1"
    assert "TypeError: unsupported operand" in daemon.run("scheduler-get-logs", job_id).stdout
    assert weights(snapshots, job_id) == []


@pytest.mark.parametrize("generation", ["G1", "G2", "G7b", "G8"])
def test_without_nvidia_smi_these_end_by_themselves(
    daemon: Daemon, gate: Gate, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD, path=plain_path())
    gate.open(EPOCHS)
    daemon.wait_state(old="FAILED")
    assert "ParseError: no element found" in daemon.run("scheduler-get-logs", job_id).stdout


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_RULES__SILENT_SECONDS", "3")
    monkeypatch.setenv("SCHEDULER_LOCAL__STOP_GRACE_SECONDS", "0.5")
    monkeypatch.setenv("SCHEDULER_LOCAL__OBSERVE_EVERY_SECONDS", "0.5")


@pytest.mark.usefixtures("soon")
def test_without_nvidia_smi_one_hangs_and_is_ended_with_a_reason(
    daemon: Daemon, gate: Gate, submit: Submit
) -> None:
    submit("G6", *OLD, path=plain_path())
    gate.open(EPOCHS)
    failed = daemon.wait_state(old="FAILED")["old"]
    assert failed.reason.startswith("it hangs: its last report was more than ")
