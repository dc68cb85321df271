"""What one kind shows moves what is expected of the others by no more than their doubt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model import Job, Placement
from scheduler.estimates.speed import Speeds
from tests.estimates.test_speed import job

WANTED = [
    Placement("t4", 1),
    Placement("t4", 2),
    Placement("t4", 4),
    Placement("t4", 8, 2),
    Placement("t4", 16, 4),
    Placement("t4", 60, 15),
    Placement("a100", 4),
]


def others() -> list[Job]:
    """Kinds that have shown nothing of several nodes."""
    return [
        job("one", ("t4x1", 300.0)),
        job("several", ("t4x1", 300.0), ("t4x2", 160.0), ("t4x4", 90.0)),
    ]


def moved(before: list[Job], poison: Job) -> np.ndarray:
    """[job, config] by how much of their doubt the expectations of the others move."""
    known, poisoned = Speeds(before, {}), Speeds([*before, poison], {})
    was, now = known.estimate(WANTED), poisoned.estimate(WANTED)[: len(before)]
    shift: np.ndarray = np.abs(np.log(now / was)) / known.uncertainty(WANTED)
    return shift


def test_one_job_that_was_slow_on_60_gpus_does_not_make_two_nodes_slow_for_all() -> None:
    poison = job("poison", ("t4x4", 100.0), ("t4x60/15", 4000.0))
    both = [*others(), poison]
    assert moved(others(), poison).max() <= 1.0
    before, after = (Speeds(jobs, {}).estimate([WANTED[3]])[1, 0] for jobs in (others(), both))
    assert after < 1.4 * before


def test_kinds_that_agree_do_teach_it() -> None:
    slow = [job(f"slow-{n}", ("t4x4", 100.0), ("t4x8/2", 300.0)) for n in range(5)]
    eight, four = Speeds([*others(), *slow], {}).estimate([WANTED[3], WANTED[2]])[1]
    assert eight > 2.0 * four


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["t4x1", "t4x2", "t4x4", "t4x8/2", "t4x60/15", "a100x1", "a100x4"]),
        st.floats(1e-3, 1e6),
        min_size=1,
    )
)
def test_whatever_one_kind_shows_the_others_move_by_no_more_than_their_doubt(
    shown: dict[str, float],
) -> None:
    assert moved(others(), job("poison", *shown.items())).max() <= 1.0


@given(st.integers(1, 5), st.integers(1, 5), st.floats(1.5, 20.0))
def test_what_a_kind_of_two_programs_makes_expect_is_as_doubtful_as_they_differ(
    slow: int, fast: int, times: float
) -> None:
    shown = [300.0 * times] * slow + [300.0] * fast
    mixed = [job(f"job-{n}", ("t4x1", it), kind="mixed") for n, it in enumerate(shown)]
    speeds = Speeds([*mixed, job("new", kind="mixed")], {})
    place = [Placement("t4", 1)]
    *known, expected = speeds.estimate(place)[:, 0].tolist()
    assert known == pytest.approx(shown), "what was measured stays as it was"
    doubt = speeds.uncertainty(place)[-1, 0]
    if min(slow, fast) * 4 >= max(slow, fast):
        assert all(abs(np.log(expected / it)) <= 2.0 * doubt for it in shown)


@settings(max_examples=100)
@given(st.floats(1e-3, 1e6), st.integers(3, 12))
def test_the_more_kinds_have_shown_something_the_less_one_more_of_them_moves_the_others(
    seconds: float, kinds: int
) -> None:
    shown = [
        job(f"known-{n}", ("t4x1", 100.0), ("t4x4", 40.0), ("t4x8/2", 30.0)) for n in range(kinds)
    ]
    poison = job("poison", ("t4x4", 100.0), ("t4x8/2", seconds))
    assert moved([*others(), *shown], poison).max() <= 2.0 / kinds
