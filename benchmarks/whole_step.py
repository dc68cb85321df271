"""One whole step of the daemon's loop, decision and commit, in CPU seconds.

`python -m benchmarks.whole_step --json`.
The real loop and the real store in a file, with 10,000 live jobs and 4,096 GPUs of four types.

    import_seconds    the imports of numpy, scipy and the policy for the first plan of a process
    cold_seconds      the first observation of the cluster, with no job running yet
    upheaval_seconds  a plan when most measurements are new, because every run has ended an epoch
                      since the previous plan (the median of three)
    tick_seconds      a plan half a minute after the previous one, as in a busy daemon:
                      `tick_reports` runs have ended an epoch (of 10 seconds to 50 minutes) since;
                      1 % of the jobs have ended, and as many have arrived (the median of five)
    report_seconds    one epoch is reported, and there is no plan (the median of a hundred)
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import count, islice
from pathlib import Path

from benchmarks.figures import options, show
from scheduler.core import counts
from scheduler.core.loop import Scheduler
from scheduler.core.model import (
    EXIT_STOPPED,
    Action,
    EpochEnded,
    EpochStarted,
    Event,
    Gpu,
    Job,
    JobId,
    JobSpec,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Profile,
    Rules,
    RunKey,
    Submitted,
    Time,
)
from scheduler.planning.policies import POLICIES
from scheduler.store.writer import SqliteStore
from simulator.lives.training import pending_pods

TYPES = (("t4", 16_384, 0.2), ("rtx", 24_576, 0.25), ("a100", 40_960, 0.35), ("h100", 81_920, 0.2))
NODE_GPUS = 8
UPHEAVALS, SETTLING, TICKS, REPORTS = 3, 10, 5, 100
PLAN_SECONDS = 30.0
EPOCH_SECONDS_MIN, EPOCH_SECONDS_MAX = 100.0, 3_000.0  # on one GPU


class World:
    """An inbox with given events, and a cluster that performs every action at once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes, self.time = tuple(nodes), 1_000.0
        self.pods: dict[RunKey, list[Pod]] = {}  # one for each node
        self.news: list[Event] = []

    def now(self) -> Time:
        return self.time

    def wait(self, until: Time | None) -> list[Event]:
        news, self.news = self.news, []
        return news

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        if isinstance(action, Launch):
            self.pods[key] = [replace(pod, state=PodState.RUNNING) for pod in pending_pods(action)]
        else:
            self.pods.pop(key, None)

    def end(self, job: Job, exit_code: int) -> None:
        key = job.id, job.attempts
        self.pods[key] = [
            replace(pod, state=PodState.SUCCEEDED, exit_code=exit_code) for pod in self.pods[key]
        ]

    def look(self) -> Observed:
        pods = tuple(pod for run in self.pods.values() for pod in run)
        return Observed(self.time, self.nodes, pods)


def main() -> None:
    given = options(__doc__, jobs=10_000, gpus=4_096, seed=1)
    began = time.process_time()
    import_module("scheduler.planning.policies.gpu_sharing")
    imported = time.process_time() - began
    chance = random.Random(given.seed)
    world = World(nodes(given.gpus))
    rules = Rules(plan_every_seconds=PLAN_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "scheduler.db", count=counts.count)
        policy = POLICIES["gpu_sharing"](rules)
        scheduler = Scheduler(world, store, world, policy, rules)
        world.news = [submitted(number, chance) for number in range(given.jobs)]
        _timed(scheduler, world, 1.0)
        cold = _timed(scheduler, world, 1.0, world.look())
        numbers = count(given.jobs)
        upheavals, ticks, reported = list[float](), list[float](), list[int]()
        for _ in range(UPHEAVALS):
            _later(scheduler, world, EPOCH_SECONDS_MAX)
            upheavals.append(_tick(scheduler, world, chance, numbers))
        for _ in range(SETTLING):  # until epochs end at different times
            _later(scheduler, world, EPOCH_SECONDS_MAX / SETTLING)
        for _ in range(TICKS):
            reported.append(_later(scheduler, world, 0.0))
            ticks.append(_tick(scheduler, world, chance, numbers))
        running = [job for job in scheduler.view.jobs.values() if job.run]
        _timed(scheduler, world, 60.0)
        reports = [_timed(scheduler, world, 0.01, _epoch(job)) for job in running[:REPORTS]]
        show(
            import_seconds=round(imported, 3),
            cold_seconds=round(cold, 3),
            upheaval_seconds=round(statistics.median(upheavals), 3),
            tick_seconds=round(statistics.median(ticks), 3),
            tick_reports=round(statistics.median(reported)),
            report_seconds=round(statistics.median(reports), 6),
            running=len(running),
            jobs=given.jobs,
            gpus=given.gpus,
        )
        store.close()


