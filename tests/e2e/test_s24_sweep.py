"""S24: one command submits many jobs, all or none; they are shown and ended by their label."""

from __future__ import annotations

import getpass
import random
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli.client import Client
from scheduler.v1 import scheduler_pb2 as pb
from tests.e2e.conftest import Daemons
from tests.support import eventually

GRID = ("--sweep", "lr=0.1,0.01", "--sweep", "seed=1,2,3", "--num_gpus", "0")


def test_a_grid_runs_with_the_values_of_each_job(daemons: Daemons) -> None:
    daemon = daemons("0")
    command = ("grid", "--", "sh", "-c", 'echo "lr {lr} seed {seed} $SWEEP_VALUES"')
    done = daemon.run("run-scheduler", *GRID, "--wait", *command)
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(ids) == 6
    logs = daemon.run("scheduler-get-logs", ids[4]).stdout
    assert logs == 'lr 0.01 seed 2 {"lr": "0.01", "seed": "2"}\n'
    label = done.stderr.partition("--label ")[2].split()[0]
    assert label.startswith("sweep=")
    names = {job["name"] for job in daemon.state_of("--label", label)["jobs"]}
    assert names == {f"grid-{number}" for number in range(6)}


def test_the_jobs_of_a_sweep_are_compared_by_its_label(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_GATEWAY__LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("SCHEDULER_GATEWAY__USER", getpass.getuser())
    daemon = daemons("0")
    label = ("--label", "sweep=mine")
    done = daemon.run(
        "run-scheduler", *GRID, *label, "--wait", "grid", "--", "echo", "{lr}", "{seed}"
    )
    assert done.returncode == 0, done.stderr

    def compared() -> str:
        return daemon.run("scheduler-compare", *label, "--config").stdout

    eventually(lambda: "0.01" in compared())


def test_waiting_for_a_sweep_tells_which_of_its_jobs_failed(daemons: Daemons) -> None:
    daemon = daemons("0")
    flags = ("--sweep", "code=0,7", "--num_gpus", "0", "--wait")
    done = daemon.run("run-scheduler", *flags, "grid", "--", "sh", "-c", "exit {code}")
    assert done.returncode == 1
    assert "grid-1: FAILED: exit code 7" in done.stderr
    assert "grid-0" not in done.stderr


def test_shuffle_and_limit_choose_some_of_them(daemons: Daemons) -> None:
    daemon = daemons("0")
    done = daemon.run("run-scheduler", *GRID, "--hold", "--shuffle", "--limit", "4", *GRID_COMMAND)
    assert len(done.stdout.split()) == 4, done.stderr
    cancelled = daemon.run(
        "scheduler-cancel-job", "--label", done.stderr.partition("--label ")[2].split()[0], "--yes"
    )
    assert cancelled.returncode == 0, cancelled.stderr
    assert {job["state"] for job in daemon.state_of()["jobs"]} == {"CANCELED"}


GRID_COMMAND = ("grid", "--", "true", "{lr}", "{seed}")


TRAIN = """
import sys
from pathlib import Path
from kubernetesdlprofile import kubeprofiler

api = kubeprofiler.KubeProfiler()
for epoch in api.epochs():
    Path(api.root_dir, "checkpoint").write_text(str(epoch + 1))
    api.log_metric("val_loss", float(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "t.py"
    file.write_text(TRAIN)
    return str(file)


def test_no_more_jobs_of_a_sweep_run_than_may(daemons: Daemons) -> None:
    daemon = daemons("0")
    flags = ("--sweep", "s=1000,1001,1002", "--parallel", "2", "--num_gpus", "0")
    daemon.submit(*flags, "grid", "--", "sleep", "{s}")
    states = {"grid-0": "RUNNING", "grid-1": "RUNNING", "grid-2": "QUEUED"}

    def seen() -> dict[str, str]:
        return {job["name"]: job["state"] for job in daemon.state_of()["jobs"]}

    eventually(lambda: seen() == states)
    reason = daemon.state_of("grid-2")["jobs"][0]["reason"]
    assert reason == "parallel (at most 2 at once; grid-0 and grid-1 come first)"
    daemon.run("scheduler-cancel-job", "grid-0")
    eventually(lambda: seen() == {**states, "grid-0": "CANCELED", "grid-2": "RUNNING"})


def test_a_hopeless_job_stops_after_its_epoch_and_keeps_its_checkpoint(
    daemons: Daemons, script: str, tmp_path: Path
) -> None:
    daemon = daemons("1x16384")
    flags = ("--sweep", "loss=1,3,nan,0.5", "--parallel", "1", "--max_epochs", "9")
    pruned = ("--metric", "val_loss", "--prune", "asha", "--snapshots_dir", str(tmp_path / "snap"))
    done = daemon.run(
        *("run-scheduler", *flags, *pruned, "--wait", "grid", "--"),
        *(sys.executable, script, "{loss}"),
    )
    assert done.returncode == 1, done.stderr
    jobs = {job["name"]: job for job in daemon.state_of()["jobs"]}
    ends = {name: (job["state"], job["epochs_done"]) for name, job in jobs.items()}
    assert ends == {
        "grid-0": ("FINISHED", 9),
        "grid-1": ("CANCELED", 1),
        "grid-2": ("CANCELED", 1),
        "grid-3": ("FINISHED", 9),
    }
    why = "pruned after epoch 1: val_loss 3 is not among the best third of 2 jobs"
    assert jobs["grid-1"]["reason"] == why
    assert f"grid-1: CANCELED: {why}" in done.stderr
    assert jobs["grid-2"]["reason"].endswith("val_loss is not a finite number")
    assert jobs["grid-1"]["scores"] == [{"epoch": 1, "value": 3.0}]
    assert [each["value"] for each in jobs["grid-3"]["scores"]] == [0.5] * 9
    kept = tmp_path / "snap" / jobs["grid-1"]["id"] / "checkpoint"
    assert kept.read_text() == "1"


def test_scores_survive_the_daemon(daemons: Daemons, script: str, tmp_path: Path) -> None:
    """The first job waits in its second epoch while the daemon is killed; the second one is then
    compared with what the first had reported."""
    daemon, gate = daemons("2x16384"), tmp_path / "go"
    Path(script).write_text(
        TRAIN
        + f"    while epoch == 1 and sys.argv[1] == '1' and not Path({str(gate)!r}).exists():\n"
        "        __import__('time').sleep(0.01)\n"
    )
    flags = ("--label", "sweep=s", "--max_epochs", "5", "--metric", "val_loss", "--prune", "asha")
    first = daemon.submit(*flags, "first", "--", sys.executable, script, "1")
    eventually(lambda: daemon.state_of(first)["jobs"][0]["epochs_done"] == 1)
    daemon.kill()
    daemon.start()
    daemon.submit(*flags, "second", "--", sys.executable, script, "2")
    ended = daemon.wait_state(second="CANCELED")["second"]
    assert "val_loss 2 is not among the best third of 2 jobs" in ended.reason
    gate.touch()
    daemon.wait_state(first="FINISHED")


def test_a_function_that_raises_submits_nothing(daemons: Daemons, tmp_path: Path) -> None:
    daemon, file = daemons("0"), tmp_path / "exp.py"
    file.write_text(
        "def spec():\n    yield {'name': 'a', 'command': ['ls'], 'gpus_max': 0}\n    1/0\n"
    )
    done = daemon.run("run-scheduler", "--spec", f"{file}:spec")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("ZeroDivisionError") == 1
    assert daemon.state_of()["jobs"] == []


def test_a_command_that_began_while_no_daemon_was_there_has_its_token(daemons: Daemons) -> None:
    daemon = daemons("0")
    daemon.kill()
    client = Client(daemon.address)
    assert not client.token
    daemon.start()
    asked = pb.JobSpec(name="late", command=["true"], gpus_min=0, gpus_max=0)
    reply = client.submit(pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=asked))
    assert reply.job.spec.user == getpass.getuser()


def test_a_sweep_is_whole_or_not_there_after_a_kill(daemons: Daemons) -> None:
    """The daemon is killed at any moment of the submission."""
    daemon, chance = daemons("0"), random.Random(7)
    values = ",".join(map(str, range(100)))
    exit_codes = []
    for number in range(5):
        command = ("--hold", "--num_gpus", "0", f"s{number}", "--", "true", "{lr}")
        with ThreadPoolExecutor(1) as pool:
            words = ("run-scheduler", "--sweep", f"lr={values}", *command)
            asked = pool.submit(daemon.run, *words)
            if number < 4:
                time.sleep(chance.uniform(0.1, 0.6))
            else:  # on a slow machine, no command may have come so far before
                asked.result()
            daemon.kill()
            daemon.start()
        exit_codes.append(asked.result().returncode)
        assert exit_codes[-1] in (0, 3), asked.result().stderr
        jobs = daemon.state_of("--nlast", "1000", "--status", "HELD")["jobs"]
        there = sum(job["name"].startswith(f"s{number}-") for job in jobs)
        # It sends the jobs again, unless no daemon is there for so long that it gives up.
        assert there == 100 if exit_codes[-1] == 0 else there in (0, 100)
        if there:
            daemon.run("scheduler-cancel-job", "--yes", "--status", "HELD")
    assert set(exit_codes) <= {0, 3}
    assert 0 in exit_codes
