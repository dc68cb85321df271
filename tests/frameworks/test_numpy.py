"""The example in plain numpy, which needs no further packages."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frameworks.conftest import ROUNDS, Alone, Example, Preempted

NUMPY = Example("numpy", epochs=60)  # each of them takes some 50 ms


def test_it_trains_alone_and_learns(alone: Alone) -> None:
    losses = alone(NUMPY).losses(NUMPY.epochs)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_stopped_anywhere_it_ends_with_the_same_weights(
    alone: Alone, preempted: Preempted, seed: int
) -> None:
    whole, pieces = alone(NUMPY), preempted(NUMPY, seed)
    assert pieces.log == whole.log
    with np.load(whole.checkpoint) as expected, np.load(pieces.checkpoint) as found:
        assert sorted(found) == sorted(expected)
        for name in expected:
            assert np.array_equal(found[name], expected[name]), name
