"""A trial plays a trace to its end, reports impossible jobs, and does not wait forever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.model import Gpu, Node, Outcome, Plan, Rules
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from simulator.traces.behaviour import TraceJob
from simulator.trials.trial import split_by_possible
from tests.simulator.little import RULES, Plain, job, nodes, scripted_policy, trial


@pytest.mark.parametrize(
    ("impossible", "why"),
    [
        (job("wide", gpus=5), "all nodes together do not have 5 GPUs; they have at most 4"),
        (job("said", memory_mib=20000), "no GPU can hold 20,000 MiB; the largest holds 15,893 MiB"),
        (
            job("true", truth=Plain(memory_mib=20000), memory_mib=100),
            "takes 20,000 MiB of each GPU; the largest has 16,384 MiB",
        ),
        (job("other", truth=Plain(types=("a100",))), "cannot train on t4"),
    ],
)
def test_what_can_never_run_is_refused_with_its_reason(impossible: TraceJob, why: str) -> None:
    jobs = [job("first"), impossible]
    refused, possible = split_by_possible(jobs, nodes(2, 2), RULES)
    assert refused == [f"job 2 ({impossible.spec.name}): {why}"]
    assert possible == jobs[:1]


def test_what_fits_some_gpu_is_possible() -> None:
    big = replace(nodes(1)[0], name="big", gpus=(Gpu("gpu0", 0, "a100", 81920),))
    jobs = [job("a", truth=Plain(memory_mib=40000)), job("b", truth=Plain(types=("a100",)))]
    assert split_by_possible(jobs, [*nodes(4), big], RULES) == ([], jobs)


def test_the_refused_are_left_out_and_told() -> None:
    result = trial([job("wide", gpus=3), job("a")], fifo_sharing(RULES), 2).run()
    assert [times.name for times in result.jobs] == ["a"]
    assert result.summary()["refused"] == 1


def test_jobs_that_a_policy_never_places_are_left_over() -> None:
    result = trial([job("a"), job("b")], scripted_policy({"a": [("n0", "gpu0")]})).run()
    a, b = result.jobs
    assert (a.outcome, b.outcome) == (Outcome.SUCCEEDED, None)
    assert result.summary()["unfinished"] == 1


def test_a_policy_that_only_asks_to_be_called_again_is_left_alone() -> None:
    result = trial([job("a")], lambda view, now: Plan(replan_at=now + 60.0)).run()
    assert result.summary()["unfinished"] == 1


def test_the_listener_gets_the_share_that_has_ended() -> None:
    heard: list[float] = []
    jobs = [job(f"j{n}", at=10.0 * n, epochs=9) for n in range(30)]
    trial(jobs, fifo_sharing(RULES), 8).run(heard.append)
    assert heard == sorted(heard)
    assert 0.0 < heard[-1] < 1.0


def test_hearing_later_changes_little() -> None:
    jobs = [job(f"j{n}", at=30.0 * n, epochs=9) for n in range(40)]
    rules = Rules(plan_every_seconds=60.0)
    exact, gathered = (
        trial(jobs, fifo_sharing(rules), 4, rules=rules, gather_seconds=seconds).run()
        for seconds in (0.0, None)
    )
    assert gathered.steps < exact.steps
    means = [result.summary()["mean_h"] for result in (exact, gathered)]
    assert means[1] == pytest.approx(means[0], rel=0.02)


def test_a_node_of_no_gpus_is_no_place() -> None:
    refused, _ = split_by_possible([job("a")], [Node("empty", ())], RULES)
    assert len(refused) == 1
