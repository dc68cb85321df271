"""How Slurm ends runs and jobs, with its accounts (slurmdbd) when its queue has forgotten them.

A real time limit is a minute at least, and the queue forgets at its next round: all wait at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.slurmd import (
    SlurmCluster,
    SlurmUser,
    folder_for_all,
    needs_accounting,
    needs_slurm,
)
from tests.clients.test_slurm import is_warned, job, logged, training
from tests.support import Gate, eventually

pytestmark = [pytest.mark.clients, needs_slurm, needs_accounting]
PATIENCE_SECONDS = 180.0


@pytest.fixture(scope="module")
def accounted() -> Iterator[SlurmCluster]:
    with folder_for_all("slurm-") as folder:
        made = SlurmCluster(folder, accounting=True, min_job_age=2)
        try:
            yield made.start()
        finally:
            made.end()


@pytest.fixture
def owner(accounted: SlurmCluster, tmp_path: Path) -> Iterator[SlurmUser]:
    yield SlurmUser(accounted, tmp_path)
    accounted.cancel_all()


def submit(owner: SlurmUser, name: str, *words: str, **settings: str) -> str:
    owner.configure(**settings)
    return owner.submit(name, "--num_gpus", "0", *words)


def test_each_end_is_told_when_the_queue_has_forgotten_it(owner: SlurmUser, gate: Gate) -> None:
    limited = submit(
        owner,
        "limited",
        *training(gate),
        *("--max_epochs", "3"),
        resources="time=1m",
    )
    gate.await_ring()
    overrun = submit(
        owner, "overrun", "--", "sleep", "600", resources="time=1m", flags="--no-requeue"
    )
    node_failed = submit(owner, "node", "--", "sleep", "600", flags="--no-requeue -w n1")
    cancelled = submit(owner, "gone", "--", "sleep", "600")
    submit(owner, "well", "--", "true")
    submit(owner, "failed", "--", "sh", "-c", "kill -9 $$")
    for each in (overrun, node_failed, cancelled):
        eventually(lambda each=each: job(owner, each)["state"] == "RUNNING")  # type: ignore[misc]
    _cancel(owner, "gone")
    owner.cluster.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
    eventually(lambda: job(owner, node_failed)["state"] == "FAILED")
    resume = ["scontrol", "update", "NodeName=n1", "State=RESUME"]
    eventually(lambda: owner.cluster.run(*resume, fails=True) or _is_idle(owner, "n1"))
    eventually(lambda: _is_idle(owner, "n1"))
    preempted = submit(owner, "cheap", "--", "sleep", "600", partition="cheap", flags="-w n1")
    eventually(lambda: job(owner, preempted)["state"] == "RUNNING")
    boss = ["sbatch", "--parsable", "-p", "urgent", "--exclusive", "-w", "n1", "-J", "boss"]
    owner.cluster.run(*boss, "-o", "/dev/null", "--wrap", "true")
    eventually(lambda: job(owner, preempted)["state"] == "FAILED")

    # Slurm warns it before its minute is over. Its epoch ends, and its next run goes on.
    eventually(lambda: job(owner, limited)["state"] == "STOPPING", PATIENCE_SECONDS)
    gate.open()
    gate.await_ring(PATIENCE_SECONDS)
    assert job(owner, limited)["attempt"] == 2
    gate.open(2)
    eventually(lambda: job(owner, limited)["state"] == "FINISHED")
    assert [line for line in logged(owner, limited) if "begins" in line] == [
        "begins at epoch 0 restarted False epochs done 0",
        "begins at epoch 1 restarted True epochs done 1",
    ]

    names = ("node", "cheap", "gone", "well", "failed", "overrun")
    queue = ("squeue", "-h", "-t", "all", "-n", ",".join(names))
    eventually(lambda: not owner.cluster.run(*queue), PATIENCE_SECONDS)
    for path in owner.folder("").glob("*/story"):  # what was found out before is asked again
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if " over " not in line))
    told = {name: job(owner, name) for name in names}
    assert {name: (each["state"], each["reason"]) for name, each in told.items()} == {
        "node": ("FAILED", "its node failed"),
        "cheap": ("FAILED", "preempted, and not started again by Slurm"),
        "gone": ("CANCELED", "cancelled with scancel"),
        "well": ("FINISHED", ""),
        "failed": ("FAILED", "killed by SIGKILL"),
        "overrun": ("FAILED", "its time was over (TIMEOUT), before the epoch was"),
    }


def _cancel(owner: SlurmUser, name: str) -> None:
    owner.cluster.run("scancel", "-n", name)


def _is_idle(owner: SlurmUser, node: str) -> bool:
    return owner.cluster.run("sinfo", "-h", "-n", node, "-o", "%t").split()[0] in ("idle", "mix")


def test_the_runs_of_a_job_are_together_no_longer_than_its_time_limit(
    owner: SlurmUser, gate: Gate
) -> None:
    """The story of the first run says that it took an hour, because no test waits for one."""
    words = [*training(gate), "--max_epochs", "9", "--time_limit", "61m"]
    job_id = submit(owner, "limited", *words, resources="time=2h")
    assert owner.cluster.run("squeue", "-h", "-n", "limited", "-o", "%l").strip() == "1:01:00"
    gate.await_ring()
    story = owner.folder(job_id) / "story"
    lines = [line.split(" ", 3) for line in story.read_text().splitlines()]
    earlier = [
        " ".join((*line[:2], str(int(line[2]) - 3600), line[3]))
        for line in lines
        if "started" in line[3]
    ]
    story.write_text("\n".join([" ".join(lines[0]), *earlier]) + "\n")
    number = owner.cluster.run("squeue", "-h", "-n", "limited", "-o", "%i").strip()
    eventually(lambda: is_warned(owner, job_id, number))
    gate.open()
    eventually(lambda: job(owner, job_id)["state"] == "FAILED")
    record = job(owner, job_id)
    assert (record["reason"], record["epochs_done"]) == ("time limit reached", 1)
