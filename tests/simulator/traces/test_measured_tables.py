"""Values from measured tables, compared with figures computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simulator.traces.behaviour import MeasuredTruth, Pairs, SerialTruth, SlicedTruth
from simulator.traces.measured_tables import (
    LikeTimes,
    RateTimes,
    StepTimes,
    gavel_pairs,
    gavel_rates,
    interpolate,
    lucid_pairs,
    lucid_profiles,
    step_table,
)
from simulator.traces.text_rows import TraceError

DATA = Path(__file__).parents[1] / "data"


def step_seconds(batch: int, count: int, nodes: int, type: str = "t4") -> float:
    return StepTimes(DATA, "cifar10", batch, 1.0).seconds(type, count, nodes)


def test_a_global_batch_is_divided_among_the_gpus() -> None:
    assert step_seconds(200, 1, 1) == pytest.approx(0.18)
    assert step_seconds(200, 2, 1) == pytest.approx(0.12)


def test_between_two_measured_batches_the_time_of_a_step_is_interpolated() -> None:
    assert step_seconds(300, 2, 1) == pytest.approx(0.16)


def test_a_batch_beyond_the_table_is_accumulated_and_gradients_are_exchanged_once() -> None:
    assert step_seconds(400, 1, 1) == pytest.approx(0.18 + 0.18)
    assert step_seconds(800, 2, 1) == pytest.approx(0.18 + 0.20)
    assert step_seconds(500, 1, 1) == pytest.approx(3 * (0.10 + (500 / 3 - 100) * 0.0008))


def test_a_batch_below_the_table_takes_as_long_as_the_smallest() -> None:
    assert step_seconds(10, 1, 1) == pytest.approx(0.10)


def test_placements_of_as_many_gpus_on_as_many_nodes_are_averaged() -> None:
    assert step_seconds(400, 4, 2) == pytest.approx(0.25)


def test_a_measured_placement_counts_more_than_the_table_of_scalability() -> None:
    assert step_seconds(200, 2, 2) == pytest.approx(0.16)


def test_counts_that_were_not_measured_are_interpolated_and_extrapolated() -> None:
    assert step_seconds(300, 3, 2) == pytest.approx((0.16 + 0.25) / 2)
    assert step_seconds(400, 4, 1) == pytest.approx(0.12 + 2 * 0.02)


def test_node_numbers_that_were_not_measured_are_interpolated() -> None:
    on_two_nodes = 0.25 + 4 * (0.25 - 0.16) / 2
    assert step_seconds(800, 8, 3) == pytest.approx((on_two_nodes + 0.40) / 2)


def test_more_nodes_than_were_measured_are_as_slow_as_the_most_that_were() -> None:
    assert step_seconds(800, 8, 8) == pytest.approx(0.40)


def test_what_was_measured_on_one_node_only_is_slowed_by_two_as_on_the_rtx() -> None:
    assert step_seconds(2000, 2, 1, "quad") == pytest.approx(1.1)
    slower = step_seconds(2000, 2, 2, "rtx") / step_seconds(2000, 2, 1, "rtx")
    assert slower > 1.0
    assert step_seconds(2000, 2, 2, "quad") == pytest.approx(1.1 * slower)


def test_it_cannot_run_on_a_type_without_measurements() -> None:
    assert step_seconds(200, 1, 1, "v100") == math.inf
    assert step_seconds(200, 1, 1, "azure") == math.inf


def test_beyond_the_last_point_a_line_never_falls() -> None:
    assert interpolate([1, 2], [3.0, 2.0], 4) == 2.0


def test_beyond_the_last_point_a_line_goes_on_along_the_last_doubling() -> None:
    assert interpolate([1, 4, 7, 8], [9.0, 1.0, 5.0, 3.0], 16) == pytest.approx(3.0 + 8 * 0.5)


def test_a_length_on_the_gpus_asked_for_is_carried_over_by_a_law() -> None:
    law = StepTimes(DATA, "cifar10", 2048, 1.0)
    times = LikeTimes(60.0, (2, 1), law, "rtx")
    assert times.seconds("any", 2, 1) == 60.0
    assert times.seconds("any", 1, 1) == pytest.approx(60.0 * 0.8 / 0.5)
    assert times.seconds("any", 2, 2) == pytest.approx(60.0 * 0.6 / 0.5)


def test_gavels_rates_are_of_steps_over_all_gpus() -> None:
    times = RateTimes(gavel_rates(DATA), "ResNet-18 (batch size 64)", 560.0)
    assert times.seconds("p100", 1, 1) == pytest.approx(56.0)
    assert times.seconds("p100", 3, 1) == pytest.approx(560.0 / 22.0)
    assert times.seconds("p100", 8, 1) == pytest.approx(560.0 / 52.0)
    assert times.seconds("p100", 2, 2) == pytest.approx(560.0 / 12.0)
    assert times.seconds("k80", 1, 1) == pytest.approx(112.0)


def test_where_gavel_did_not_measure_a_model_it_cannot_run() -> None:
    times = RateTimes(gavel_rates(DATA), "CycleGAN", 10.0)
    assert times.seconds("p100", 1, 1) == pytest.approx(5.0)
    assert times.seconds("p100", 2, 1) == math.inf
    assert times.seconds("k80", 1, 1) == math.inf
    assert times.seconds("v100", 1, 1) == math.inf


def test_gavels_pairs_differ_by_type_and_are_clipped_at_one() -> None:
    pairs = gavel_pairs(DATA)
    resnet = "ResNet-18 (batch size 64)"
    assert pairs.speed("CycleGAN", resnet, "p100") == 0.5
    assert pairs.speed(resnet, "CycleGAN", "p100") == 1.0
    assert pairs.speed("CycleGAN", resnet, "k80") == 0.4
    assert pairs.speed("CycleGAN", "CycleGAN", "p100") is None


def test_lucids_pairs_hold_on_every_type() -> None:
    pairs = lucid_pairs(DATA)
    assert pairs.speed("Small-Digits-32", "Large-Faces-amp-64", "t4") == 0.9
    assert pairs.speed("Large-Faces-amp-64", "Small-Digits-32", "a100") == 1.0
    assert pairs.speed("Small-Digits-32", "Small-Digits-32", "t4") == pytest.approx(0.81)


def test_lucids_profiles_are_those_of_models_with_their_data_and_batch() -> None:
    small, large, _ = lucid_profiles(DATA)
    assert (small.model, small.gpu_util, small.memory_mib) == ("Small-Digits-32", 0.5, 2000)
    assert (large.project, large.batch, large.memory_mib) == ("Large-Faces-amp", 64, 8001)


def test_a_pair_without_measurements_goes_by_utilisation() -> None:
    times = StepTimes(DATA, "cifar10", 200, 1.0)
    large, small = (
        MeasuredTruth(model, 8001, util, times, lucid_pairs(DATA))
        for model, util in (("Large-Faces-amp-64", 1.0), ("Small-Digits-32", 0.5))
    )
    assert small.speed_beside(large, "t4") == 0.9
    assert large.speed_beside(large, "t4") == pytest.approx(1 / 1.38)
    stranger = MeasuredTruth("Small-Digits-32", 2000, 0.5, times, Pairs({}))
    assert stranger.speed_beside(large, "t4") == pytest.approx(1 / 1.19)


def test_a_serial_part_is_not_shortened_by_more_gpus() -> None:
    truth = SerialTruth(memory_mib=1000, gpu_util=0.5, seconds=100.0, serial=0.2)
    assert truth.epoch_seconds("t4", 1, 1) == pytest.approx(100.0)
    assert truth.epoch_seconds("t4", 4, 1) == pytest.approx(40.0)


def test_slices_slow_each_other_only_beyond_a_whole_gpu() -> None:
    half, most = SlicedTruth(1000, 0.5, 60.0), SlicedTruth(1000, 0.75, 60.0)
    assert half.speed_beside(half, "t4") == 1.0
    assert half.speed_beside(most, "t4") == pytest.approx(0.8)


def test_a_table_with_a_wrong_figure_is_refused_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "scaling" / "cifar10"
    folder.mkdir(parents=True)
    path = folder / "placements-aws.csv"
    path.write_text("placement,local_bsz,step_time,sync_time\n1,10,0.5,0.1\n2,10,-0.5,0.1\n")
    with pytest.raises(TraceError, match=r"placements-aws\.csv:3: step_time: -0\.5 is not"):
        step_table(tmp_path, "cifar10", "aws")


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"lucid_single\.csv: No such file"):
        lucid_profiles(tmp_path)
