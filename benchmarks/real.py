"""Compares the simulator with a real daemon: `python -m benchmarks.real --json`.

Under each policy, a daemon with the default rules runs real trainings (real_train.py) on four
simulated GPUs, on which they slow each other down. The simulator then replays the same jobs from
the daemon's record: when they arrived, how long their epochs and pauses took, and how long a run
took besides its epochs (simulator/replays/recorded_jobs.py). Plans depend on exact moments, so
there are `--plays` replays, with the time besides epochs scaled by 0.9 to 1.1.

  POLICY.mean            mean completion time in the replays, relative to the real one, minus 1: the
                         average over the replays; goal: within 0.1
  POLICY.mean_least, _most        the same for single replays
  POLICY.makespan, _least, _most  the same for the time from the first submission to the last end
  POLICY.real_mean_seconds, .real_makespan_seconds, .besides_seconds (of a run, besides its epochs)
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import options, show
from scheduler.core.model import Rules
from scheduler.planning.policies import POLICIES
from scheduler.v1 import scheduler_pb2
from simulator.replays.recorded_jobs import RecordedCluster, read_recorded_cluster
from simulator.trials.trial import Trial
from tests.support import Daemon

TRAIN = Path(__file__).with_name("real_train.py")
GPUS = "4x16384"
SIZES = (1, 1, 1, 2, 2, 4)  # the most GPUs that a job asks for
EPOCHS = 10, 60

Times = Sequence[tuple[float, float]]  # of each job: when it arrived and when it ended


@dataclass(frozen=True, slots=True)
class Kind:
    """The jobs of one project."""

    project: str
    epoch_seconds: float  # on one GPU
    serial: float  # the part of that which a second GPU does not shorten
    util: float  # the part of that in which a GPU is needed
    memory_mib: int


KINDS = (
    Kind("images", 0.2, 0.05, 0.9, 7000),
    Kind("words", 0.3, 0.2, 0.6, 5000),
    Kind("ratings", 0.15, 0.5, 0.2, 3000),
)


def main() -> None:
    given = options(
        __doc__, jobs=30, seconds=20.0, seed=1, plays=5, policies="gpu_sharing,fifo_sharing"
    )
    os.environ["SCHEDULER_RULES__PLAN_EVERY_SECONDS"] = str(Rules().plan_every_seconds)
    figures: dict[str, float] = {}
    for policy in given.policies.split(","):
        with tempfile.TemporaryDirectory() as folder:
            chance = random.Random(given.seed)
            here = _lived(policy, Path(folder), given.jobs, given.seconds, chance)
        found = _compared(here, given.plays)
        figures |= {f"{policy}.{name}": round(value, 3) for name, value in found.items()}
    show(**figures)


def _compared(here: RecordedCluster, plays: int) -> dict[str, float]:
    real = [(job.submitted_at, job.ended_at or 0.0) for job in here.jobs]
    played = [_played(here, 0.9 + 0.2 * (play + 0.5) / plays) for play in range(plays)]
    found = {"besides_seconds": here.restart_seconds}
    for name, figure in (("mean", _mean), ("makespan", _makespan)):
        off = [figure(times) / figure(real) - 1.0 for times in played]
        found[f"real_{name}_seconds"] = figure(real)
        found |= {name: statistics.fmean(off), f"{name}_least": min(off), f"{name}_most": max(off)}
    return found


def _played(here: RecordedCluster, factor: float) -> Times:
    rules, seconds = here.decider.rules, here.restart_seconds * factor
    policy = POLICIES[here.decider.policy](rules)
    jobs = Trial(here.trace, here.nodes, policy, rules, restart_seconds=seconds).run().jobs
    return [(job.submitted_at, job.submitted_at + job.seconds) for job in jobs]


def _mean(times: Times) -> float:
    return statistics.fmean(ended - came for came, ended in times)


def _makespan(times: Times) -> float:
    return max(ended for _, ended in times) - min(came for came, _ in times)


# --- a real day ---------------------------------------------------------------------------------


def _lived(
    policy: str, folder: Path, jobs: int, seconds: float, chance: random.Random
) -> RecordedCluster:
    """The record of a daemon with `jobs` jobs, which arrive within `seconds`."""
    (folder / "gpus").mkdir()
    daemon = Daemon(folder / "state", GPUS, "--policy", policy).start()
    try:
        with daemon.stub() as (stub, metadata):
            began = time.monotonic()
            for at, request in _requests(jobs, seconds, chance, folder):
                time.sleep(max(0.0, began + at - time.monotonic()))
                stub.Submit(request, metadata=metadata, timeout=10)
        sys.stderr.write(f"submitting {jobs} jobs under {policy}\n")
        ended = daemon.wait(lambda jobs: all(job.ended_at for job in jobs.values()), seconds=600)
        assert {job.state for job in ended.values()} == {"FINISHED"}, ended
        assert daemon.stop() == 0
        return read_recorded_cluster(folder / "state" / "scheduler.db")
    finally:
        daemon.end()


def _requests(
    jobs: int, seconds: float, chance: random.Random, folder: Path
) -> Iterator[tuple[float, scheduler_pb2.SubmitRequest]]:
    for number, at in enumerate(sorted(chance.uniform(0.0, seconds) for _ in range(jobs))):
        kind = chance.choice(KINDS)
        env = {
            "GPU_FOLDERS": folder / "gpus",
            "EPOCH_SECONDS": kind.epoch_seconds,
            "SERIAL": kind.serial,
            "UTIL": kind.util,
        }
        spec = scheduler_pb2.JobSpec(
            name=f"job-{number}",
            project=kind.project,
            image="none",
            script_path=str(TRAIN),
            snapshots_dir=str(folder / "snapshots"),
            max_epochs=chance.randint(*EPOCHS),
            gpus_min=1,
            gpus_max=chance.choice(SIZES),
            memory_mib=kind.memory_mib,
            env=[scheduler_pb2.KeyValue(key=key, value=str(env[key])) for key in env],
        )
        job_id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        yield at, scheduler_pb2.SubmitRequest(job_id=job_id, spec=spec)


if __name__ == "__main__":
    main()
