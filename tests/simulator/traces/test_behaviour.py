"""How jobs really behave."""

from __future__ import annotations

import math

import pytest

from simulator.traces.behaviour import (
    MeasuredTruth,
    Pairs,
    SerialTruth,
    SlicedTruth,
    speed_by_utilisation,
)

PAIRS = Pairs({("t4", "bert", "vgg"): 0.7, ("t4", "vgg", "bert"): 0.9})


class OnlyOne:
    """Runs on one GPU, and nowhere else."""

    def seconds(self, type: str, count: int, nodes: int) -> float:
        return 100.0 if count == 1 else math.inf


def measured(model: str, pairs: Pairs = PAIRS, util: float = 1.0) -> MeasuredTruth:
    return MeasuredTruth(model, 1000, util, OnlyOne(), pairs)


def test_a_pair_that_was_measured_is_as_fast_as_it_was_in_either_direction() -> None:
    assert measured("bert").speed_beside(measured("vgg"), "t4") == 0.7
    assert measured("vgg").speed_beside(measured("bert"), "t4") == 0.9


def test_a_pair_that_was_not_goes_by_how_busy_both_keep_a_gpu() -> None:
    expected = speed_by_utilisation(1.0, 0.5)
    for other, type in (
        (measured("vgg", util=0.5), "a100"),  # another type
        (measured("gpt", util=0.5), "t4"),  # another model
        (measured("vgg", Pairs({}), util=0.5), "t4"),  # of other tables
        (SerialTruth(1000, 0.5, 10.0, 0.0), "t4"),
    ):
        assert measured("bert").speed_beside(other, type) == expected


def test_one_measured_type_may_stand_for_all() -> None:
    pairs = Pairs({("t4", "bert", "vgg"): 0.7}, type="t4")
    assert measured("bert", pairs).speed_beside(measured("vgg", pairs), "a100") == 0.7


def test_where_it_cannot_run_an_epoch_never_ends() -> None:
    assert measured("bert").epoch_seconds("t4", 2, 1) == math.inf


@pytest.mark.parametrize(("serial", "seconds"), [(0.0, 25.0), (1.0, 100.0), (0.2, 40.0)])
def test_more_gpus_shorten_all_but_the_serial_part(serial: float, seconds: float) -> None:
    assert SerialTruth(1000, 1.0, 100.0, serial).epoch_seconds("t4", 4, 1) == pytest.approx(seconds)


def test_slices_that_fit_a_gpu_slow_no_pod() -> None:
    half, most = SlicedTruth(1000, 0.5, 10.0), SlicedTruth(1000, 0.9, 10.0)
    assert half.speed_beside(half, "t4") == 1.0
    assert half.speed_beside(most, "t4") == pytest.approx(1 / 1.4)


def test_a_job_that_keeps_no_gpu_busy_slows_no_neighbour() -> None:
    assert speed_by_utilisation(1.0, 0.0) == speed_by_utilisation(0.0, 1.0) == 1.0
    assert 0.5 < speed_by_utilisation(1.0, 1.0) < 1.0
