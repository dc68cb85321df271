"""Pilots on a real Slurm: jobs share GPUs in an allocation, and go on in the next one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.slurmd import SlurmUser, needs_slurm
from tests.clients.test_slurm import TRAIN, job, logged
from tests.nvml.machine import Machine
from tests.support import Gate, eventually

pytestmark = [pytest.mark.clients, needs_slurm]
SETUP = "export SCHEDULER_RULES__PLAN_EVERY_SECONDS=0.05"
PRETENDED = f"{SETUP} SCHEDULER_GPUS=1x16384 SET_UP='a b' SET_UP_TOO=1; cd /"


def pilot_of(user: SlurmUser, size: str = "gpus=1 idle=4s", setup: str = PRETENDED) -> None:
    user.configure(pilot=size, python=sys.executable, setup=setup)


@pytest.fixture
def pilots(user: SlurmUser) -> Iterator[SlurmUser]:
    pilot_of(user)
    yield user
    user.cluster.cancel_all()


def folder(user: SlurmUser) -> Path:
    return user.home / ".epoch-scheduler/slurm/pilots/lab"


def queue(user: SlurmUser, what: str = "%T") -> list[str]:
    return user.cluster.run("squeue", "-h", "-n", "pilot-lab", "-o", what).split()


def train(gate: Gate, epochs: int = 3, mib: int = 6000) -> list[str]:
    flags = ["--estimated_memory", str(mib), "--max_epochs", str(epochs)]
    return [*flags, "--env", f"GATE={gate.path}", "--script_path", str(TRAIN)]


def state(user: SlurmUser, ref: str) -> str:
    return str(job(user, ref)["state"])


def test_two_jobs_share_a_gpu_in_one_pilot_which_ends_when_idle(
    pilots: SlurmUser, gate: Gate
) -> None:
    ids = [pilots.submit(name, *train(gate)) for name in ("one", "two")]
    assert len(queue(pilots)) == 1
    gate.await_ring()
    gate.await_ring()
    eventually(lambda: [state(pilots, each) for each in ids] == ["RUNNING", "RUNNING"])
    shares = [job(pilots, each)["shares"] for each in ids]
    assert shares[0] == shares[1]
    gate.open(6)
    eventually(lambda: [state(pilots, each) for each in ids] == ["FINISHED", "FINISHED"])
    for each in ids:
        assert [line for line in logged(pilots, each) if "epoch" in line] == [
            "begins at epoch 0 restarted False epochs done 0",
            *("epoch 1 done", "epoch 2 done", "epoch 3 done"),
        ]
    eventually(lambda: queue(pilots) == [])
    assert state(pilots, "one") == "FINISHED"


def begun(user: SlurmUser, ref: str) -> list[str]:
    return [line for line in logged(user, ref) if "epoch" in line]


def test_when_its_time_ends_jobs_stop_at_their_epoch_and_the_next_pilot_goes_on(
    pilots: SlurmUser, gate: Gate
) -> None:
    """It has a minute, the least that Slurm knows, and is warned within it."""
    pilot_of(pilots, "gpus=1 time=1m idle=4s")
    ids = [pilots.submit(name, *train(gate)) for name in ("one", "two")]
    gate.await_ring()
    gate.await_ring()
    eventually(lambda: [state(pilots, each) for each in ids] == ["STOPPING", "STOPPING"])
    gate.open(2)
    eventually(lambda: [state(pilots, each) for each in ids] == ["QUEUED", "QUEUED"])
    gate.await_ring()
    gate.await_ring()
    eventually(lambda: [job(pilots, each)["attempt"] for each in ids] == [2, 2])
    assert [job(pilots, each)["epochs_done"] for each in ids] == [1, 1]
    gate.open(4)
    eventually(lambda: [state(pilots, each) for each in ids] == ["FINISHED", "FINISHED"])
    for each in ids:
        assert begun(pilots, each) == [
            *("begins at epoch 0 restarted False epochs done 0", "epoch 1 done"),
            *("begins at epoch 1 restarted True epochs done 1", "epoch 2 done", "epoch 3 done"),
        ]


def test_a_pilot_whose_last_job_ends_as_it_stops_does_not_come_back(
    pilots: SlurmUser, gate: Gate
) -> None:
    job_id = pilots.submit("one", *train(gate, epochs=1))
    gate.await_ring()
    (number,) = queue(pilots, "%i")

    def is_warned() -> bool:
        """A script that has only just begun hears nothing."""
        pilots.cluster.run("scancel", "--batch", "--signal=USR1", number)
        return "stop at the end of their epoch" in (folder(pilots) / "pilot.log").read_text()

    eventually(is_warned)
    gate.open()
    eventually(lambda: state(pilots, job_id) == "FINISHED")
    eventually(lambda: queue(pilots) == [])
    assert (folder(pilots) / "pilot.log").read_text().count("has the jobs") == 1


def program(user: SlurmUser) -> int:
    """The pilot's process."""
    wanted = [b"-m", b"cli.slurm.pilot", str(folder(user)).encode()]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes().split(b"\0")[1:4] == wanted:
                return int(process.name)
    return 0


