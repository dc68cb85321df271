"""Whether jobs that share a GPU fit on it: `python -m benchmarks.memory --json`.

Jobs of 1 to 4 GPUs arrive, train and end on 64 GPUs of 16 GiB, in the daemon's own loop, under
`fifo_sharing` and `gpu_sharing`. The memory that they really take on each GPU is drawn; a part of
it shrinks with the number of GPUs, like a batch that is divided. They ask for nothing, half of it,
all of it, or more. A plan leaves out every third run, at random, so that jobs are placed often. A
*placement* is a run with neighbours on one GPU after the first epoch: each job on the GPU has
finished an epoch on as many GPUs as it has now.

    placements_POLICY   their number, of `--placements` in total: few under gpu_sharing, which
                        takes longer; two draws under fifo_sharing
    overflows_POLICY    those where the jobs on the GPU really take more than it has: must be 0
    early_POLICY        the same among all other placements with neighbours, where the memory is
                        not known yet
    deaths_POLICY       from lack of memory
    planted_requeues    of a job that asks for half of the memory that it takes, and so dies once
                        beside another: must be 1, with more memory: planted_from_mib,
                        planted_to_mib
    planted_finished    1: that job finished
    cpu_seconds
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.figures import options, show
from scheduler.core.loop import Scheduler
from scheduler.core.memory import usable_gpus
from scheduler.core.model import (
    Failure,
    GpuKey,
    Job,
    JobId,
    JobSpec,
    Launch,
    Node,
    Outcome,
    Plan,
    Rules,
    RunPhase,
    Time,
    View,
)
from scheduler.core.ports import Policy, Step
from scheduler.planning.policies import POLICIES
from simulator.flags import parse_cluster
from simulator.traces.behaviour import SerialTruth, TraceJob
from simulator.trials.outcome import Tally
from simulator.trials.trace_world import TraceWorld
from simulator.trials.trial import NullStore

CLUSTER = "16x4x16384:t4"
RULES = Rules(plan_every_seconds=60.0)
GATHER_SECONDS = 4.0
JOBS, EVERY_SECONDS, EPOCHS = 20_000, 25.0, 60
EPOCH_SECONDS = 60.0
SHARE_OF_GPU_SHARING = 0.03  # of all placements
LEFT_OUT = 1 / 3
KEYS = ("placements", "overflows", "early", "deaths")


@dataclass(frozen=True, slots=True)
class Batch(SerialTruth):
    """A job that takes less memory on each GPU if it has more GPUs."""

    fixed_mib: int = 0

    def on(self, gpus: int) -> Batch:
        shared = (self.memory_mib - self.fixed_mib) // max(1, gpus)
        return replace(self, memory_mib=self.fixed_mib + shared)


class Cluster(TraceWorld):
    """A world in which the memory depends on the number of GPUs."""

    def _launch(self, launch: Launch) -> None:
        super()._launch(launch)
        run = self.runs[launch.job_id, launch.attempt]
        assert isinstance(run.truth, Batch), "all jobs have this truth"
        run.job = replace(run.job, truth=run.truth.on(len(launch.shares)))


def drawn(count: int, seed: int) -> Iterator[TraceJob]:
    draw = np.random.default_rng(seed)
    for number in range(count):
        fixed, batch = (int(mib) for mib in draw.integers((300, 500), (3_000, 7_000)))
        asked = int((fixed + batch) * draw.choice([0.0, 0.5, 1.0, 1.0, 1.3]))
        spec = JobSpec(
            name=f"j{number}",
            user=f"u{number % 7}",
            project=f"p{number % 40}",
            max_epochs=EPOCHS,
            gpus_max=int(draw.choice([1, 1, 2, 4])),
            memory_mib=asked,
            training_set_size=1_000,
        )
        util, serial = draw.uniform(0.2, 0.9), draw.uniform(0.05, 0.3)
        truth = Batch(fixed + batch, util, EPOCH_SECONDS, serial, fixed_mib=fixed)
        yield TraceJob(number * EVERY_SECONDS, spec, truth)


def restless(policy: Policy, seed: int) -> Policy:
    """A policy that leaves out some running jobs, so that they are placed again."""
    draw = np.random.default_rng(seed)

    def plan(view: View, now: Time) -> Plan:
        made = policy(view, now)
        running = [
            job_id
            for job_id in made.placements
            if (run := view.jobs[job_id].run) and run.phase is RunPhase.RUNNING
        ]
        out = {job_id for job_id in running if draw.random() < LEFT_OUT}
        kept = {job_id: shares for job_id, shares in made.placements.items() if job_id not in out}
        return replace(made, placements=kept, replan_at=now + RULES.plan_every_seconds)

    return plan


@dataclass
class Count:
    """Counts placements as they are committed."""

    truths: dict[JobId, Batch]
    memory: dict[GpuKey, int]
    seen: Counter[str] = field(default_factory=Counter)
    measured: set[tuple[JobId, str]] = field(default_factory=set)  # and the placement

    def __call__(self, step: Step) -> None:
        self.measured |= {(profile.job_id, profile.placement) for profile in step.profiles}
        for fact in step.facts:
            if fact.kind == "run_started" and fact.job_id:
                self._placed(step.after.jobs[fact.job_id], step.after)
            elif fact.kind == "run_ended" and "out of GPU memory" in str(fact.data["reason"]):
                self.seen["deaths"] += 1

    def _placed(self, job: Job, view: View) -> None:
        for share in job.run.shares if job.run else ():
            together = [view.jobs[job_id] for job_id, _ in view.held[share.key]]
            if len(together) < 2:
                continue
            truly = sum(self.truths[each.id].on(_gpus(each)).memory_mib for each in together)
            known = all(self._known(each) for each in together)
            self.seen["placements"] += known
            if truly > self.memory[share.key]:
                self.seen["overflows" if known else "early"] += 1

    def _known(self, job: Job) -> bool:
        return job.run is not None and (job.id, job.run.placement) in self.measured


def _gpus(job: Job) -> int:
    return len(job.run.shares) if job.run else 0


def world(
    jobs: Sequence[TraceJob], nodes: Sequence[Node], policy: Policy
) -> tuple[Scheduler, Count]:
    truths = {JobId(f"job-{number:05}"): job.truth for number, job in enumerate(jobs)}
    memory = {key: gpu.memory_mib for key, gpu in usable_gpus(nodes).items()}
    count = Count({id: truth for id, truth in truths.items() if isinstance(truth, Batch)}, memory)
    traffic = Cluster(jobs, nodes, Tally(), gather_seconds=GATHER_SECONDS)
    scheduler = Scheduler(traffic, NullStore(count), traffic, policy, RULES)
    traffic.read = lambda: scheduler.view
    return scheduler, count


def counted(policy: str, placements: int, seed: int) -> dict[str, int]:
    began = time.process_time()
    jobs = list(drawn(JOBS, seed))
    scheduler, count = world(jobs, parse_cluster(CLUSTER), restless(POLICIES[policy](RULES), seed))
    while count.seen["placements"] < placements:
        scheduler.step()
    found = {f"{key}_{policy}": count.seen[key] for key in KEYS}
    return found | {"cpu_seconds": round(time.process_time() - began)}


def planted(policy: str) -> dict[str, int]:
    """The fate of a job beside another, if it asks for half of the memory that it takes."""
    first, second = Batch(10_000, 0.5, 60.0, 0.1), Batch(8_000, 0.5, 60.0, 0.1)
    said = JobSpec("first", "ann", max_epochs=5, memory_mib=10_000, training_set_size=1_000)
    half = replace(said, name="second", memory_mib=4_000)
    jobs = [TraceJob(0.0, said, first), TraceJob(200.0, half, second)]
    scheduler, _ = world(jobs, parse_cluster("1x1x16384:t4"), POLICIES[policy](RULES))
    job_id = JobId("job-00001")
    while not ((job := scheduler.view.jobs.get(job_id)) and job.outcome):
        scheduler.step()
    died_once = job.failed(Failure.OUT_OF_MEMORY) == 1
    return {
        "planted_requeues": job.attempts - 1,
        "planted_finished": int(died_once and job.outcome is Outcome.SUCCEEDED),
        "planted_from_mib": half.memory_mib,
        "planted_to_mib": job.memory_mib,
    }


def main() -> None:
    given = options(__doc__, placements=100_000)
    few = int(given.placements * SHARE_OF_GPU_SHARING)
    half = (given.placements - few + 1) // 2
    calls = ("gpu_sharing", few, 1), ("fifo_sharing", half, 1), ("fifo_sharing", half, 2)
    told = Counter[str]()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(counted, *zip(*calls, strict=True)):
            told.update(found)
    show(**told, **planted("fifo_sharing"))


if __name__ == "__main__":
    main()
