"""Measurements as a grid of jobs on types and situations, and the reliability of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.core.model import Job, JobId, Measured
from scheduler.estimates.grid import (
    SD_BESIDE,
    SD_ELSEWHERE,
    SD_ON_ONE,
    SD_WARM_UP,
    WEIGHT_WEAK_MAX,
    Grid,
    expected_speed,
    grid,
)
from scheduler.estimates.measurements import read
from tests import builders


def job(name: str, *measured: Measured) -> Job:
    return replace(builders.job(name), measured=measured)


def made(*jobs: Job) -> Grid:
    return grid(read(jobs, {}))


def cell(found: Grid, line: int, count: int, nodes: int = 1) -> tuple[float, float, bool]:
    (column,) = [
        at
        for at, key in enumerate(zip(found.count, found.nodes, strict=True))
        if key == (count, nodes)
    ]
    where = line, column
    return float(found.seconds[where]), float(found.weight[where]), bool(found.solid[where])


def test_a_line_is_a_job_on_a_type_and_a_column_a_count_on_nodes() -> None:
    found = made(
        job("a", Measured("t4x1", (), 10.0, 3), Measured("a100x8/2", (), 2.0, 3)),
        job("b", Measured("t4x1", (), 20.0, 3)),
    )
    assert list(zip(found.owner, found.type, strict=True)) == [(0, 0), (0, 1), (1, 1)]
    assert sorted(zip(found.count, found.nodes, strict=True)) == [(1, 1), (8, 2)]
    assert cell(found, 1, 1) == (10.0, 1.0, True)
    assert cell(found, 0, 8, 2) == (2.0, 1.0, True)
    assert cell(found, 2, 8, 2) == (1.0, 0.0, False), "nothing was measured there"


def test_a_first_epoch_with_its_warm_up_is_weak() -> None:
    found = made(job("a", Measured("t4x1", (), 10.0, 0)))
    seconds, weight, solid = cell(found, 0, 1)
    assert (seconds, solid) == (10.0, False)
    assert 0.0 < weight <= WEIGHT_WEAK_MAX
    assert not found.relied[0]
    assert found.sd[0] == SD_WARM_UP


def test_a_job_that_was_never_alone_is_estimated_from_corrected_epochs_beside_others() -> None:
    found = made(job("a", Measured("t4x1", (JobId("b"),), 15.0, 3)), job("b"))
    seconds, weight, solid = cell(found, 0, 1)
    assert seconds < 15.0
    assert (weight <= WEIGHT_WEAK_MAX, solid) == (True, False)
    assert found.aside.tolist() == [True]
    assert found.sd[0] == SD_BESIDE


def test_a_job_that_was_alone_there_does_not_need_them() -> None:
    beside = Measured("t4x1", (JobId("b"),), 50.0, 3)
    found = made(job("a", Measured("t4x1", (), 10.0, 3), beside), job("b"))
    assert cell(found, 0, 1) == (10.0, 1.0, True)
    assert not found.aside.any()


@pytest.mark.parametrize(("placement", "sd"), [("t4x1", SD_ON_ONE), ("t4x4", SD_ELSEWHERE)])
def test_one_gpu_is_known_best_where_it_was_measured(placement: str, sd: float) -> None:
    assert made(job("a", Measured(placement, (), 10.0, 3))).sd.tolist() == [sd]


def test_situations_are_found_in_their_columns() -> None:
    found = made(job("a", Measured("t4x2", (), 10.0, 3), Measured("t4x8/2", (), 4.0, 3)))
    wanted = np.array([1, 8, 2]), np.array([1, 2, 1])
    places = dict(found.places(*wanted))
    assert set(places) == {1, 2}
    assert found.count[places[1]] == 8
    assert found.count[places[2]] == 2


def test_a_job_that_keeps_no_gpu_busy_slows_no_job_and_the_busier_the_slower() -> None:
    utils = np.array([0.0, 0.5, 1.0])
    assert expected_speed(utils, np.zeros(3)).tolist() == [1.0] * 3
    speeds = expected_speed(np.ones(3), utils)
    assert (np.diff(speeds) < 0).all()
    assert (speeds > 0.5).all(), "two are never slower than one after the other"
