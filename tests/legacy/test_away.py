"""Old images while no daemon runs: this is not their jobs' fault, and nothing that they have
trained is forgotten, or called finished without knowing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clusters.machine import shows_snapshots
from tests.legacy.conftest import Submit, weights
from tests.legacy.test_images import ALL, EPOCHS, OLD, opened
from tests.support import Daemon, Gate, eventually

pytestmark = shows_snapshots


def run_to_the_third_epoch(daemon: Daemon, gate: Gate) -> None:
    for _ in range(2):
        gate.await_ring()
        gate.open()
    gate.await_ring()
    daemon.wait(lambda jobs: jobs["old"].epochs_done == 2)
    daemon.kill()


@pytest.mark.parametrize("generation", ["G1", "G2"])
def test_an_image_that_a_lost_connection_ends_is_run_again_without_blame(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD)
    run_to_the_third_epoch(daemon, gate)
    (run,) = (daemon.state / "runs").glob("*-1")
    gate.open()
    eventually((run / "ended.json").exists)
    daemon.start()
    with opened(gate):
        ended = daemon.wait_state(old="FINISHED")["old"]
    assert (ended.epochs_done, ended.attempt) == (EPOCHS, 2)
    assert weights(snapshots, job_id) == ALL
    reasons = [
        json.loads(fact.data_json)["reason"]
        for fact in daemon.story(job_id)
        if fact.kind == "run_ended"
    ]
    assert reasons[0].startswith("its old library could not reach the scheduler: requests.exc")


@pytest.mark.parametrize("generation", ["G3", "G4", "G5", "G6", "G8"])
def test_epochs_that_no_daemon_heard_of_are_counted_afterwards(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD)
    run_to_the_third_epoch(daemon, gate)
    for _ in range(2):
        gate.open()
        gate.await_ring()
    eventually(lambda: weights(snapshots, job_id) == ALL[:4])
    daemon.start()
    daemon.wait_state(old="RUNNING")
    gate.open()
    with opened(gate):
        ended = daemon.wait_state(old="FINISHED")["old"]
    assert (ended.epochs_done, ended.attempt) == (EPOCHS, 1)
    assert weights(snapshots, job_id) == ALL


@pytest.mark.parametrize("generation", ["G3", "G4", "G5", "G6", "G8"])
def test_what_cannot_be_known_is_not_called_finished(
    daemon: Daemon, gate: Gate, snapshots: Path, submit: Submit, generation: str
) -> None:
    job_id = submit(generation, *OLD)
    run_to_the_third_epoch(daemon, gate)
    (run,) = (daemon.state / "runs").glob("*-1")
    with opened(gate):
        gate.open()
        eventually((run / "ended.json").exists)
    daemon.start()
    failed = daemon.wait_state(old="FAILED")["old"]
    assert failed.reason.startswith(f"exit code 0 after 2 of {EPOCHS} reported epochs, but its old")
    assert weights(snapshots, job_id) == ALL
