"""What fair sharing would have given each job, and that those behind it weigh more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model import Job
from scheduler.planning.optimizer.fair_share import fair_parts, lacking
from tests.builders import RULES
from tests.planning.optimizer.test_offer import made, scaling

WANTS = st.lists(st.integers(1, 64), min_size=1, max_size=40)
DAY = 86_400.0


@given(WANTS, st.integers(0, 200))
def test_fair_parts_are_those_of_equal_shares(wants: list[int], gpus: int) -> None:
    shares = fair_parts(np.array(wants), gpus) * wants
    assert shares.sum() <= gpus + 1e-6
    assert (shares <= np.array(wants) + 1e-9).all()
    if sum(wants) >= gpus:
        assert np.isclose(shares.sum(), gpus), "none is left over"
    content = np.isclose(shares, wants)
    assert np.allclose(shares[~content], shares.max()), "who has less than it wants has the most"


@given(WANTS, st.integers(1, 200), st.integers(0, 99))
def test_another_job_takes_from_each_and_gives_to_none(
    wants: list[int], gpus: int, more: int
) -> None:
    alone = fair_parts(np.array(wants), gpus)
    beside = fair_parts(np.array([*wants, 1 + more]), gpus)[:-1]
    assert (beside <= alone + 1e-9).all()


def lacks(age: float, done: int, part: float) -> float:
    """What a job with epochs of 100 seconds lacks."""
    ages, epochs, parts = np.array([age]), np.array([done]), np.array([part])
    return float(lacking(ages, epochs, np.array([100.0]), parts)[0])


def test_a_job_lacks_what_fair_sharing_would_have_let_it_train_beyond_an_epoch() -> None:
    assert lacks(100.0, 0, part=1.0) == 0.0
    assert lacks(400.0, 0, part=1.0) == 0.75
    assert lacks(400.0, 1, part=1.0) == 0.5
    assert lacks(400.0, 1, part=0.5) == 0.0, "of two jobs that each want all GPUs"


@given(st.floats(0.0, 1e6), st.integers(0, 99), st.floats(0.0, 1.0))
def test_a_job_lacks_more_the_longer_it_waits_and_less_with_each_epoch(
    age: float, done: int, part: float
) -> None:
    found = lacks(age, done, part)
    assert 0.0 <= found <= 1.0
    assert lacks(age + 100.0, done, part) >= found >= lacks(age, done + 1, part)


def test_one_that_can_run_nowhere_lacks_nothing() -> None:
    forever = np.array([np.inf])
    assert lacking(np.array([DAY]), np.array([0]), forever, np.ones(1)).tolist() == [0.0]


def crowd(done: int) -> list[Job]:
    """A long job among short ones, which has finished that many epochs of 26 seconds."""
    long = replace(scaling("long", epochs=10_000), epochs_done=done)
    short = [scaling(f"short {n}", epochs=100) for n in range(7)]
    return [long, *short]


def weight_of_the_long_job(done: int, at: float, fair_weight: float = 1.0) -> float:
    rules = replace(RULES, fair_weight=fair_weight)
    return float(made(*crowd(done), rules=rules, at=at).weight[0])


def test_the_longest_job_weighs_more_the_further_it_is_behind_fair_sharing() -> None:
    fair = int(DAY / 8 / 26.5)  # epochs in a day with an eighth of the GPUs
    assert weight_of_the_long_job(0, DAY) == pytest.approx(1.0, abs=0.01)
    assert weight_of_the_long_job(fair // 2, DAY) == pytest.approx(0.5, abs=0.01)
    assert weight_of_the_long_job(fair // 2, DAY, fair_weight=0.5) == pytest.approx(0.25, abs=0.01)
    assert weight_of_the_long_job(fair, DAY) < 0.1, "it has its due"
    assert weight_of_the_long_job(0, 60.0) < 0.1, "it has just come"
    assert made(*crowd(0), at=DAY).weight[0] < 0.1, "there is no such rule by default"


def test_short_jobs_lose_no_weight_by_it() -> None:
    with_rule = made(*crowd(0), rules=replace(RULES, fair_weight=1.0), at=DAY).weight[1:]
    without = made(*crowd(0), at=DAY).weight[1:]
    assert (with_rule >= without).all()
