"""Images of each generation of the old library finish their job, with every epoch done once,
through a restart of the daemon and an urgent job that comes between."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.legacy.conftest import Submit
from tests.support import Daemon, Gate, eventually

EPOCHS = 6
URGENT = ("--image", "none", "--priority", "10", "urgent", "--", "sleep", "1000")


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


def kept(checkpoint: Path) -> list[int]:
    return [int(line) for line in checkpoint.read_text().split()] if checkpoint.exists() else []


def one_epoch_and_a_restart(daemon: Daemon, gate: Gate, checkpoint: Path) -> None:
    """Until it stands in its third epoch."""
    gate.await_ring()
    gate.open()
    gate.await_ring()
    eventually(lambda: kept(checkpoint) == [1])
    daemon.wait(lambda jobs: jobs["old"].HasField("heard_at"))
    daemon.kill()
    daemon.start()
    daemon.wait_state(old="RUNNING")
    gate.open()
    gate.await_ring()


@pytest.mark.parametrize("generation", ["G1", "G2", "G5", "G6", "G8"])
def test_an_image_that_can_stop_does_every_epoch_once(
    daemon: Daemon, gate: Gate, checkpoint: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, "--max_epochs", str(EPOCHS))
    one_epoch_and_a_restart(daemon, gate, checkpoint)
    daemon.wait(lambda jobs: jobs["old"].epochs_done == 2)

    urgent_id = daemon.submit(*URGENT)
    daemon.wait_state(old="STOPPING")
    gate.open()
    with opened(gate):  # in some of them what is asked and what is told race each other
        made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted) == ("QUEUED", True)
    assert kept(checkpoint) == list(range(1, made_room.epochs_done + 1))

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    with opened(gate):
        ended = daemon.wait_state(old="FINISHED")["old"]
    assert ended.epochs_done == EPOCHS
    assert kept(checkpoint) == list(range(1, EPOCHS + 1))
    story = daemon.story(job_id)
    facts = [fact.kind for fact in story]
    assert facts.count("run_ended") == 2
    assert not any("lost_work_seconds" in fact.data_json for fact in story)
    assert "epochs_beyond_max" not in facts


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_RULES__STOP_GRACE_SECONDS", "3")
    monkeypatch.setenv("SCHEDULER_LOCAL__STOP_GRACE_SECONDS", "0.5")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("generation", "told"), [("G0", 0), ("G3", EPOCHS), ("G4", EPOCHS), ("G7", EPOCHS), ("G7b", 0)]
)
def test_an_image_that_cannot_stop_is_killed_and_does_that_epoch_again(
    daemon: Daemon, gate: Gate, checkpoint: Path, submit: Submit, generation: str, told: int
) -> None:
    job_id = submit(generation, "--max_epochs", str(EPOCHS))
    one_epoch_and_a_restart(daemon, gate, checkpoint)

    urgent_id = daemon.submit(*URGENT)
    daemon.wait_state(old="STOPPING")
    gate.open()  # it is told to stop, if it asks, and goes on
    made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted) == ("QUEUED", True)
    (ended,) = (fact for fact in daemon.story(job_id) if fact.kind == "run_ended")
    assert json.loads(ended.data_json)["lost_work_seconds"] > 0

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    with opened(gate):
        finished = daemon.wait_state(old="FINISHED")["old"]
    assert finished.epochs_done == told
    assert kept(checkpoint) == list(range(1, EPOCHS + 1))
