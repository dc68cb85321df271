"""The current library replaces an old one in an image, without a new build of the image, and goes
on from what the old one saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clusters.machine import shows_snapshots
from tests.legacy.conftest import Submit, weights
from tests.legacy.test_images import ALL, EPOCHS, URGENT, opened
from tests.support import Daemon, Gate

pytestmark = shows_snapshots


def libraries(daemon: Daemon, job_id: str) -> list[str]:
    """Those that its runs found, one after the other."""
    said = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert "its own is there False" not in said
    return [line.removeprefix("library ") for line in said if line.startswith("library ")]


NEW = "beside ['kubernetesdlprofile']"


@pytest.mark.parametrize("generation", ["G1", "G2", "G5", "G8"])
def test_the_second_run_of_an_old_image_has_the_library_of_today(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, "--max_epochs", str(EPOCHS))
    gate.await_ring()
    gate.open()
    gate.await_ring()
    urgent_id = daemon.submit(*URGENT)
    daemon.wait_state(old="STOPPING")
    gate.open()
    with opened(gate):
        made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted) == ("QUEUED", True)
    daemon.kill()
    daemon.start()  # which knows of it

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    with opened(gate):
        ended = daemon.wait_state(old="FINISHED")["old"]
    assert (ended.epochs_done, ended.attempt) == (EPOCHS, 2)
    assert weights(snapshots, job_id) == ALL
    assert libraries(daemon, job_id) == ["its own", NEW]
    started = [fact for fact in daemon.story(job_id) if fact.kind == "run_started"]
    assert [json.loads(fact.data_json).get("library") for fact in started] == [None, "renewed"]
    assert "all epochs" not in ended.reason, "it said that it had finished"


def test_the_next_job_of_the_kind_has_it_at_once_unless_it_keeps_its_own(
    daemon: Daemon, gate: Gate, submit: Submit
) -> None:
    with opened(gate):
        jobs = []
        for name, *flags in (("first",), ("second",), ("third", "--keep_library")):
            jobs.append(submit("G8", "--max_epochs", str(EPOCHS), *flags, name=name))
            daemon.wait_state(**{name: "FINISHED"})
    assert [libraries(daemon, job_id) for job_id in jobs] == [["its own"], [NEW], ["its own"]]
