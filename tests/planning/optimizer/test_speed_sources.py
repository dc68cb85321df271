"""The planner with speeds that come from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, Placement, Rules
from scheduler.planning.optimizer.inventory import stocks
from scheduler.planning.optimizer.speed_sources import given_speeds
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from tests import builders
from tests.builders import ScriptedCluster, node

RULES = Rules(plan_every_seconds=0.0, restart_seconds=20.0)


def is_good(job: Job) -> bool:
    return job.id == "good"


def scales_if_good(job: Job, placement: Placement) -> float:
    return 600.0 / (placement.gpus if is_good(job) else 1)


def doubts_more_gpus(job: Job, placement: Placement) -> float:
    return 0.1 * placement.gpus


def shares_if_good(job: Job, other: Job, type: str) -> float:
    return 0.95 if is_good(job) and is_good(other) else 0.2


def test_a_job_begins_with_as_many_gpus_as_its_given_speeds_are_worth() -> None:
    made = ScriptedCluster(
        node(4), rules=RULES, policy=gpu_sharing(RULES, given_speeds(scales_if_good))
    )
    made.look()
    for name in ("good", "bad"):
        made.submit(name, memory_mib=2000, gpus_max=3, max_epochs=20)
    assert (len(made.run("good").shares), len(made.run("bad").shares)) == (3, 1)


@pytest.mark.parametrize(("speed", "running"), [(0.95, {"a", "b"}), (0.2, {"a"})])
def test_jobs_share_a_gpu_if_their_given_speeds_pay(speed: float, running: set[str]) -> None:
    speeds = given_speeds(lambda job, placement: 600.0, beside=lambda job, other, type: speed)
    made = ScriptedCluster(node(1), rules=RULES, policy=gpu_sharing(RULES, speeds))
    made.look()
    for name in ("a", "b"):
        made.submit(name, memory_mib=2000, max_epochs=20)
    assert made.running() == running


def test_given_speeds_are_those_of_each_job_placement_and_pair() -> None:
    jobs = [builders.job("good"), builders.job("bad")]
    there = stocks(usable_gpus([node(2)]))
    known = given_speeds(scales_if_good, doubts_more_gpus, shares_if_good)(jobs, {}, there)
    configs = [Placement("t4", 1, 1), Placement("t4", 2, 1)]
    assert known.rows([jobs[1], jobs[0]]).tolist() == [1, 0]
    assert known.seconds(configs).tolist() == [[600.0, 300.0], [600.0, 600.0]]
    assert known.doubt(configs).tolist() == [[0.1, 0.2], [0.1, 0.2]]
    assert known.seconds([]).shape == (2, 0)
    (pairs,) = known.slowed
    both = np.arange(2)
    assert pairs.speeds(both, both).tolist() == [[0.95, 0.2], [0.2, 0.2]]
    assert pairs.each(both, np.array([0, 0])).tolist() == [0.95, 0.2]
    assert not pairs.unseen.any()
