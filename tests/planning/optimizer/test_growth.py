"""How far a job may grow at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model import Job, Measured, Placement
from scheduler.estimates.measurements import read
from scheduler.planning.optimizer.growth import MUCH_LEFT, Tried, has_much_left
from tests import builders

T4 = [Placement("t4", n, -(-n // 4)) for n in (1, 2, 4, 8, 16, 32, 64)]
A100 = [Placement("a100", n) for n in (1, 2, 4, 8)]


def job(name: str, *shown: str, kind: str = "") -> Job:
    made = builders.job(name)
    measured = tuple(Measured(where, (), 100.0, 3) for where in shown)
    return replace(made, measured=measured, spec=replace(made.spec, project=kind or name))


def reach(*jobs: Job, on: list[Placement] = T4, much: bool = False) -> list[int]:
    """The numbers of GPUs that the first job may have."""
    tried = Tried(read(jobs, {}))
    allowed = tried.allows(np.arange(len(jobs)), on, np.full(len(jobs), much))
    return [on[at].gpus for at in np.flatnonzero(allowed[0])]


def test_a_job_gets_at_most_twice_what_it_was_measured_on() -> None:
    assert reach(job("a", "t4x1")) == [1, 2]
    assert reach(job("a", "t4x1", "t4x4")) == [1, 2, 4, 8]


def test_or_what_its_kind_was_measured_on() -> None:
    assert reach(job("a", kind="k"), job("b", "t4x4", kind="k")) == [1, 2, 4, 8]
    assert reach(job("a", kind="k"), job("b", "t4x4", kind="other")) == []


def test_on_another_type_it_gets_no_more_than_it_had_somewhere() -> None:
    assert reach(job("a", "t4x4"), job("b", "a100x1"), on=A100) == [1, 2, 4]
    assert reach(job("a", "t4x4"), on=A100) == [1, 2, 4], "no job was measured there"


def test_it_takes_at_most_twice_the_nodes() -> None:
    spread = [Placement("t4", 4, nodes) for nodes in (1, 2, 4)]
    tried = Tried(read([job("a", "t4x4")], {}))
    assert tried.allows(np.array([0]), spread, np.zeros(1, bool)).tolist() == [[True, True, False]]


def test_with_much_left_and_room_for_all_it_takes_two_steps() -> None:
    assert reach(job("a", "t4x4"), much=True) == [1, 2, 4, 8, 16]
    left, work = np.full(2, MUCH_LEFT), np.full(2, 20.0 * MUCH_LEFT)
    restart = np.array([20.0, 20.1])
    assert has_much_left(np.array([4, 4]), 8, left, work, restart).tolist() == [True, False]
    assert has_much_left(np.array([4, 4]), 7, left, work, restart).tolist() == [False, False]
    assert has_much_left(np.array([4, 4]), 8, left - 1, work, restart).tolist() == [False, False]


@given(st.lists(st.sampled_from([f"t4x{n}" for n in (1, 2, 4)] + ["t4x8/2", "t4x64/16"])))
def test_a_kind_reaches_all_it_has_tried_and_never_more_than_twice(shown: list[str]) -> None:
    most = max((p.gpus for p in map(Placement.parse, shown) if p), default=0)
    assert reach(job("a", *shown)) == [place.gpus for place in T4 if place.gpus <= 2 * most]
