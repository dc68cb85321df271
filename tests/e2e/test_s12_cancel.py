"""S12: a job is ended by its owner or an admin, immediately or after its epoch; others continue."""

from pathlib import Path

from tests.e2e.conftest import Daemons, Gates, Train


def test_a_running_job_is_ended_and_its_gpu_reused(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, gate = daemons("1x16384"), gates("g")
    job_id = daemon.submit(*train(gate), "--max_epochs", "9", "first")
    daemon.submit(*train(gate), "--max_epochs", "1", "second")
    daemon.wait_state(first="RUNNING", second="QUEUED")
    done = daemon.run("scheduler-cancel-job", job_id[-8:])
    assert done.returncode == 0, done.stderr
    daemon.wait_state(first="CANCELED", second="RUNNING")
    assert (daemon.state.parent / "snapshots" / job_id).is_dir()

    again = daemon.run("scheduler-cancel-job", job_id)
    assert again.returncode == 0
    assert "already" in again.stdout + again.stderr
    gate.open()
    daemon.wait_state(second="FINISHED")


def test_a_graceful_end_waits_for_the_epoch(daemons: Daemons, gates: Gates, train: Train) -> None:
    daemon, gate = daemons("1x16384"), gates("g")
    daemon.submit(*train(gate), "--max_epochs", "9", "kind")
    daemon.wait_state(kind="RUNNING")
    gate.open()
    daemon.wait(lambda jobs: jobs["kind"].epochs_done == 1)
    assert daemon.run("scheduler-cancel-job", "--graceful", "kind").returncode == 0
    daemon.wait_state(kind="STOPPING")
    gate.open()
    assert daemon.wait_state(kind="CANCELED")["kind"].epochs_done == 2


def test_only_the_owner_or_an_admin_may_cancel(
    daemons: Daemons, gates: Gates, train: Train, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('admins = ["daemon"]\n')
    daemon, gate = daemons("1x16384", "--config", config), gates("g")
    job_id = daemon.submit(*train(gate), "--max_epochs", "2", "mine")
    daemon.wait_state(mine="RUNNING")
    refused = daemon.run("scheduler-cancel-job", job_id, user="nobody")
    assert refused.returncode == 4
    assert daemon.state_of()["jobs"][0]["state"] == "RUNNING"
    assert daemon.run("scheduler-cancel-job", job_id, user="daemon").returncode == 0
    daemon.wait_state(mine="CANCELED")


def test_filters_ask_first_and_a_bad_id_does_not_affect_the_others(
    daemons: Daemons, train: Train
) -> None:
    daemon = daemons("0")
    flags = ("--hold", "--num_gpus", "0", "--experiment", "X")
    first, _ = [daemon.submit(*train(), *flags, name) for name in ("a", "b")]
    no = daemon.run("scheduler-cancel-job", "--experiment", "X", "--status", "HELD", answer="\n")
    assert "a" in no.stdout + no.stderr
    assert {job["state"] for job in daemon.state_of()["jobs"]} == {"HELD"}
    mixed = daemon.run("scheduler-cancel-job", "a", "nosuchjob")
    assert mixed.returncode == 1
    assert "nosuchjob" in mixed.stderr
    assert daemon.state_of(first)["jobs"][0]["state"] == "CANCELED"
    yes = daemon.run("scheduler-cancel-job", "--experiment", "X", "--yes")
    assert yes.returncode == 0, yes.stderr
    assert {job["state"] for job in daemon.state_of()["jobs"]} == {"CANCELED"}
