"""How jobs really behave."""

from __future__ import annotations

import math

import pytest

from simulator.traces.behaviour import (
    HONEST,
    STEADY,
    Course,
    Lie,
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


def test_epochs_change_by_equal_steps_from_the_first_to_the_last() -> None:
    course = Course(first=1.5, last=0.5)
    seconds = [course.epoch_seconds(100.0, epoch, 5, 0.0) for epoch in range(5)]
    assert seconds == pytest.approx([150.0, 125.0, 100.0, 75.0, 50.0])
    assert course.mean_factor(0, 5) == pytest.approx(1.0)
    assert course.mean_factor(3, 5) == pytest.approx(0.625)
    assert course.mean_factor(5, 5) == pytest.approx(0.5), "when nothing is left"
    assert Course(first=2.0, last=9.0).epoch_seconds(100.0, 0, 1, 0.0) == 200.0


@pytest.mark.parametrize(
    ("trained", "seconds"),
    [
        (300.0, 100.0),  # the slow minutes are over
        (0.0, 100.0 + 250.0),  # in 300 slow seconds 50 are done
        (240.0, 100.0 + 50.0),
    ],
)
def test_a_run_is_slow_until_it_has_found_its_batch(trained: float, seconds: float) -> None:
    course = Course(tuning=6.0, tuning_seconds=300.0)
    assert course.epoch_seconds(100.0, 0, 9, trained) == pytest.approx(seconds)


def test_an_epoch_within_the_slow_minutes_is_slow_as_a_whole() -> None:
    course = Course(tuning=6.0, tuning_seconds=300.0)
    assert course.epoch_seconds(10.0, 0, 9, 0.0) == course.epoch_seconds(10.0, 1, 9, 60.0) == 60.0


def test_who_does_not_lie_tells_what_was_measured() -> None:
    assert STEADY.epoch_seconds(0.1, 3, 7, 5.0) == HONEST.told_seconds(0.1, 3, 8) == 0.1
    told = [Lie(factors=(0.0, 10.0)).told_seconds(3.0, epoch, 8) for epoch in range(3)]
    assert told == [0.0, 30.0, 0.0]
    assert Lie(per_gpu=0.5).told_seconds(10.0, 1, 4) == 5.0
    assert [Lie(jumps=(0.0, -60.0)).told_seconds(9.0, epoch, 4) for epoch in (0, 1)] == [9.0, -51.0]
