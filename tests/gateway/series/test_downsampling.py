from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.gateway.series.downsampling import downsampled
from scheduler.gateway.series.reading import Points

MANY = 100_000


def points(values: Any) -> Points:
    return Points(np.arange(len(values)), np.arange(len(values)), values)


@pytest.fixture
def noise() -> Any:
    return np.random.default_rng(1).normal(size=MANY).cumsum()


def test_a_spike_and_both_ends_stay(noise: Any) -> None:
    noise[70_001], noise[80_001] = 1e6, -1e6
    shown = downsampled(points(noise), 2_000)
    assert len(shown) == 2_000
    assert {0, 70_001, 80_001, MANY - 1} <= set(shown.times.tolist())
    assert np.all(np.diff(shown.times) > 0)
    assert np.array_equal(noise[shown.times], shown.values)


def test_few_points_all_stay(noise: Any) -> None:
    few = points(noise[:2_000])
    assert downsampled(few, 2_000) is few


def test_nan_and_infinities_stay_beside_the_curve(noise: Any) -> None:
    noise[5], noise[6], noise[70_001] = np.nan, np.inf, 1e6
    shown = downsampled(points(noise), 2_000)
    assert len(shown) == 2_000
    assert {5, 6, 70_001} <= set(shown.times.tolist())


def test_a_curve_that_is_mostly_nan_still_has_a_shape(noise: Any) -> None:
    noise[::2], noise[70_001] = np.nan, 1e6
    shown = downsampled(points(noise), 2_000)
    assert len(shown) == 2_000
    assert np.isnan(shown.values).sum() == 500
    assert 70_001 in shown.times


def test_nothing_but_nan_is_thinned_too() -> None:
    shown = downsampled(points(np.full(MANY, np.nan)), 100)
    assert 0 < len(shown) <= 100


@pytest.mark.parametrize("kind", [np.int64, np.bool_])
def test_whole_numbers_and_truths_keep_their_kind(kind: Any) -> None:
    shown = downsampled(points((np.arange(MANY) % 3).astype(kind)), 100)
    assert (len(shown), shown.values.dtype) == (100, kind)


def test_texts_are_chosen_evenly_with_both_ends() -> None:
    shown = downsampled(points(np.array([str(n) for n in range(1_001)], object)), 11)
    assert shown.values.tolist() == [str(n) for n in range(0, 1_001, 100)]
