"""One whole step of the daemon's loop, decision and commit, in CPU seconds.

`python -m benchmarks.whole_step --json`.
The real loop and the real store in a file, with 10,000 live jobs and 4,096 GPUs of four types.
`import_seconds`: what the first plan of a process pays for numpy, scipy and the policy, apart.
`cold_seconds`: the first look at the cluster, with nothing running yet. `tick_seconds`: one job
in a hundred has ended and others have come, and a plan is made (the median of five).
`report_seconds`: one epoch is reported, and no plan is made (the median of a hundred).
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.figures import options, show
from scheduler.loop import Scheduler
from scheduler.model import (
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
from scheduler.policies import POLICIES
from scheduler.store import SqliteStore

TYPES = (("t4", 16_384, 0.2), ("rtx", 24_576, 0.25), ("a100", 40_960, 0.35), ("h100", 81_920, 0.2))
NODE_GPUS = 8
TICKS, REPORTS = 5, 100


class World:
    """An inbox that is given its news, and a cluster that does at once what it is asked."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes, self.time = tuple(nodes), 1_000.0
        self.pods: dict[RunKey, Pod] = {}
        self.news: list[Event] = []

    def now(self) -> Time:
        return self.time

    def wait(self, until: Time | None) -> list[Event]:
        news, self.news = self.news, []
        return news

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        if isinstance(action, Launch):
            self.pods[key] = Pod(*key, PodState.RUNNING, action.shares)
        else:
            self.pods.pop(key, None)

    def look(self) -> Observed:
        return Observed(self.time, self.nodes, tuple(self.pods.values()))


def main() -> None:
    given = options(__doc__, jobs=10_000, gpus=4_096, seed=1)
    began = time.process_time()
    import_module("scheduler.policies.gpu_sharing")
    imported = time.process_time() - began
    chance = random.Random(given.seed)
    world = World(_nodes(given.gpus))
    rules = Rules(plan_every_seconds=30.0)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "scheduler.db")
        policy = POLICIES["gpu_sharing"](rules)
        scheduler = Scheduler(world, store, world, policy, rules)
        world.news = [_submitted(number, chance) for number in range(given.jobs)]
        _timed(scheduler, world, 1.0)
        cold = _timed(scheduler, world, 1.0, world.look())
        _begin(scheduler, world)
        ticks = [_tick(scheduler, world, chance, n, given.jobs) for n in range(TICKS)]
        running = [job for job in scheduler.view.jobs.values() if job.run]
        world.news = []
        _timed(scheduler, world, 60.0)
        reports = [
            _timed(scheduler, world, 0.01, _epoch(scheduler, job.id)) for job in running[:REPORTS]
        ]
        show(
            import_seconds=round(imported, 3),
            cold_seconds=round(cold, 3),
            tick_seconds=round(statistics.median(ticks), 3),
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


def _begin(scheduler: Scheduler, world: World) -> None:
    """Whoever was launched is in an epoch, and has finished the one before."""
    for _ in range(2):
        jobs = [job for job in scheduler.view.jobs.values() if job.run]
        world.news = [EpochStarted(j.id, j.attempts, j.epochs_done) for j in jobs]
        _timed(scheduler, world, 0.1)
        for job in jobs:
            if (run := scheduler.view.jobs[job.id].run) and run.told_to_stop:
                key = job.id, run.attempt
                world.pods[key] = replace(world.pods[key], state=PodState.SUCCEEDED, exit_code=85)
        world.time += 4_000.0
        _timed(scheduler, world, 0.1, world.look())
        jobs = [job for job in jobs if scheduler.view.jobs[job.id].run]
        world.news = [_epoch(scheduler, job.id) for job in jobs]
        _timed(scheduler, world, 0.1)


def _epoch(scheduler: Scheduler, job_id: JobId) -> EpochEnded:
    job = scheduler.view.jobs[job_id]
    return EpochEnded(
        Profile(
            job_id,
            job.attempts,
            job.epochs_done + 1,
            epoch_seconds=_epoch_seconds(job),
            memory_mib=job.memory_mib,
            gpu_util=0.5,
        )
    )


def _epoch_seconds(job: Job) -> float:
    gpus = len(job.run.shares) if job.run else 1
    return 100.0 * (1 + int(job.spec.name[4:]) % 30) * (0.1 + 0.9 / gpus)


def _tick(
    scheduler: Scheduler, world: World, chance: random.Random, number: int, jobs: int
) -> float:
    running = [job for job in scheduler.view.jobs.values() if job.run]
    for job in chance.sample(running, len(running) // 100):
        key = job.id, job.attempts
        world.pods[key] = replace(world.pods[key], state=PodState.SUCCEEDED, exit_code=0)
    first = jobs * (number + 2)
    come = [_submitted(first + n, chance) for n in range(jobs // 100)]
    took = _timed(scheduler, world, 31.0, world.look(), *come)
    _begin(scheduler, world)
    return took


def _nodes(gpus: int) -> list[Node]:
    nodes = []
    for type, memory_mib, part in TYPES:
        for number in range(round(gpus * part / NODE_GPUS)):
            cards = tuple(Gpu(f"gpu{i}", i, type, memory_mib) for i in range(NODE_GPUS))
            nodes.append(Node(f"{type}-{number}", cards))
    return nodes


def _submitted(number: int, chance: random.Random) -> Submitted:
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
