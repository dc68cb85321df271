"""S06: a job of higher priority preempts another at the end of an epoch; nothing is lost."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, Gates, Train

EARLY = Path(__file__).with_name("early.py")


def test_an_urgent_job_stops_another_between_two_epochs(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon = daemons("4x16384")
    long, short = gates("long"), gates("short")
    four = ["--num_gpus", "4", "--estimated_memory", "9000"]
    job_id = daemon.submit(*train(long), *four, "--max_epochs", "5", "long")
    daemon.wait_state(long="RUNNING")
    long.open()
    daemon.wait(lambda jobs: jobs["long"].epochs_done == 1)

    daemon.submit(*train(short), *four, "--max_epochs", "1", "--priority", "10", "urgent")
    asked = daemon.wait_state(long="STOPPING")
    assert "urgent" in asked["long"].reason
    assert asked["urgent"].state == "QUEUED", "the epoch in progress is not interrupted"
    long.open()
    made_room = daemon.wait_state(urgent="RUNNING")["long"]
    assert (made_room.state, made_room.preempted, made_room.epochs_done) == ("QUEUED", True, 2)

    short.open()
    daemon.wait_state(urgent="FINISHED", long="RUNNING")
    long.open(3)
    daemon.wait_state(long="FINISHED")

    logs = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert [line for line in logs if line.startswith("begins")] == [
        "begins at epoch 0 restarted False epochs done 0",
        "begins at epoch 2 restarted True epochs done 2",
    ]
    assert [line for line in logs if line.endswith("done")] == [
        f"epoch {n} done" for n in range(1, 6)
    ]


def test_a_job_that_loads_nothing_does_not_end_as_if_nothing_were_missing(
    daemons: Daemons, gates: Gates, train: Train, tmp_path: Path
) -> None:
    daemon = daemons("4x16384")
    gate = gates("forgetful")
    four = ["--num_gpus", "4", "--estimated_memory", "9000"]
    forgetful = [*train(gate, FORGETS=str(tmp_path)), *four, "--max_epochs", "5", "forgetful"]
    job_id = daemon.submit(*forgetful)
    daemon.wait_state(forgetful="RUNNING")
    gate.open()
    daemon.wait(lambda jobs: jobs["forgetful"].epochs_done == 1)
    daemon.submit(*train(), *four, "--max_epochs", "1", "--priority", "10", "urgent")
    daemon.wait_state(forgetful="STOPPING")
    gate.open()
    daemon.wait_state(urgent="FINISHED", forgetful="RUNNING")
    gate.open(3)
    ended = daemon.wait_state(forgetful="FINISHED")["forgetful"]
    assert (ended.epochs_done, ended.epochs_trained) == (5, 3)
    assert ended.reason == "finished, but its weights have only 3 of 5 epochs"
    shown = daemon.run("scheduler-state", job_id).stdout
    assert "has loaded no checkpoint: epochs 1 to 2 may be missing from its result" in shown
    assert "FINISHED: but its weights have only 3 of 5 epochs" in shown
    logs = daemon.run("scheduler-get-logs", job_id).stdout
    assert logs.count("no checkpoint was found in") == 1
    (record,) = (job for job in daemon.state_of()["jobs"] if job["name"] == "forgetful")
    assert (record["epochs_done"], record["epochs_trained"]) == (5, 3)


def test_the_last_epoch_is_never_interrupted(daemons: Daemons, gates: Gates, train: Train) -> None:
    daemon, gate = daemons("1x16384"), gates("last")
    daemon.submit(*train(gate), "--max_epochs", "2", "last")
    daemon.wait_state(last="RUNNING")
    gate.open()
    daemon.wait(lambda jobs: jobs["last"].epochs_done == 1)
    daemon.submit(*train(), "--max_epochs", "1", "--priority", "10", "urgent")
    daemon.wait(lambda jobs: jobs["urgent"].reason != "" and jobs["last"].state == "RUNNING")
    gate.open()
    daemon.wait_state(last="FINISHED", urgent="FINISHED")
    assert daemon.state_of()["jobs"][1]["attempt"] == 1


def test_a_job_that_can_save_within_an_epoch_is_asked_to_stop_there(
    daemons: Daemons, gates: Gates, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_HEARTBEAT_SECONDS", "1")
    daemon, gate = daemons("1x16384"), gates("short")
    early = [*train()[:-1], str(EARLY)]
    job_id = daemon.submit(*early, "--max_epochs", "5", "early")
    daemon.wait(lambda jobs: jobs["early"].HasField("heard_at"))
    daemon.submit(*train(gate), "--max_epochs", "1", "--priority", "10", "urgent")
    made_room = daemon.wait_state(urgent="RUNNING")["early"]
    assert (made_room.state, made_room.preempted, made_room.epochs_done) == ("QUEUED", True, 0)
    gate.open()
    ended = daemon.wait_state(early="FINISHED")["early"]
    assert (ended.epochs_done, ended.attempt) == (5, 2)
    logs = daemon.run("scheduler-get-logs", job_id).stdout
    assert "asked to stop, by start_epoch False" in logs
    assert "begins with 1000 steps done, 0 epochs" in logs
    assert not any("lost_work_seconds" in fact.data_json for fact in daemon.story(job_id))
