"""How far a job may grow at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.learning import kind_of
from scheduler.core.model import Job, JobFamily, Measured, Placement
from scheduler.estimates.measurements import read
from scheduler.planning.optimizer.growth import MUCH_LEFT, Tried, has_much_left
from tests import builders

T4 = [Placement("t4", n, -(-n // 4)) for n in (1, 2, 4, 8, 16, 32, 64)]
A100 = [Placement("a100", n) for n in (1, 2, 4, 8)]


def job(name: str, *shown: str, kind: str = "", batch_size: int = 0) -> Job:
    made = builders.job(name)
    measured = tuple(Measured(where, (), 100.0, 3) for where in shown)
    spec = replace(made.spec, project=kind or name, batch_size=batch_size)
    return replace(made, measured=measured, spec=spec)


def reach(
    *jobs: Job,
    on: list[Placement] = T4,
    kinds: Mapping[str, JobFamily] | None = None,
    least: int = 1,
    much: bool = False,
) -> list[int]:
    """The numbers of GPUs that the first job may have."""
    first = np.zeros(1, np.intp)
    tried = Tried(read(jobs, kinds or {}))
    allowed = tried.allows(first, on, np.array([least]), np.array([much]))
    return [on[at].gpus for at in np.flatnonzero(allowed[0])]


def test_a_job_gets_at_most_twice_what_it_was_measured_on() -> None:
    assert reach(job("a", "t4x1")) == [1, 2]
    assert reach(job("a", "t4x1", "t4x4")) == [1, 2, 4, 8]


def test_or_what_its_kind_was_measured_on() -> None:
    assert reach(job("a", kind="k"), job("b", "t4x4", kind="k")) == [1, 2, 4, 8]


def test_or_what_another_batch_size_of_its_script_was_measured_on() -> None:
    small, large = job("a", kind="k", batch_size=32), job("b", "t4x4", kind="k", batch_size=64)
    assert reach(small, large) == [1, 2, 4, 8]
    ended = JobFamily(measured=(Measured("t4x4", (), 1.0, 3),))
    assert reach(small, kinds={kind_of(large.spec): ended}) == [1, 2, 4, 8]


def test_a_new_script_takes_its_first_step_from_the_fewest_that_it_can_use() -> None:
    assert reach(job("a"), job("b", "t4x16")) == [1, 2]
    assert reach(job("a"), least=4) == [1, 2, 4, 8]
    assert reach(job("a"), much=True) == [1, 2, 4]


def test_on_another_type_it_gets_no_more_than_it_had_somewhere() -> None:
    assert reach(job("a", "t4x4"), job("b", "a100x1"), on=A100) == [1, 2, 4]
    assert reach(job("a", "t4x4"), on=A100) == [1, 2, 4], "no job was measured there"


def test_it_takes_at_most_twice_the_nodes() -> None:
    spread = [Placement("t4", 4, nodes) for nodes in (1, 2, 4)]
    tried, one = Tried(read([job("a", "t4x4")], {})), np.ones(1, np.intp)
    allowed = tried.allows(one - 1, spread, one, np.zeros(1, bool))
    assert allowed.tolist() == [[True, True, False]]


def test_with_much_left_and_room_for_all_it_takes_two_steps() -> None:
    assert reach(job("a", "t4x4"), much=True) == [1, 2, 4, 8, 16]
    left, work = np.full(2, MUCH_LEFT), np.full(2, 20.0 * MUCH_LEFT)
    restart = np.array([20.0, 20.1])
    assert has_much_left(np.array([4, 4]), 8, left, work, restart).tolist() == [True, False]
    assert has_much_left(np.array([4, 4]), 7, left, work, restart).tolist() == [False, False]
    assert has_much_left(np.array([4, 4]), 8, left - 1, work, restart).tolist() == [False, False]


@given(st.lists(st.sampled_from([f"t4x{n}" for n in (1, 2, 4)] + ["t4x8/2", "t4x64/16"])))
def test_a_script_reaches_all_it_has_tried_and_never_more_than_twice(shown: list[str]) -> None:
    most = max((p.gpus for p in map(Placement.parse, shown) if p), default=1)
    assert reach(job("a", *shown)) == [place.gpus for place in T4 if place.gpus <= 2 * most]