def test_a_pilot_that_is_killed_begins_again_beside_its_trainings(
    pilots: SlurmUser, gate: Gate
) -> None:
    job_id = pilots.submit("one", *train(gate))
    gate.await_ring()
    eventually(lambda: state(pilots, job_id) == "RUNNING")
    first = program(pilots)
    os.kill(first, signal.SIGKILL)
    gate.open()
    gate.await_ring()
    eventually(lambda: program(pilots) not in (0, first))
    eventually(lambda: job(pilots, job_id)["epochs_done"] == 1)
    gate.open(2)
    eventually(lambda: state(pilots, job_id) == "FINISHED")
    assert begun(pilots, job_id) == [
        "begins at epoch 0 restarted False epochs done 0",
        *("epoch 1 done", "epoch 2 done", "epoch 3 done"),
    ]


def test_nothing_of_a_pilot_outlives_its_script_and_a_release_goes_on(
    pilots: SlurmUser, gate: Gate
) -> None:
    job_id = pilots.submit("one", *train(gate))
    gate.await_ring()
    gate.open()
    gate.await_ring()
    eventually(lambda: job(pilots, job_id)["epochs_done"] == 1)
    script = int(Path(f"/proc/{program(pilots)}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(script, signal.SIGKILL)
    eventually(lambda: queue(pilots) == [] and not program(pilots))
    eventually(lambda: state(pilots, job_id) == "QUEUED")
    assert str(job(pilots, job_id)["reason"]).startswith("no pilot is queued: a submission starts")
    assert not trains(gate)
    pilots.says("scheduler-update-job", job_id, "--release")
    gate.await_ring()
    gate.open(2)
    eventually(lambda: state(pilots, job_id) == "FINISHED")
    assert begun(pilots, job_id) == [
        *("begins at epoch 0 restarted False epochs done 0", "epoch 1 done"),
        *("begins at epoch 1 restarted True epochs done 1", "epoch 2 done", "epoch 3 done"),
    ]


def trains(gate: Gate) -> bool:
    """Whether a training that reads from the gate lives."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"GATE={gate.path}".encode() in (process / "environ").read_bytes().split(b"\0"):
                return True
    return False


def is_up(user: SlurmUser, node: str) -> bool:
    state = user.cluster.run("sinfo", "-h", "-n", node, "-o", "%t").split()[0]
    return state in ("idle", "mix", "alloc")


def test_a_node_that_fails_takes_the_epoch_that_runs_and_nothing_else(
    pilots: SlurmUser, gate: Gate
) -> None:
    job_id = pilots.submit("one", *train(gate))
    gate.await_ring()
    gate.open()
    gate.await_ring()
    eventually(lambda: job(pilots, job_id)["epochs_done"] == 1)
    (node,) = queue(pilots, "%N")
    pilots.cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    eventually(lambda: state(pilots, job_id) == "QUEUED")
    resume = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
    eventually(lambda: pilots.cluster.run(*resume, fails=True) or is_up(pilots, node))
    gate.await_ring()
    gate.open(2)
    eventually(lambda: state(pilots, job_id) == "FINISHED")
    assert begun(pilots, job_id) == [
        *("begins at epoch 0 restarted False epochs done 0", "epoch 1 done"),
        *("begins at epoch 1 restarted True epochs done 1", "epoch 2 done", "epoch 3 done"),
    ]


def test_jobs_are_seen_read_and_cancelled_while_no_pilot_has_them(
    pilots: SlurmUser, gate: Gate
) -> None:
    done = pilots.submit("done", *train(gate, epochs=1))
    cut = pilots.submit("cut", *train(gate))
    gate.await_ring()
    gate.await_ring()
    eventually(lambda: state(pilots, cut) == "RUNNING")
    pilots.cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        pilots.cluster.cancel_all()
        waits = pilots.submit("waits", *train(gate))
        eventually(lambda: state(pilots, cut) == "QUEUED")
        assert "its pilot, " in str(job(pilots, waits)["reason"])
        assert "begins at epoch 0" in pilots.says("scheduler-get-logs", cut)
        assert pilots.run("scheduler-get-logs", waits).stderr.strip() == "pending, no output yet"
        for each in (cut, waits):
            pilots.says("scheduler-cancel-job", each)
            assert state(pilots, each) == "CANCELED"
    finally:
        pilots.cluster.run("scontrol", "update", "PartitionName=main", "State=UP")
    gate.await_ring()
    gate.open()
    eventually(lambda: state(pilots, done) == "FINISHED")
    eventually(lambda: queue(pilots) == [])
    assert [state(pilots, each) for each in (cut, waits)] == ["CANCELED", "CANCELED"]
    assert begun(pilots, cut) == ["begins at epoch 0 restarted False epochs done 0"]
    assert pilots.run("scheduler-get-logs", waits).stdout == ""


def test_of_two_pilots_only_one_has_the_jobs(pilots: SlurmUser, gate: Gate) -> None:
    job_id = pilots.submit("one", *train(gate, epochs=1))
    gate.await_ring()
    words = ["sbatch", "--parsable", "-o", str(pilots.home / "second.log"), "--gres=gpu:1"]
    place = folder(pilots)
    second = pilots.cluster.run(*words, "-J", "second", str(place / "pilot.sh"), str(place))
    eventually(lambda: second.strip() not in pilots.cluster.run("squeue", "-h", "-o", "%i").split())
    assert "another pilot has the jobs" in (pilots.home / "second.log").read_text()
    gate.open()
    eventually(lambda: state(pilots, job_id) == "FINISHED")
    assert job(pilots, job_id)["attempt"] == 1


def test_jobs_have_the_gpus_of_the_allocation_and_no_others(
    pilots: SlurmUser, nvml: Machine, nvml_library: Path, gate: Gate
) -> None:
    """Slurm has four GPUs on a node. Another job has the first one; the pilot has the next two."""
    for number in range(4):
        nvml.gpu(f"GPU-{number}")
    words = ["sbatch", "--parsable", "-w", "n0", "--gres=gpu:1", "-o", "/dev/null"]
    pilots.cluster.run(*words, "--wrap", "sleep 600")
    exports = " ".join(f"{name}={value}" for name, value in nvml.environment(nvml_library).items())
    pilots.configure(
        pilot="gpus=2 idle=4s", python=sys.executable, setup=f"{SETUP} {exports}", flags="-w n0"
    )
    for name in ("one", "two"):
        pilots.submit(name, *train(gate, 1, mib=12000))
    gate.await_ring()
    gate.await_ring()
    eventually(lambda: {state(pilots, name) for name in ("one", "two")} == {"RUNNING"})
    shares = [job(pilots, name)["shares"] for name in ("one", "two")]
    assert "GPU-1" in str(shares)
    assert "GPU-2" in str(shares)
    too_large = pilots.run("run-scheduler", "--num_gpus", "4", "large", "--", "true")
    assert (too_large.returncode, too_large.stderr) == (
        4,
        "run-scheduler: slurm: large asks for 4 GPUs, and a pilot has 2: ask for fewer, or set"
        " more in the context's pilot\n",
    )
    gate.open(2)
    eventually(lambda: {state(pilots, name) for name in ("one", "two")} == {"FINISHED"})


def test_a_cluster_without_our_programs_is_one_line_and_keeps_nothing(pilots: SlurmUser) -> None:
    pilots.configure(pilot="gpus=1", python="/usr/bin/python3")
    done = pilots.run("run-scheduler", "x", "--", "true")
    assert (done.returncode, done.stderr) == (
        4,
        "run-scheduler: slurm: pilots need epoch-scheduler on the cluster, and /usr/bin/python3"
        " there has none (ModuleNotFoundError: No module named 'cli'): install it, and set"
        " slurm.python to its Python\n",
    )
    assert pilots.says("scheduler-state") == ""
    pilots.configure(pilot="gpus=1", python=sys.executable, partition="nowhere")
    done = pilots.run("run-scheduler", "x", "--", "true")
    assert (done.returncode, done.stderr) == (
        4,
        "run-scheduler: slurm: Batch job submission failed: Invalid partition name specified\n",
    )
    assert [*pilots.folder("").iterdir(), *(folder(pilots) / "inbox").iterdir()] == []


def test_what_jobs_are_asked_for_is_done_by_their_pilot(pilots: SlurmUser, gate: Gate) -> None:
    own = ["--env", "SEED={seed}", "--env", "SET_UP_TOO=2", "--env", "PRINT_ENVIRONMENT=1"]
    words = ["--sweep", "seed=1,2", *own, *train(gate, 1), "--hold"]
    ids = pilots.submit("grid", *words).split()
    assert [state(pilots, each) for each in ids] == ["HELD", "HELD"]
    assert queue(pilots) == [], "held jobs want no pilot"
    pilots.says("scheduler-update-job", ids[0], "--release", "--priority", "3")
    gate.await_ring()
    eventually(lambda: state(pilots, ids[0]) == "RUNNING")
    assert job(pilots, ids[0])["priority"] == 3
    gate.open()
    eventually(lambda: state(pilots, ids[0]) == "FINISHED")
    eventually(lambda: queue(pilots) == [])
    assert "finished" in pilots.says("scheduler-state", ids[0], "--extended")
    told = json.loads(logged(pilots, ids[0])[0])
    assert [told[name] for name in ("SET_UP", "SET_UP_TOO", "SEED")] == ["a b", "2", "1"]
    assert "SCHEDULER_GPUS" not in told
    pilots.says("scheduler-update-job", ids[1], "--priority", "2")
    assert (state(pilots, ids[1]), job(pilots, ids[1])["priority"]) == ("HELD", 2)
    assert queue(pilots) == []
    again = pilots.says("scheduler-resubmit-job", ids[0]).strip()
    pilots.says("scheduler-update-job", again, ids[1], "--release")
    gate.open(2)
    eventually(lambda: {state(pilots, each) for each in (again, *ids)} == {"FINISHED"})
