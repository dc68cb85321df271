"""The law of how an epoch shrinks with GPUs, and its fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from scheduler.core.model import Job, Measured
from scheduler.estimates.arrays import Floats
from scheduler.estimates.grid import grid
from scheduler.estimates.measurements import read
from scheduler.estimates.scaling import GUESS, OUTLIER, Shapes, fit, spread, terms
from tests import builders

SHAPE = np.array([1.0, 0.1, 0.3, 0.2])


def law(seconds: float, count: int, nodes: int = 1, shape: Floats = SHAPE) -> float:
    return float(seconds * (terms(count, nodes) @ shape))


def job(name: str, shown: Mapping[str, float], kind: str = "") -> Job:
    made = builders.job(name)
    measured = tuple(Measured(where, (), seconds, 3) for where, seconds in shown.items())
    return replace(made, measured=measured, spec=replace(made.spec, project=kind or name))


def fitted(*jobs: Job) -> Shapes:
    measured = read(jobs, {})
    return fit(grid(measured), len(measured.types))


def test_on_one_gpu_all_shapes_agree() -> None:
    assert terms(1, 1).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert terms(0, 1).tolist() == terms(1, 1).tolist(), "without a GPU as on one"


def test_only_gpus_of_several_nodes_pay_for_the_network() -> None:
    assert terms(4, 1)[2:].tolist() == [0.0, 0.0]
    assert (terms(4, 2)[2:] > 0).all()
    assert terms(4, 2)[:2].tolist() == terms(4, 1)[:2].tolist()


def test_nothing_is_faster_than_in_proportion() -> None:
    counts = np.arange(1, 64)
    assert (terms(counts, 2) @ GUESS >= 1.0 / counts).all()


def test_a_job_that_follows_the_law_shows_it() -> None:
    places = {"t4x1": (1, 1), "t4x2": (2, 1), "t4x4": (4, 1), "t4x8/2": (8, 2), "t4x16/2": (16, 2)}
    shown = {where: law(100.0, *place) for where, place in places.items()}
    shapes = fitted(job("a", shown))
    assert shapes.first[0] == pytest.approx(100.0, rel=0.03)
    for where, place in places.items():
        said = shapes.first[0] * float(terms(*place) @ shapes.line[0])
        assert said == pytest.approx(shown[where], rel=0.05)


def test_one_measurement_tells_the_scale_and_the_guess_the_shape() -> None:
    shapes = fitted(job("a", {"t4x4": law(60.0, 4, shape=GUESS)}))
    assert shapes.first[0] == pytest.approx(60.0, rel=0.01)
    assert shapes.line[0] == pytest.approx(GUESS, rel=0.01)


def test_a_new_job_is_expected_to_scale_like_those_of_its_family() -> None:
    serial = {f"t4x{n}": 50.0 * (0.9 + 0.1 / n) for n in (1, 2, 4, 8)}
    perfect = {f"t4x{n}": 50.0 / n for n in (1, 2, 4, 8)}
    shapes = fitted(
        *(job(f"s{n}", serial, "serial") for n in range(4)),
        *(job(f"p{n}", perfect, "perfect") for n in range(4)),
        job("new-s", {"t4x1": 10.0}, "serial"),
        job("new-p", {"t4x1": 10.0}, "perfect"),
    )
    on_eight = shapes.line[-2:] @ terms(8, 1)
    assert on_eight[0] > 3 * on_eight[1]


def test_no_parameter_is_negative_whatever_was_measured() -> None:
    faster_than_possible = {"t4x1": 100.0, "t4x2": 10.0, "t4x4": 1.0}
    slower_with_more = {"t4x1": 1.0, "t4x2": 100.0}
    shapes = fitted(job("a", faster_than_possible), job("b", slower_with_more))
    for found in (shapes.line, shapes.kind, shapes.type):
        assert (found >= 0.0).all()
        assert np.isfinite(found).all()
    assert (shapes.first > 0.0).all()


def test_one_absurd_measurement_bends_the_law_of_its_type_only_so_far() -> None:
    usual = [job(f"j{n}", {"t4x1": 10.0, "t4x4": law(10.0, 4)}) for n in range(8)]
    absurd = job("x", {"t4x1": 10.0, "t4x4": 10.0 * OUTLIER**3})
    worse = job("y", {"t4x1": 10.0, "t4x4": 10.0 * OUTLIER**6})
    bent = fitted(*usual, absurd).type[0]
    assert fitted(*usual, worse).type[0] == pytest.approx(bent, rel=0.2)


def test_a_shape_is_doubted_in_part_and_a_little() -> None:
    assert (spread(np.zeros(4)) > 0.0).all()
    assert (spread(GUESS) > spread(np.zeros(4))).all()
