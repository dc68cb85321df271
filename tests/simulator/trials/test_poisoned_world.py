"""One job that was slow on almost all GPUs does not keep another from them."""

from __future__ import annotations

import pytest

from scheduler.core.model import Rules
from scheduler.core.ports import Step
from scheduler.planning.policies import POLICIES
from simulator.traces.worlds import build_world
from simulator.trials.trial import Trial

RULES = Rules(plan_every_seconds=60.0)


@pytest.mark.slow
def test_the_long_job_of_the_poisoned_world_uses_the_idle_gpus_within_ten_epochs() -> None:
    world = build_world("poisoned", 1)
    gpus = sum(len(node.gpus) for node in world.nodes)
    had: dict[int, int] = {}  # by epochs done, the most GPUs until then

    def watch(step: Step) -> None:
        for job in map(step.after.jobs.__getitem__, step.touched):
            if job.spec.project == "long" and job.run:
                had[job.epochs_done] = len(job.run.shares)

    jobs = world.jobs
    Trial(jobs, world.nodes, POLICIES["gpu_sharing"](RULES), RULES, listener=watch).run()
    assert max(had[epoch] for epoch in range(11) if epoch in had) >= 0.8 * gpus
