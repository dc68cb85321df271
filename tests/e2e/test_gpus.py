"""GPUs as NVML reports them: foreign processes, errors, lost GPUs, and jobs over their share.

NVML is our own library (tests/nvml), which the daemon finds as it would find the real one. The
processes on its GPUs are the daemon's real trainings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import Daemons, Gates, Train
from tests.nvml.machine import Machine
from tests.support import Daemon, eventually

FOUR_CHILDREN = "for i in 1 2 3 4; do sleep 1000 & done; wait"
DRIFT_SECONDS = 30.0  # until a deviation from the expected state is shown


@pytest.fixture
def machine(nvml: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("SCHEDULER_LOCAL__OBSERVE_EVERY_SECONDS", "0.2")
    nvml.mortal()
    return nvml


def shown(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {gpu["gpu"]: gpu for gpu in daemon.state_of("--cluster")["gpus"]}


def leader(daemon: Daemon, job_id: str, attempt: int = 1) -> int:
    """The first process of a run."""
    started = Path(daemon.state, "runs", f"{job_id}-{attempt}", "started.json")
    eventually(started.exists)
    pid: int = json.loads(started.read_text())["pid"]
    return pid


def put_on_its_gpu(machine: Machine, daemon: Daemon, job: Any, mib: int) -> int:
    """Puts all processes of the job's run on its GPU, with `mib` each. Returns the GPU's index."""
    (share,) = job.shares
    index = [gpu["gpu"] for gpu in shown(daemon).values()].index(share.gpu)
    above = psutil.Process(leader(daemon, job.id, job.attempt))
    for process in (above, *above.children(recursive=True)):
        machine.process(index, process.pid, mib)
    return index


def test_a_foreign_process_and_a_lost_gpu_disturb_no_healthy_training(
    machine: Machine, daemons: Daemons
) -> None:
    for number in range(8):
        machine.gpu(f"GPU-{number}")
    daemon = daemons("", "--policy", "fifo_sharing")
    names = [f"j{number}" for number in range(8)]
    for name in names:
        daemon.submit("--estimated_memory", "9000", name, "--", "sh", "-c", FOUR_CHILDREN)
    jobs = daemon.wait_state(**dict.fromkeys(names, "RUNNING"))
    above = [psutil.Process(leader(daemon, job.id)) for job in jobs.values()]
    eventually(lambda: all(len(process.children()) == 4 for process in above))
    where = {name: put_on_its_gpu(machine, daemon, jobs[name], 1000) for name in names}
    assert sorted(where.values()) == list(range(8))
    eventually(lambda: sum(len(gpu["processes"]) for gpu in shown(daemon).values()) == 40)
    assert {gpu["used_mib"] for gpu in shown(daemon).values()} == {5000}
    assert {process["job"] for process in shown(daemon)["GPU-3"]["processes"]} == {
        job.id for name, job in jobs.items() if where[name] == 3
    }

    # A foreign process.
    crowded = where["j7"]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        began = time.monotonic()
        machine.process(crowded, foreign.pid, 3000)
        eventually(lambda: shown(daemon)[f"GPU-{crowded}"]["fault"], DRIFT_SECONDS)
        print(f"the foreign process was shown after {time.monotonic() - began:.1f} s")
        assert (
            "foreign processes use 3,008 MiB" in daemon.run("scheduler-state", "--cluster").stdout
        )

        # A GPU that falls off the bus.
        gone = where["j0"]
        machine.xid(gone, 79)
        eventually(
            lambda: shown(daemon)[f"GPU-{gone}"]["fault"].startswith("XID 79"), DRIFT_SECONDS
        )
        machine.lose(gone)
        eventually(lambda: shown(daemon)[f"GPU-{gone}"]["lost"], DRIFT_SECONDS)
        daemon.wait(lambda now: now["j0"].state == "QUEUED")
        told = {fact.kind: fact for fact in daemon.story(jobs["j0"].id)}
        assert f"gpu{gone} of" in told["run_ended"].data_json
        assert "was lost: XID 79" in told["run_ended"].data_json
        foreign.kill()
    eventually(lambda: not shown(daemon)[f"GPU-{crowded}"]["fault"], DRIFT_SECONDS)
    after = daemon.wait(lambda now: True)
    assert {(after[name].state, after[name].attempt) for name in names[1:]} == {("RUNNING", 1)}
    daemon.run("scheduler-cancel-job", "--yes", *(job.id for job in jobs.values()))
    daemon.wait(lambda now: all(job.state == "CANCELED" for job in now.values()))


def test_a_job_over_its_share_is_warned_and_stopped_after_its_epoch(
    machine: Machine, daemons: Daemons, gates: Gates, train: Train
) -> None:
    machine.gpu("GPU-a", reserved=100)  # it has 16284 MiB, of which jobs can share 15893
    daemon, modest, other = daemons("", "--policy", "fifo_sharing"), gates("m"), gates("o")
    epochs = ("--max_epochs", "6")
    modest_id = daemon.submit(*train(modest), *epochs, "--estimated_memory", "6000", "modest")
    daemon.submit(*train(other), *epochs, "--estimated_memory", "7000", "other")
    modest.await_ring()
    other.await_ring()
    jobs = daemon.wait_state(modest="RUNNING", other="RUNNING")
    put_on_its_gpu(machine, daemon, jobs["other"], 6900)

    machine.process(0, leader(daemon, modest_id), 6600)  # there is room: the share grows
    held = daemon.wait(lambda now: now["modest"].shares[0].memory_mib == 6600)
    assert held["modest"].state == "RUNNING"

    machine.process(0, leader(daemon, modest_id), 8950)
    daemon.wait_state(modest="STOPPING")
    told = {fact.kind: json.loads(fact.data_json) for fact in daemon.story(modest_id)}
    assert told["run_over_share"] == {
        "node": jobs["modest"].shares[0].node,
        "gpu": "GPU-a",
        "used_mib": 8950,
        "share_mib": 6600,
        "at_once": False,
    }
    assert "uses 8,950 MiB of GPU-a" in daemon.run("scheduler-state", "modest").stdout
    modest.open()
    after = daemon.wait_state(modest="QUEUED")
    assert (after["modest"].epochs_done, after["modest"].memory_mib) == (1, 8950)
    assert after["modest"].reason == "memory (needs 8,950 MiB; gpu0 has the most free: 8,893 MiB)"
    assert (after["other"].state, after["other"].attempt) == ("RUNNING", 1)
    other.open(6)
    daemon.wait_state(other="FINISHED", modest="RUNNING")
    modest.open(5)
    daemon.wait_state(modest="FINISHED")


def test_a_job_that_uses_a_neighbours_memory_is_ended_immediately(
    machine: Machine, daemons: Daemons, gates: Gates, train: Train
) -> None:
    machine.gpu("GPU-a", reserved=100)
    daemon, greedy, other = daemons("", "--policy", "fifo_sharing"), gates("g"), gates("o")
    epochs = ("--max_epochs", "3")
    greedy_id = daemon.submit(*train(greedy), *epochs, "--estimated_memory", "6000", "greedy")
    daemon.submit(*train(other), *epochs, "--estimated_memory", "7000", "other")
    greedy.await_ring()
    other.await_ring()
    jobs = daemon.wait_state(greedy="RUNNING", other="RUNNING")
    put_on_its_gpu(machine, daemon, jobs["other"], 2000)
    pid = leader(daemon, greedy_id)
    machine.process(0, pid, 9500)
    eventually(lambda: not psutil.pid_exists(pid))
    after = daemon.wait_state(greedy="QUEUED", other="RUNNING")
    assert after["greedy"].last_run.endswith(", at the cost of others there, after epoch 0")
    assert after["other"].attempt == 1
    told = {fact.kind: json.loads(fact.data_json) for fact in daemon.story(greedy_id)}
    assert told["run_over_share"]["at_once"]
    daemon.run("scheduler-cancel-job", "--yes", "greedy", "other")
    daemon.wait_state(greedy="CANCELED", other="CANCELED")
