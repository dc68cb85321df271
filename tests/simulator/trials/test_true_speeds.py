"""A policy that is told the truth is told the truth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Placement
from scheduler.planning.optimizer.inventory import stocks
from simulator.traces.behaviour import Course
from simulator.trials.trace_world import trace_job_id
from simulator.trials.true_speeds import SECONDS_MOST, true_speeds
from tests import builders
from tests.simulator.little import Plain, job, nodes


def test_the_seconds_are_those_of_the_epochs_that_are_left_on_these_gpus() -> None:
    true = Plain(types=("t4", "bad"))
    traced = [
        job("a", truth=true),
        replace(job("b", truth=true), course=Course(first=1.5, last=0.5)),
    ]
    jobs = [
        builders.job(trace_job_id(number), max_epochs=5, epochs_done=done)
        for number, done in enumerate((0, 3))
    ]
    known = true_speeds(traced, {"bad": 5.0})(jobs, {}, stocks(usable_gpus(nodes(4))))
    table = known.seconds([Placement("t4", 1, 1), Placement("t4", 2, 1), Placement("bad", 1, 1)])
    assert table[0].tolist() == [100.0, 50.0, 500.0]
    assert table[1].tolist() == pytest.approx([62.5, 31.25, 312.5])
    assert not known.doubt([Placement("t4", 1, 1)]).any()


def test_where_a_job_cannot_run_its_seconds_are_finite() -> None:
    jobs = [builders.job(trace_job_id(0))]
    traced = [job("a", truth=Plain(types=("a100",)))]
    known = true_speeds(traced, {})(jobs, {}, stocks(usable_gpus(nodes(1))))
    assert known.seconds([Placement("t4", 1, 1)]).tolist() == [[SECONDS_MOST]]
