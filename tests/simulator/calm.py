"""A world without faults, with one GPU and equal jobs."""

from __future__ import annotations

import random
from collections import defaultdict

from scheduler.core.model import JobId, JobSpec, Launch, Share
from simulator.lives.faults import NO_FAULTS, Faults
from simulator.lives.workload import ClientKind, TrueJob
from simulator.lives.world import World
from tests import builders

JOB = JobId("j")
SPEC = JobSpec("j", "ann", max_epochs=2)
LAUNCH = Launch(JOB, 1, SPEC, (Share("n1", "gpu0", 1000),), 0, 2, "token")
TRUTH = TrueJob(
    job_id=JOB,
    spec=SPEC,
    submit_at=0.0,
    kind=ClientKind.LIBRARY,
    epoch_seconds=50.0,
    memory_mib=1000,
)


def world(faults: Faults = NO_FAULTS, truth: TrueJob = TRUTH, agents: bool = False) -> World:
    truths: dict[JobId, TrueJob] = defaultdict(lambda: truth)
    return World(random.Random(1), faults, [builders.node()], truths, agents=agents)
