"""Adaptive jobs: a batch for each number of GPUs, and epochs that shrink as the noise grows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simulator.traces.adaptive_jobs import AdaptiveTruth, adaptive_times, noise_of_epochs
from simulator.traces.assumptions import ADAPTIVE, APPLICATIONS
from simulator.traces.behaviour import SerialTruth, VaryingTruth, speed_by_utilisation
from simulator.traces.measured_tables import StepTimes

DATA = Path(__file__).parents[1] / "data"
TIMES = adaptive_times(DATA, "cifar10")
ON_ONE = "t4", 1, 1


def fixed_seconds(batch: int, type: str, count: int, nodes: int) -> float:
    """Of an epoch with this batch, if its samples taught as much as those of the smallest one."""
    steps = APPLICATIONS["cifar10"].samples / batch
    return steps * StepTimes(DATA, "cifar10", batch, 1.0).seconds(type, count, nodes)


def test_every_application_can_be_adaptive() -> None:
    assert ADAPTIVE.keys() == APPLICATIONS.keys()
    for adaptive in ADAPTIVE.values():
        least, most = adaptive.batches
        assert 1 <= least < most
        assert list(adaptive.noise) == sorted(adaptive.noise)


def test_between_stages_the_noise_grows_evenly_by_its_logarithm() -> None:
    assert noise_of_epochs((1.0, 100.0, 10_000.0), 5).tolist() == pytest.approx(
        [1.0, 10.0, 100.0, 1_000.0, 10_000.0]
    )
    assert noise_of_epochs((7.0, 9.0), 1).tolist() == pytest.approx([7.0])


@pytest.mark.parametrize("where", [ON_ONE, ("t4", 2, 1), ("t4", 8, 2)])
def test_an_epoch_is_as_long_as_with_its_best_batch_and_never_better_than_without_noise(
    where: tuple[str, int, int],
) -> None:
    least, most = ADAPTIVE["cifar10"].batches
    slowness = ADAPTIVE["cifar10"].slowness
    each = TIMES.each(*where)
    assert len(each) == APPLICATIONS["cifar10"].passes
    assert max(each) <= slowness * fixed_seconds(least, *where) * (1 + 1e-9)
    best = min(fixed_seconds(batch, *where) for batch in range(least, most + 1, 16))
    assert min(each) >= slowness * best


def test_epochs_shrink_as_the_noise_grows_and_more_so_on_more_gpus() -> None:
    one, eight = TIMES.each(*ON_ONE), TIMES.each("t4", 8, 2)
    assert list(eight) == sorted(eight, reverse=True)
    assert eight[0] / eight[-1] > one[0] / one[-1]


def test_the_truth_is_the_mean_of_what_it_says_of_each_epoch() -> None:
    truth = AdaptiveTruth(5120, 0.9, TIMES)
    assert isinstance(truth, VaryingTruth)
    epochs = APPLICATIONS["cifar10"].passes
    each = [truth.epoch_seconds_at(epoch, *ON_ONE) for epoch in range(epochs)]
    assert truth.epoch_seconds(*ON_ONE) == pytest.approx(sum(each) / epochs)
    assert truth.epoch_seconds_at(epochs + 5, *ON_ONE) == each[-1]
    other = SerialTruth(1000, 0.5, 10.0, 0.0)
    assert truth.speed_beside(other, "t4") == speed_by_utilisation(0.9, 0.5)


def test_on_a_type_that_was_not_measured_it_cannot_run() -> None:
    assert TIMES.seconds("k80", 1, 1) == math.inf
