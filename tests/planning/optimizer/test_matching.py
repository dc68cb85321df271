from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.estimates.arrays import Floats
from scheduler.planning.optimizer.matching import match_pairs


def gains(size: int, seed: int, density: float = 1.0) -> Floats:
    chance = np.random.default_rng(seed)
    gain = chance.random((size, size)) * (chance.random((size, size)) < density)
    gain = np.triu(gain, 1)
    return gain + gain.T


def best(gain: Floats) -> float:
    """By trying all matchings."""
    if len(gain) < 2:
        return 0.0
    rest = [best(np.delete(np.delete(gain, [0, k], 0), [0, k], 1)) for k in range(1, len(gain))]
    alone = best(gain[1:, 1:])
    return max(alone, *(float(gain[0, k]) + worth for k, worth in enumerate(rest, start=1)))


@settings(max_examples=60)
@given(st.integers(0, 8), st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.6, 1.0]))
def test_each_row_is_in_one_pair_at_most_and_the_pairs_gain_much(
    size: int, seed: int, density: float
) -> None:
    gain = gains(size, seed, density)
    first, second = match_pairs(gain)
    rows = [*first.tolist(), *second.tolist()]
    assert len(set(rows)) == len(rows)
    assert (gain[first, second] > 0).all()
    # A cycle of three is the worst: one of its three edges is left, and all are counted half.
    assert gain[first, second].sum() >= best(gain) * 2 / 3 - 1e-9


def test_of_many_rows_the_pairs_gain_almost_the_most() -> None:
    gain = gains(300, seed=1)
    first, second = match_pairs(gain)
    # No row can gain more than its largest entry, and two share each gain.
    assert gain[first, second].sum() >= 0.95 * gain.max(axis=1).sum() / 2


def test_a_cycle_of_even_length_is_cut_where_it_gains_most() -> None:
    gain = np.zeros((4, 4))
    for a, b, each in ((0, 1, 3.0), (1, 2, 2.0), (2, 3, 3.0), (3, 0, 2.0)):
        gain[a, b] = gain[b, a] = each
    first, second = match_pairs(gain)
    assert gain[first, second].sum() == pytest.approx(6.0)


def test_nothing_to_gain_is_no_pair() -> None:
    first, second = match_pairs(np.zeros((5, 5)))
    assert first.size == second.size == 0
