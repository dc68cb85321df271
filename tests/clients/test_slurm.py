"""S18: the commands on a real Slurm. Nothing imitates it: jobs run on its nodes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.clients.slurmd import SlurmUser, needs_slurm
from tests.support import Daemon, Gate, eventually

pytestmark = [pytest.mark.clients, needs_slurm]
TRAIN = Path(__file__).parents[1] / "e2e/train.py"
ODD_WORDS = ("a b", "it's", 'say "x"', "$HOME", "`id`", "*", "\\n", "", "line\nbreak", "ü")
UUID = re.compile(r"[0-9a-f-]{36}")


def job(user: SlurmUser, name: str) -> dict[str, object]:
    (found,) = json.loads(user.says("scheduler-state", name, "--output", "json"))["jobs"]
    assert isinstance(found, dict)
    return found


def test_a_job_is_submitted_seen_read_and_cancelled(user: SlurmUser) -> None:
    job_id = user.submit("long", "--num_gpus", "2", "--", "sh", "-c", "echo here; sleep 600")
    assert UUID.fullmatch(job_id)
    eventually(lambda: job(user, "long")["state"] == "RUNNING")
    eventually(lambda: user.says("scheduler-get-logs", "long") == "here\n")
    assert "gres:gpu:2" in user.cluster.run("squeue", "-h", "-o", "%b")
    assert "CANCELED" not in user.says("scheduler-state")
    shell = user.run("scheduler-connect", "long", "--", "id")
    assert shell.returncode == 4
    assert "srun --jobid=" in shell.stderr
    assert "long" in user.says("scheduler-cancel-job", job_id[-8:])
    eventually(lambda: job(user, job_id)["state"] == "CANCELED")
    assert user.cluster.run("squeue", "-h") == ""


def test_every_argument_arrives_as_it_was_given(user: SlurmUser) -> None:
    words = [*ODD_WORDS, "@ID@", "-x"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    flags = ["--num_gpus", "0", "--wait", "--env", 'ODD=a\'b "$x" \n`c`']
    user.submit("words", *flags, "--", "python3", "-c", script, *words)
    assert json.loads(user.says("scheduler-get-logs", "words")) == words


def test_a_requeued_training_goes_on_after_its_last_epoch(user: SlurmUser, gate: Gate) -> None:
    job_id = user.submit("train", *training(gate), "--max_epochs", "4")
    gate.await_ring()
    gate.open()
    gate.await_ring()  # within the second epoch
    number = user.cluster.run("squeue", "-h", "-o", "%i").strip()
    eventually(lambda: is_warned(user, job_id, number))
    gate.open()
    gate.await_ring()  # its second run, within the third
    record = job(user, job_id)
    assert (record["state"], record["attempt"], record["epochs_done"]) == ("RUNNING", 2, 2)
    gate.open()
    gate.await_ring()
    gate.open()
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    assert job(user, job_id)["epochs_done"] == 4
    assert logged(user, job_id) == [
        "begins at epoch 0 restarted False epochs done 0",
        *("epoch 1 done", "epoch 2 done"),
        "begins at epoch 2 restarted True epochs done 2",
        *("epoch 3 done", "epoch 4 done"),
    ]


def test_a_warned_training_ends_its_epoch_while_the_controller_does_not_answer(
    user: SlurmUser, gate: Gate, tmp_path: Path
) -> None:
    """The script asks Slurm when its time ends; that it is not told does not mean that it has."""
    silent = tmp_path / "bin" / "squeue"
    silent.parent.mkdir()
    silent.write_text('#!/bin/sh\n[ -z "$SLURM_JOB_ID" ] || exit 1\nexec /usr/bin/squeue "$@"\n')
    silent.chmod(0o755)
    user.environment["PATH"] = f"{silent.parent}:{user.environment['PATH']}"
    job_id = user.submit("warned", *training(gate), "--max_epochs", "3", "--num_gpus", "2")
    gate.await_ring()
    number = user.cluster.run("squeue", "-h", "-n", "warned", "-o", "%i").strip()
    eventually(lambda: is_warned(user, job_id, number))
    user.cluster.run("sleep", "2")  # in which it would have been put back into the queue
    assert user.cluster.run("squeue", "-h", "-j", number, "-o", "%t").strip() == "R"
    gate.open(4)
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    begun = [line for line in logged(user, job_id) if "begins" in line]
    assert begun[0] == "begins at epoch 0 restarted False epochs done 0"
    assert all("epoch 0 " not in line for line in begun[1:]), begun


def test_a_preempted_training_goes_on_after_its_last_epoch(user: SlurmUser, gate: Gate) -> None:
    job_id = user.submit("victim", *training(gate), "--max_epochs", "3", "--num_gpus", "4")
    gate.await_ring()
    gate.open()
    gate.await_ring()  # within the second epoch, which the preemption takes from it
    hold = ["sbatch", "--parsable", "-p", "urgent", "--exclusive", "-N", "2", "-J", "boss"]
    user.cluster.run(*hold, "-o", "/dev/null", "--wrap", "sleep 3")
    eventually(lambda: job(user, job_id)["state"] == "QUEUED")
    record = job(user, job_id)
    assert record["preempted"]
    assert record["epochs_done"] == 1
    gate.await_ring()
    gate.open()
    gate.await_ring()
    gate.open()
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    assert [line for line in logged(user, job_id) if "begins" in line] == [
        "begins at epoch 0 restarted False epochs done 0",
        "begins at epoch 1 restarted True epochs done 1",
    ]


def test_a_preemption_with_a_grace_time_takes_no_work(user: SlurmUser, gate: Gate) -> None:
    user.configure(partition="graceful")
    job_id = user.submit("graceful", *training(gate), "--max_epochs", "3", "--num_gpus", "4")
    gate.await_ring()
    eventually(lambda: hears(user))
    boss = ["sbatch", "--parsable", "-p", "urgent", "--exclusive", "-N", "2", "-J", "boss"]
    user.cluster.run(*boss, "-o", "/dev/null", "--wrap", "sleep 1")
    eventually(lambda: job(user, job_id)["state"] == "STOPPING")
    gate.open()  # the epoch ends within the time of grace
    gate.await_ring()
    gate.open()
    gate.await_ring()
    gate.open()
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    assert [line for line in logged(user, job_id) if "begins" in line] == [
        "begins at epoch 0 restarted False epochs done 0",
        "begins at epoch 1 restarted True epochs done 1",
    ]


def is_warned(user: SlurmUser, job_id: str, number: str) -> bool:
    """Warns the job as Slurm does before the end of its time; slurmstepd drops a signal for a
    script that it has only just started."""
    user.cluster.run("scancel", "--batch", "--signal=USR1", number)
    return job(user, job_id)["state"] == "STOPPING"


def hears(user: SlurmUser) -> bool:
    """Whether the step is ready that Slurm tells of a preemption."""
    ours = str(user.cluster.folder).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ear = b"sleep\x002147483647" in (process / "cmdline").read_bytes()
            if is_ear and ours in (process / "environ").read_bytes():
                return True
    return False


def test_it_has_the_variables_that_our_own_runner_sets(user: SlurmUser, tmp_path: Path) -> None:
    user.submit("ours", *training(), "--env", "PRINT_ENVIRONMENT=1", "--wait", "--no_tracking")
    on_slurm = json.loads(logged(user, "ours")[0])
    daemon = Daemon(tmp_path / "state", "1x16384").start()
    try:
        told = {**user.environment, "SCHEDULER_SERVER": daemon.address}
        words = ["--snapshots_dir", str(tmp_path / "snapshots"), "--no_tracking", "--wait"]
        command = training()
        user.environment = told
        user.submit("ours", *words, *command, "--env", "PRINT_ENVIRONMENT=1")
        by_runner = json.loads(logged(user, "ours")[0])
    finally:
        daemon.end()
    own = {
        "KUBEPROFILER_LAST_WORDS",
        "KUBEPROFILER_SERVER",
        "KUBEPROFILER_HTTP",
        "KUBEPROFILER_TOKEN",
    }
    assert by_runner.keys() - on_slurm.keys() <= own
    for name in ("NUM_GPUS", "NUM_NODES", "RANK", "LOCAL_RANK", "WORLD_SIZE", "EPOCHS_DONE"):
        assert on_slurm[name] == by_runner[name]


def test_each_rank_of_each_node_has_its_number_and_its_log(user: SlurmUser) -> None:
    shown = "echo $RANK $LOCAL_RANK $NODE_RANK $NUM_GPUS $NUM_NODES $WORLD_SIZE $NODELIST"
    flags = ["--num_gpus", "4", "--processes_per_node", "gpu", "--wait"]
    user.configure(resources="gpus_per_node=2")
    job_id = user.submit("ranks", *flags, "--", "sh", "-c", shown)
    logs = sorted(user.folder(job_id).glob("attempt-1/rank*.log"))
    assert [path.name for path in logs] == ["rank0.log", "rank1.log"]
    lines = sorted(line for path in logs for line in path.read_text().splitlines())
    assert lines == [
        "0 0 0 2 2 4 n0,n1",
        "1 1 0 2 2 4 n0,n1",
        "2 0 1 2 2 4 n0,n1",
        "3 1 1 2 2 4 n0,n1",
    ]
    told = user.says("scheduler-get-logs", job_id)
    assert "==> attempt 1 (rank 0) <==" in told
    assert "==> attempt 1 (rank 1) <==" in told


def training(gate: Gate | None = None) -> list[str]:
    gated = ["--env", f"GATE={gate.path}"] if gate else []
    return [*gated, "--script_path", str(TRAIN)]


def logged(user: SlurmUser, ref: str) -> list[str]:
    """What the script itself has printed, over all attempts."""
    told = user.says("scheduler-get-logs", ref).partition("==> Slurm")[0].splitlines()
    return [line for line in told if not line.startswith(("==> ", "[KUBE_API"))]


def test_while_the_controller_is_away_nothing_has_failed(user: SlurmUser, gate: Gate) -> None:
    job_id = user.submit("steady", *training(gate), "--max_epochs", "2")
    gate.await_ring()
    eventually(lambda: job(user, job_id)["state"] == "RUNNING")
    user.cluster.kill("slurmctld")
    try:
        eventually(lambda: job(user, job_id)["reason"])
        record = job(user, job_id)
        assert record["state"] == "RUNNING"
        unknown = (
            r"unknown since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: Unable to contact slurm controller.*"
        )
        assert re.fullmatch(unknown, str(record["reason"]))
        refused = user.run("run-scheduler", "more", "--", "true")
        assert (refused.returncode, len(refused.stderr.splitlines())) == (3, 1), refused.stderr
        assert "cannot reach Slurm: " in refused.stderr
    finally:
        user.cluster.start_controller()
    gate.open(2)
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    assert job(user, job_id)["attempt"] == 1


def test_a_controller_that_hangs_is_one_line_in_time(user: SlurmUser) -> None:
    os.kill(user.cluster.pid("slurmctld"), signal.SIGSTOP)
    try:
        done = user.run("scheduler-state")
    finally:
        os.kill(user.cluster.pid("slurmctld"), signal.SIGCONT)
    assert done.returncode == 3
    assert done.stderr.startswith("scheduler-state: cannot reach Slurm: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_answer_that_was_lost_makes_no_second_job(user: SlurmUser, tmp_path: Path) -> None:
    """sbatch submits, and is then taken for dead: the second try finds the job by its id."""
    lossy = tmp_path / "bin/sbatch"
    lossy.parent.mkdir()
    lossy.write_text(
        '#!/bin/sh\n/usr/bin/sbatch "$@" > /dev/null\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv' >&2\n"
        "exit 1\n"
    )
    lossy.chmod(0o755)
    user.environment["PATH"] = f"{lossy.parent}:{user.environment['PATH']}"
    job_id = user.submit("once", "--num_gpus", "0", "--", "sh", "-c", "echo ran; sleep 1")
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    assert logged(user, job_id) == ["ran"]
    assert user.cluster.run("squeue", "-h", "-t", "all", "-n", "once", "-o", "%i").count("\n") == 1


def test_a_second_job_of_slurms_for_the_same_job_does_not_run(user: SlurmUser) -> None:
    job_id = user.submit("first", "--num_gpus", "0", "--", "sh", "-c", "echo ran; sleep 3")
    folder = user.folder(job_id)
    eventually((folder / "slurm").is_symlink)
    words = ["sbatch", "--parsable", "-D", str(folder), "-o", "second.log", "-J", "second"]
    number = user.cluster.run(*words, str(folder / "run.sh"), str(folder)).strip()
    eventually(lambda: number not in user.cluster.run("squeue", "-h", "-o", "%i").split())
    assert "already" in (folder / "second.log").read_text()
    assert logged(user, job_id) == ["ran"]


def test_a_job_whose_folder_was_lost_is_adopted_by_its_comment(user: SlurmUser) -> None:
    job_id = user.submit("lost", "--num_gpus", "0", "--", "sleep", "600")
    eventually(lambda: job(user, "lost")["state"] == "RUNNING")
    shutil.rmtree(user.folder(job_id))
    assert job(user, "lost")["id"] == job_id
    assert "lost" in user.says("scheduler-cancel-job", job_id)
    eventually(lambda: not user.cluster.run("squeue", "-h"))


def test_what_slurm_refuses_is_said_in_one_line_and_leaves_nothing(user: SlurmUser) -> None:
    user.configure(partition="nowhere")
    done = user.run("run-scheduler", "x", "--", "true")
    assert (done.returncode, done.stderr) == (
        4,
        "run-scheduler: slurm: Batch job submission failed: Invalid partition name specified\n",
    )
    assert list(user.folder("").iterdir()) == []
    user.configure(resources="tpu=1")
    done = user.run("run-scheduler", "x", "--", "true")
    assert done.returncode == 4
    assert done.stderr.startswith("run-scheduler: slurm: unsupported resource tpu; supported: ")


def test_a_job_that_fails_says_why_and_is_tried_again_as_often_as_it_may(user: SlurmUser) -> None:
    script = "import sys; sys.exit('no data')"
    words = ["--num_gpus", "0", "--wait", "--retries", "1", "--", "python3", "-c", script]
    done = user.run("run-scheduler", "fails", *words)
    assert done.returncode == 1
    assert "fails: FAILED: exit code 1; its log: no data" in done.stderr
    assert logged(user, "fails") == ["no data", "no data"]
    assert job(user, "fails")["attempt"] == 2


def test_a_job_that_waits_is_told_why_and_when(user: SlurmUser) -> None:
    user.configure(resources="time=10m")
    for number in range(2):
        user.submit(f"full-{number}", "--num_gpus", "4", "--", "sleep", "600")
    waiting = user.submit("waits", "--num_gpus", "4", "--", "true")
    eventually(lambda: "free resources (Resources)" in str(job(user, waiting)["reason"]))
    eventually(lambda: starts_at(user, waiting))
    assert "starts" in user.says("scheduler-state", waiting)


def starts_at(user: SlurmUser, ref: str) -> float:
    eta = job(user, ref)["eta"]
    assert eta is None or isinstance(eta, dict)
    return float(eta["starts_at"] or 0) if eta else 0.0


def test_held_and_released(user: SlurmUser) -> None:
    job_id = user.submit("held", "--num_gpus", "0", "--hold", "--", "true")
    eventually(lambda: job(user, job_id)["state"] == "HELD")
    user.says("scheduler-update-job", job_id, "--release", "--annotate", "idea=a b")
    eventually(lambda: job(user, job_id)["state"] == "FINISHED")
    assert job(user, job_id)["annotations"] == {"idea": "a b"}
    done = user.run("scheduler-update-job", job_id, "--priority", "3")
    assert (done.returncode, done.stderr) == (
        4,
        "scheduler-update-job: slurm: --priority of a submitted job cannot be changed\n",
    )


def test_secrets_are_in_no_command_line_and_in_no_record(user: SlurmUser) -> None:
    user.environment["KEY"] = "it's\nsecret"
    flags = ["--num_gpus", "0", "--secret", "KEY", "--wait"]
    job_id = user.submit(
        "secretive", *flags, "--", "python3", "-c", "import os; print(os.environ['KEY'])"
    )
    assert user.says("scheduler-get-logs", job_id) == "it's\nsecret\n"
    kept = [path for path in user.folder(job_id).iterdir() if path.is_file()]
    assert {path.name for path in kept} >= {"job.json", "run.sh", "story"}
    assert [path.name for path in kept if "s\\nsecret" in repr(path.read_text())] == []
    assert "secret\n" not in user.cluster.run("squeue", "-h", "-t", "all", "-o", "%all")


def test_a_dry_run_says_what_would_run_and_changes_nothing(user: SlurmUser) -> None:
    told = user.says("run-scheduler", "--dry_run", "x", "--", "echo", "a b")
    assert 'command  ["echo","a b"]' in told
    assert "KUBEPROFILER_FILES" not in told
    assert "would start at" in told
    assert user.cluster.run("squeue", "-h") == ""
    assert user.says("scheduler-state") == ""


def test_jobs_are_compared_by_what_was_set(user: SlurmUser) -> None:
    for lr in ("0.1", "0.2"):
        user.submit(f"lr-{lr}", "--num_gpus", "0", "--hold", "--", "python", "t.py", "--lr", lr)
    done = user.run("scheduler-compare", "lr-0.1", "lr-0.2")
    assert done.returncode == 0
    assert re.search(r"param.lr +0.1 +0.2", done.stdout)
    assert "only what was set is compared" in done.stderr
    assert user.run("scheduler-open").stderr == (
        "scheduler-open: slurm: no gateway is there, which has pages and keeps what trainings log\n"
    )


def test_a_sweep_is_one_array_of_which_some_run_at_once(user: SlurmUser) -> None:
    user.environment["KEY"] = "it's"
    words = ["--sweep", "lr=0.1,0.2", "--sweep", "seed=1,2", "--parallel", "2", "--secret", "KEY"]
    program = "echo $0 $1 $KEY; while [ ! -e go ]; do sleep 0.1; done"
    command = ["--", "sh", "-c", program, "{lr}", "{seed}"]
    ids = user.submit("grid", "--num_gpus", "0", *words, *command).split()
    assert len(ids) == 4
    assert user.cluster.run("squeue", "-h", "-o", "%i").count("\n") < 4, "pending tasks are a line"

    def states() -> list[str]:
        return sorted(str(job(user, each)["state"]) for each in ids)

    eventually(lambda: states() == ["QUEUED", "QUEUED", "RUNNING", "RUNNING"])
    waiting = next(each for each in ids if job(user, each)["state"] == "QUEUED")
    assert "as many of its array run as may at once" in str(job(user, waiting)["reason"])
    user.says("scheduler-cancel-job", waiting)
    (user.home / "go").touch()
    eventually(lambda: states() == ["CANCELED", "FINISHED", "FINISHED", "FINISHED"])
    ran = [logged(user, each) for each in ids if each != waiting]
    assert all(lines[0].endswith(" it's") for lines in ran)
    assert len({lines[0] for lines in ran}) == 3


def test_a_sweep_that_slurm_refuses_leaves_nothing(user: SlurmUser) -> None:
    user.configure(partition="nowhere")
    done = user.run("run-scheduler", "--sweep", "lr=1,2", "grid", "--", "echo", "{lr}")
    assert (done.returncode, done.stdout) == (4, "")
    assert "Invalid partition name specified" in done.stderr
    assert [path.name for path in user.folder("").iterdir()] == []
