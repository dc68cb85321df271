"""Images of each generation of the old library finish their job, with every epoch done once,
through a restart of the daemon and an urgent job that comes between."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.legacy.conftest import Submit
from tests.support import Daemon, Gate

EPOCHS = 5


@pytest.mark.parametrize("generation", ["G8"])
def test_an_image_that_can_stop_does_every_epoch_once(
    daemon: Daemon, gate: Gate, checkpoint: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, "--max_epochs", str(EPOCHS))
    gate.await_ring()
    gate.open()
    daemon.wait(lambda jobs: jobs["old"].epochs_done == 1)
    gate.await_ring()  # it is in its second epoch

    daemon.kill()
    daemon.start()
    daemon.wait_state(old="RUNNING")
    gate.open()
    daemon.wait(lambda jobs: jobs["old"].epochs_done == 2)
    gate.await_ring()

    urgent = ("--image", "none", "--priority", "10", "urgent", "--", "sleep", "1000")
    urgent_id = daemon.submit(*urgent)
    daemon.wait_state(old="STOPPING")
    gate.open()
    made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted, made_room.epochs_done) == ("QUEUED", True, 3)

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    daemon.wait_state(old="RUNNING")
    gate.open(2)
    ended = daemon.wait_state(old="FINISHED")["old"]
    assert ended.epochs_done == EPOCHS
    assert checkpoint.read_text().split() == [str(n + 1) for n in range(EPOCHS)]
    facts = [fact.kind for fact in daemon.story(job_id)]
    assert facts.count("run_ended") == 2
    assert "epochs_beyond_max" not in facts
