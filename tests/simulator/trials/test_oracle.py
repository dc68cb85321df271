"""The loop, the policies, their placement and the world of a trace, compared with a simulator that
shares none of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.model import Rules
from scheduler.planning.policies import POLICIES
from simulator.generate import generate
from simulator.traces.behaviour import TraceJob
from simulator.trials.trial import Trial
from tests.oracle import Oracle
from tests.simulator.little import Plain, job, nodes

SIZES = (8, 8)


def mean_seconds(jobs: list[TraceJob], policy: str, every: float, sizes: tuple[int, ...]) -> float:
    rules = Rules(plan_every_seconds=every)
    trial = Trial(jobs, nodes(*sizes), POLICIES[policy](rules), rules, gather_seconds=0.0)
    completions = trial.run().completion_times()
    assert len(completions) == len(jobs)
    return sum(completions) / len(completions)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
@pytest.mark.parametrize(("seed", "every"), [(1, 0.0), (2, 60.0), (3, 300.0), (4, 60.0)])
def test_both_agree_on_a_trace(policy: str, seed: int, every: float) -> None:
    jobs = generate(80, seed=seed, gpus=sum(SIZES), load=1.2, elastic=0.0)
    jobs = [replace(one, truth=_Slower(one.truth.epoch_seconds("t4", 1, 1))) for one in jobs]
    oracle = Oracle(jobs, SIZES, "t4", policy, every).mean_seconds()
    assert mean_seconds(jobs, policy, every, SIZES) == pytest.approx(oracle, rel=0.005)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_both_agree_on_gangs_that_only_several_nodes_can_hold(policy: str) -> None:
    sizes = (4, 4, 4)
    jobs = generate(60, seed=5, gpus=sum(sizes), load=1.1, elastic=0.0)
    jobs = [replace(one, truth=_Slower(one.truth.epoch_seconds("t4", 1, 1))) for one in jobs]
    assert max(one.spec.gpus_min for one in jobs) > max(sizes)
    oracle = Oracle(jobs, sizes, "t4", policy, 60.0).mean_seconds()
    assert mean_seconds(jobs, policy, 60.0, sizes) == pytest.approx(oracle, rel=0.005)


class _Slower(Plain):
    """More nodes are slower, so placements matter."""

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.seconds / count * (1.0 + 0.3 * (nodes - 1))


def test_the_oracle_by_hand() -> None:
    """Two jobs of 3 epochs of 100 s on one GPU, 20 s to start: 320 s, then 320 s more."""
    jobs = [job("a", epochs=3), job("b", at=10.0, epochs=3)]
    assert Oracle(jobs, [1], "t4", "fifo", 0.0).mean_seconds() == (320.0 + 630.0) / 2


def test_the_oracle_preempts_at_the_end_of_an_epoch_by_hand() -> None:
    """At 220 s the long job is preempted; at 340 s it is launched again with 8 epochs left."""
    jobs = [job("a", epochs=10), job("b", at=130.0, epochs=1)]
    assert Oracle(jobs, [1], "t4", "srtf", 0.0).mean_seconds() == (1160.0 + 210.0) / 2
