"""A replay of what a real daemon heard in two lives makes the same decisions again."""

from __future__ import annotations

import pytest

from scheduler.core.model import Plan, Rules
from simulator.replays.replay import replay
from simulator.replays.what_if import what_if
from tests.e2e.conftest import Daemons, Gates, Train


@pytest.mark.parametrize("policy", ["gpu_sharing", "fifo_sharing"])
def test_a_daemons_journal_is_replayed_without_a_difference(
    daemons: Daemons, gates: Gates, train: Train, policy: str
) -> None:
    daemon, gate = daemons("2x16384", "--policy", policy), gates("long")
    memory = ["--estimated_memory", "9000"]
    daemon.submit(*train(gate), *memory, "--max_epochs", "4", "long")
    for name in ("short", "waits"):
        daemon.submit(*train(), *memory, "--max_epochs", "2", name)
    daemon.wait_state(long="RUNNING", short="FINISHED", waits="FINISHED")
    gate.open()
    daemon.wait(lambda jobs: jobs["long"].epochs_done == 1)
    daemon.kill()
    daemon.start()
    gate.open(3)
    daemon.wait_state(long="FINISHED")
    database = daemon.state / "scheduler.db"
    while_it_runs = replay(database, from_start=1)
    assert daemon.stop() == 0

    done = replay(database, from_start=1)
    assert (done.starts, done.difference, while_it_runs.difference) == (2, None, None)
    assert done.steps >= while_it_runs.steps > 20

    planted = replay(database, policy=lambda view, now: Plan(), from_start=1).difference
    assert planted is not None
    assert (planted.start, planted.actions) == (1, ())
    assert "run_started" in {fact.kind for fact in planted.recorded}
    assert "run_started" not in {fact.kind for fact in planted.decided}

    seldom = Rules(plan_every_seconds=3600.0)
    assert replay(database, rules=seldom, from_start=1).difference is not None

    answer = what_if(database, "without long")
    assert {job.spec.name for job in answer.jobs} == {"short", "waits"}
    assert {"long", "short", "waits"} == {job.spec.name for job in answer.site.jobs}
    assert answer.before.case.gpus == 2
