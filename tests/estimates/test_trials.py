"""What it is worth to try a configuration in which a job was never measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.estimates.trials import LAST_EPOCHS, may_be_tried, seconds_with_return


def hoped(
    mean: float,
    doubt: float,
    *,
    here: float = 100.0,
    least: float = 0.0,
    left: float = 50.0,
    restart: float = 20.0,
) -> float:
    given = (np.array(value) for value in (here, mean, doubt, least, left, restart))
    return float(seconds_with_return(*given))


def test_without_doubt_it_takes_what_is_expected() -> None:
    assert hoped(80.0, 1e-9) == pytest.approx(80.0)


def test_without_doubt_a_slower_one_costs_an_epoch_and_the_way_back() -> None:
    assert hoped(300.0, 1e-9) * 50 == pytest.approx(300.0 + 49 * 100.0 + 20.0)


def test_the_mean_of_the_better_is_that_of_many_draws() -> None:
    draws = 90.0 * np.exp(np.random.default_rng(1).normal(0.0, 0.3, 400_000))
    later = np.maximum(np.minimum(draws, 100.0 + 20.0 / 49), 70.0)
    wanted = (90.0 + 49 * later.mean()) / 50
    assert hoped(90.0, np.sqrt(np.exp(0.09) - 1), least=70.0) == pytest.approx(wanted, rel=0.005)


def test_what_is_more_doubtful_is_more_worth_a_try() -> None:
    found = [hoped(105.0, doubt) for doubt in (0.01, 0.1, 0.2, 0.5)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 100.0 < found[0]


def test_nothing_is_tried_in_the_last_epochs_or_before_the_present_speed_is_known() -> None:
    def may(left: float, doubt: float = 0.5, best: float = 100.0) -> bool:
        one = (np.array(value) for value in (80.0, doubt, best, left))
        return bool(may_be_tried(*one))

    assert may(LAST_EPOCHS + 1)
    assert not may(LAST_EPOCHS)
    assert not may(100.0, doubt=0.02)
    assert not may(100.0, best=np.inf)


@given(
    st.floats(1e-3, 1e6),
    st.floats(1e-3, 1e6),
    st.floats(0.0, 50.0),
    st.floats(0.0, 1.0),
    st.floats(1.0, 1e6),
    st.floats(0.0, 1e5),
)
def test_a_try_is_never_expected_to_be_faster_than_possible_nor_slower_than_the_way_back(
    here: float, mean: float, doubt: float, part: float, left: float, restart: float
) -> None:
    least = part * min(here, mean)
    found = hoped(mean, doubt, here=here, least=least, left=left, restart=restart)
    assert np.isfinite(found)
    assert found >= least * (1 - 1e-9)
    assert found <= max(mean, (mean + max(left - 1, 1) * here + restart) / left) * 1.001
