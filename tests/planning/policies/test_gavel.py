from __future__ import annotations

import numpy as np
import pytest

from scheduler.core.model import Gpu, Job, JobId, Measured, Node, Plan
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from scheduler.planning.policies.gavel import ROUND_SECONDS, _entitled
from scheduler.planning.policies.whole_gpus import Round
from tests.builders import RULES, job, node, share, view, with_run

GAVEL = POLICIES["gavel"](RULES)
BEGAN = 100 * ROUND_SECONDS
NOW = BEGAN + 10.0


def slices(name: str, ran: float = 0.0, *, gpus: int = 1, **seconds: float) -> Job:
    """A job that has run for this long, with these durations of an epoch on each type."""
    measured = tuple(Measured(f"{type}x{gpus}", (), each, 5) for type, each in seconds.items())
    return job(name, gpus=gpus, ran_seconds=ran, measured=measured)


def planned(*jobs: Job, gpus: int = 1, now: float = NOW) -> Plan:
    return GAVEL(view(*jobs, nodes=[node(gpus)]), now)


def two_types(fast: int = 1, slow: int = 1) -> tuple[Node, ...]:
    return tuple(
        Node(name, tuple(Gpu(f"{name}{i}", i, name, 16384, 512) for i in range(count)))
        for name, count in (("fast", fast), ("slow", slow))
    )


def entitled(*jobs: Job, nodes: tuple[Node, ...]) -> np.ndarray:
    made = Round(view(*jobs, nodes=nodes), NOW, RULES, preempts=True)
    return _entitled(made.candidates, sorted(made.left), made)


def test_the_job_that_had_least_comes_first() -> None:
    plan = planned(slices("a", 900.0), slices("b", 300.0), slices("c", 600.0), gpus=2)
    assert set(plan.placements) == {"b", "c"}


def test_a_run_that_had_its_slice_leaves_for_one_that_had_less() -> None:
    runs = with_run(slices("a", 900.0), share(), started_at=BEGAN - 700.0)
    plan = planned(runs, slices("b"))
    assert plan.placements == {}
    assert line(plan.why[JobId("a")]) == "preempted (for b)"


def test_a_run_keeps_its_gpus_to_the_end_of_the_round_in_which_it_began() -> None:
    runs = with_run(slices("a", 900.0), share(), started_at=BEGAN + 1.0)
    plan = planned(runs, slices("b"))
    assert set(plan.placements) == {"a"}
    assert plan.replan_at == BEGAN + ROUND_SECONDS


def test_a_job_that_comes_within_a_round_takes_only_what_is_idle() -> None:
    runs = with_run(slices("a", 900.0), share(), started_at=BEGAN - 700.0)
    late = job("b", submitted_at=BEGAN + 5.0)
    assert set(planned(runs, late).placements) == {"a"}
    assert set(planned(runs, late, gpus=2).placements) == {"a", "b"}
    assert planned(runs, late, now=BEGAN + ROUND_SECONDS).placements == {}


def test_large_gangs_are_entitled_to_less_time() -> None:
    jobs = [slices("a"), slices("b", gpus=4)]
    assert entitled(*jobs, nodes=(node(4),)).tolist() == [[1.0], [0.25]]
    jobs = [slices(name) for name in "abcd"]
    assert entitled(*jobs, nodes=(node(2),)).tolist() == [[0.5]] * 4


def test_each_type_is_for_the_jobs_for_which_it_is_fast() -> None:
    jobs = slices("a", fast=10.0, slow=40.0), slices("b", fast=40.0, slow=10.0)
    assert entitled(*jobs, nodes=two_types()) == pytest.approx(np.eye(2))


def test_the_least_of_all_is_as_large_as_can_be() -> None:
    """Three equal jobs on one GPU of each type: each gets a third of both."""
    jobs = [slices(name, fast=20.0, slow=40.0) for name in "abc"]
    parts = entitled(*jobs, nodes=two_types())
    assert parts.sum(axis=0) == pytest.approx([1.0, 1.0])
    assert parts @ [2.0, 1.0] == pytest.approx([1.0, 1.0, 1.0])


def test_what_it_had_is_told_by_type() -> None:
    """Both had the same time in all; on the fast type, b has had nothing yet."""
    a = slices("a", 3600.0, fast=20.0)
    b = slices("b", 3600.0, slow=40.0)
    c = slices("c", 3600.0, fast=20.0, slow=40.0)
    plan = GAVEL(view(a, b, c, nodes=two_types(1, 0)), NOW)
    assert set(plan.placements) == {"b"}


def test_priority_is_above_all() -> None:
    plan = planned(slices("a"), job("b", priority=3, ran_seconds=9000.0))
    assert set(plan.placements) == {"b"}