def _timed(scheduler: Scheduler, world: World, later: float, *news: Event) -> float:
    world.time += later
    world.news += news
    began = time.process_time()
    scheduler.step()
    return time.process_time() - began


def _later(scheduler: Scheduler, world: World, seconds: float) -> int:
    """Moves the time on and observes the cluster. Runs that have ended an epoch since the previous
    observation report it and ask to start the next one. Returns their number."""
    _timed(scheduler, world, seconds, world.look())
    runs = [(job, job.run) for job in scheduler.view.jobs.values() if job.run]
    begun = [job for job, run in runs if run.epoch_at is None]
    ended = [
        job
        for job, run in runs
        if run.epoch_at is not None and run.epoch_at + _epoch_seconds(job) <= world.time
    ]
    world.news = [EpochStarted(job.id, job.attempts, job.epochs_done) for job in begun]
    for job in ended:
        world.news += [_epoch(job), EpochStarted(job.id, job.attempts, job.epochs_done + 1)]
    _timed(scheduler, world, 0.1)
    for job in map(scheduler.view.jobs.__getitem__, (job.id for job in ended)):
        if job.epochs_done >= job.max_epochs:
            world.end(job, 0)
        elif job.run and job.run.told_to_stop:
            world.end(job, EXIT_STOPPED)
    return len(ended)


def _epoch(job: Job) -> EpochEnded:
    return EpochEnded(
        Profile(
            job.id,
            job.attempts,
            job.epochs_done + 1,
            epoch_seconds=_epoch_seconds(job),
            memory_mib=job.memory_mib,
            gpu_util=0.5,
        )
    )


def _epoch_seconds(job: Job) -> float:
    gpus = len(job.run.shares) if job.run else 1
    more = int(job.spec.name[4:]) * 37 % (EPOCH_SECONDS_MAX - EPOCH_SECONDS_MIN)
    return (EPOCH_SECONDS_MIN + more) * (0.1 + 0.9 / gpus)


def _tick(
    scheduler: Scheduler, world: World, chance: random.Random, numbers: Iterator[int]
) -> float:
    """Makes a plan after 1 % of the jobs have ended and as many have arrived."""
    running = [job for job in scheduler.view.jobs.values() if job.run]
    for job in chance.sample(running, len(running) // 100):
        world.end(job, 0)
    come = [submitted(number, chance) for number in islice(numbers, len(running) // 100)]
    return _timed(scheduler, world, PLAN_SECONDS + 1.0, world.look(), *come)


def nodes(gpus: int) -> list[Node]:
    made = []
    for type, memory_mib, part in TYPES:
        for number in range(round(gpus * part / NODE_GPUS)):
            of_node = tuple(Gpu(f"gpu{i}", i, type, memory_mib) for i in range(NODE_GPUS))
            made.append(Node(f"{type}-{number}", of_node))
    return made


def submitted(number: int, chance: random.Random) -> Submitted:
    most = 1 if chance.random() < 0.45 else chance.choice([2, 4, 8, 16])
    project = f"project-{chance.randrange(200)}"
    spec = JobSpec(
        name=f"job-{number}",
        user=f"user-{number % 50}",
        project=project,
        max_epochs=chance.randint(5, 100),
        gpus_min=1,
        gpus_max=most,
        memory_mib=chance.randrange(2_000, 30_000, 512),
        shareable=chance.random() < 0.8,
        hours_estimate=chance.lognormvariate(0.0, 1.0),
    )
    return Submitted(JobId(f"job-{number}"), spec)


if __name__ == "__main__":
    main()
