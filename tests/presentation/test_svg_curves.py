from __future__ import annotations

import math
import re
from xml.etree import ElementTree as ET

import pytest

from scheduler.presentation.svg_curves import (
    Axes,
    DrawnCurve,
    powers_between,
    short,
    svg_curves,
    ticks_between,
)

LINE = DrawnCurve("run <1>", "h0", [0, 1, 2, 3], [1.0, math.nan, 3.0, 4.0], "7 4")


def paths(svg: str) -> list[str]:
    drawn = ET.fromstring(svg).findall("path[@class='curve h0']")
    return [path.get("d") or "" for path in drawn]


def test_a_gap_is_not_drawn_and_names_are_text() -> None:
    svg = svg_curves("loss <b>", [LINE], Axes())
    (path,) = paths(svg)
    assert path.count("M") == 2
    assert path.count("L") == 1
    assert "run &lt;1&gt;" in svg
    assert 'aria-label="loss &lt;b&gt;"' in svg
    assert 'stroke-dasharray="7 4"' in svg


@pytest.mark.parametrize("log", [False, True])
def test_all_that_is_drawn_is_within(log: bool) -> None:
    curve = DrawnCurve("x", "h0", [1.0, 10.0, 1000.0], [1e-6, 3.0, 1e5])
    (path,) = paths(svg_curves("x", [curve], Axes(log, log)))
    for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path):
        assert 0 <= float(x) <= 560
        assert 0 <= float(y) <= 260


@pytest.mark.parametrize("axes", [Axes(), Axes(True, True)])
@pytest.mark.parametrize(
    "values", [[3.0, 3.0000000000000004], [], [math.nan], [math.inf], [0.0], [5.0], [-1.0]]
)
def test_what_cannot_be_drawn_breaks_nothing(values: list[float], axes: Axes) -> None:
    curve = DrawnCurve("x", "h0", [float(at + 1) for at in range(len(values))], values)
    assert svg_curves("x", [curve], axes)


def test_curves_of_one_metric_have_the_same_axes() -> None:
    low, high = (DrawnCurve("x", "h0", [0, 1], [value, value + 1]) for value in (0.0, 9.0))
    alone = svg_curves("x", [low], Axes())
    among = svg_curves("x", [low], Axes(), [low, high])
    assert ">10<" in among
    assert ">10<" not in alone


@pytest.mark.parametrize(
    ("least", "most"), [(0, 1), (-3, 7), (0.00012, 0.00013), (1e6, 3.2e6), (1e-9, 1e9)]
)
def test_marks_are_round_and_within(least: float, most: float) -> None:
    marks = ticks_between(least, most, 5)
    assert 1 <= len(marks) <= 8
    assert all(least - 1e-9 <= mark <= most * (1 + 1e-9) for mark in marks)


@pytest.mark.parametrize(("least", "most"), [(1e-6, 10), (0.2, 0.9), (1, 1000), (3, 4)])
def test_marks_of_powers_are_within(least: float, most: float) -> None:
    marks = powers_between(least, most, 5)
    assert 2 <= len(marks) <= 12
    assert all(least * 0.99 <= mark <= most * 1.01 for mark in marks)


def test_numbers_are_short() -> None:
    numbers = [0, 0.123456, 4.6e-6, 1e-7, 12345, 9999, 3.2e6, 1e12, -0.5, 64, 123456789]
    assert [short(each) for each in numbers] == [
        *("0", "0.1235", "4.6e-6", "1e-7", "12.35k", "9999", "3.2M", "1e12", "-0.5", "64", "123.5M")
    ]
