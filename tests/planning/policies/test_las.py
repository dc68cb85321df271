from __future__ import annotations

import pytest

from scheduler.core.model import Job, JobId, Plan
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from scheduler.planning.policies.las import THRESHOLD_GPU_SECONDS, served_gpu_seconds
from tests.builders import NOW, RULES, job, node, share, view, with_run

LAS = POLICIES["las"](RULES)
LONG = THRESHOLD_GPU_SECONDS


def planned(*jobs: Job, gpus: int = 1) -> Plan:
    return LAS(view(*jobs, nodes=[node(gpus)]), NOW)


def test_below_the_threshold_first_come_first_served() -> None:
    jobs = job("a", ran_seconds=LONG / 2), job("b", submitted_at=1.0)
    assert set(planned(*jobs).placements) == {"a"}


def test_a_job_above_the_threshold_comes_after_the_others() -> None:
    jobs = job("a", ran_seconds=LONG), job("b", submitted_at=1.0)
    assert set(planned(*jobs).placements) == {"b"}


def test_service_is_gpus_times_time() -> None:
    assert served_gpu_seconds(job("a", ran_seconds=100.0), 4, NOW) == 400.0
    runs = with_run(job("a", ran_seconds=100.0), share(), started_at=NOW - 50.0)
    assert served_gpu_seconds(runs, 2, NOW) == 300.0
    jobs = job("a", gpus=2, ran_seconds=LONG / 2), job("b", submitted_at=1.0)
    assert set(planned(*jobs, gpus=2).placements) == {"b"}


def test_a_demoted_run_leaves_for_a_job_in_the_first_queue() -> None:
    runs = with_run(job("a", ran_seconds=LONG), share())
    plan = planned(runs, job("b", submitted_at=1.0))
    assert plan.placements == {}
    assert line(plan.why[JobId("a")]) == "preempted (for b)"


def test_runs_in_the_same_queue_do_not_take_turns() -> None:
    runs = with_run(job("a", ran_seconds=2 * LONG), share())
    assert set(planned(runs, job("b", ran_seconds=LONG, submitted_at=1.0)).placements) == {"a"}


def test_it_asks_to_plan_again_when_a_run_will_be_demoted() -> None:
    runs = with_run(job("a", ran_seconds=LONG - 600.0), share(), started_at=NOW - 100.0)
    assert planned(runs, job("b", submitted_at=1.0)).replan_at == pytest.approx(NOW + 500.0)
    assert planned(runs).replan_at is None
    late = with_run(job("a", ran_seconds=LONG - 100.0), share(), started_at=NOW - 100.0 + 1e-5)
    assert planned(late, job("b", submitted_at=1.0)).replan_at is None
