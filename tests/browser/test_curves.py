"""What is computed of curves before they are drawn."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.presentation import comparison_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

CALL = """async ([file, name, words]) => {
    const module = await import(`/static/${file}.js`);
    const given = words.map((each) => (each?.xs ? { xs: Float64Array.from(each.xs), ys: Float64Array.from(each.ys, (y) => y ?? NaN) } : each));
    const plain = (value) => (value instanceof Float64Array ? Array.from(value, (each) => (Number.isFinite(each) ? each : String(each))) : value);
    const found = await module[name](...given);
    return Array.isArray(found) || typeof found !== "object" ? found
        : Object.fromEntries(Object.entries(found).map(([key, value]) => [key, plain(value)]));
}"""  # noqa: E501


def call(blank: Page, file: str, name: str, *words: Any) -> Any:
    return blank.evaluate(CALL, [file, name, list(words)])


POINTS = {"times": [10, 20, 30], "steps": [0, 5, 10], "values": [1, "NaN", 0.5]}


def test_x_is_the_step_the_time_or_the_epoch(blank: Page) -> None:
    by_step = call(blank, "curves", "columns", POINTS, "step")
    assert by_step == {"xs": [0, 5, 10], "ys": [1, "NaN", 0.5]}
    assert call(blank, "curves", "columns", POINTS, "time", 10)["xs"] == [0, 10, 20]
    epochs = {"times": [10, 30], "values": [0, 1]}
    assert call(blank, "curves", "columns", POINTS, "epoch", 0, epochs)["xs"] == [0, 0.5, 1]


def test_points_without_steps_are_counted_and_steps_that_go_back_are_sorted(blank: Page) -> None:
    counted = call(blank, "curves", "columns", POINTS | {"steps": None}, "step")
    assert counted["xs"] == [0, 1, 2]
    back = POINTS | {"steps": [5, None, 0]}
    assert call(blank, "curves", "columns", back, "step") == {"xs": [0, 5], "ys": [0.5, 1]}


@pytest.mark.parametrize("weight", [0, 0.5, 0.9, 0.99])
def test_smoothing_keeps_what_is_constant_and_gaps(blank: Page, weight: float) -> None:
    flat = {"xs": list(range(20)), "ys": [3.0] * 10 + [None] + [3.0] * 9}
    found = call(blank, "curves", "smoothed", flat, weight)
    assert [each for each in found["ys"] if each != "NaN"] == pytest.approx([3.0] * 19)
    assert found["ys"][10] == "NaN"


def test_smoothing_does_not_depend_on_how_many_points_there_are(blank: Page) -> None:
    def end(points: int) -> float:
        xs = [1000 * at / (points - 1) for at in range(points)]
        ys = [x / 1000 for x in xs]
        return float(call(blank, "curves", "smoothed", {"xs": xs, "ys": ys}, 0.95)["ys"][-1])

    assert end(400) == pytest.approx(end(4000), abs=0.01)
    assert 0.8 < end(400) < 0.99


def test_a_report_is_smoothed_as_the_page_is(blank: Page) -> None:
    chance = Random(3)
    xs = sorted(chance.uniform(0, 100) for _ in range(200))
    ys = [chance.gauss(0, 1) for _ in xs]
    for weight in (0.3, 0.9, 0.99):
        found = call(blank, "curves", "smoothed", {"xs": xs, "ys": ys}, weight)["ys"]
        assert found == pytest.approx(comparison_page.smoothed(xs, ys, weight))


def test_values_are_in_the_order_of_their_kind(blank: Page) -> None:
    numbers = call(blank, "curves", "inOrder", [0.1, 10, 2, 0.1])
    assert numbers == {"different": [0.1, 2, 10], "numbers": True}
    texts = call(blank, "curves", "inOrder", ["net10", "net9", 1, "net9"])
    assert texts == {"different": [1, "net9", "net10"], "numbers": False}


@pytest.mark.parametrize("count", [1, 3, 10, 50, 100])
@pytest.mark.parametrize("ordered", [False, True])
def test_each_value_has_a_colour_of_its_own(blank: Page, count: int, ordered: bool) -> None:
    colours = call(blank, "curves", "palette", count, ordered, False)
    assert len(set(colours)) == count


@pytest.mark.parametrize(
    ("least", "most"),
    [(0, 1), (-3, 7), (0.00012, 0.00013), (1e6, 3.2e6), (5, 5), (3, 3.0000000000000004)],
)
def test_marks_are_round_and_within(blank: Page, least: float, most: float) -> None:
    marks = call(blank, "plot", "ticksBetween", least, most, 5)
    assert 1 <= len(marks) <= 7
    assert all(least - 1e-9 <= mark <= most * (1 + 1e-9) for mark in marks)


@pytest.mark.parametrize(("least", "most"), [(1e-6, 10), (0.2, 0.9), (1, 1000), (3, 4)])
def test_marks_of_powers_are_within(blank: Page, least: float, most: float) -> None:
    marks = call(blank, "plot", "ticksOfPowers", least, most, 5)
    assert 2 <= len(marks) <= 12
    assert all(least * 0.99 <= mark <= most * 1.01 for mark in marks)
    assert marks == sorted(marks)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.123456, "0.1235"),
        (4.6e-6, "4.6e-6"),
        (1e-7, "1e-7"),
        (12345, "12.35k"),
        (9999, "9999"),
        (3.2e6, "3.2M"),
        (1e12, "1e12"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_are_short(blank: Page, value: float, text: str) -> None:
    assert call(blank, "words", "short", value) == text


def test_marks_of_an_axis_have_as_many_digits_as_tell_them_apart(blank: Page) -> None:
    assert call(blank, "words", "shortMarks", [0.5, 1]) == ["0.5", "1"]
    close = [0.0099999998, 0.01]  # a number of 32 bits, and one of 64
    assert call(blank, "words", "shortMarks", close) == ["0.0099999998", "0.01"]
    assert call(blank, "words", "shortMarks", [0, 1e-6, 1.5e-6]) == ["0", "1e-6", "1.5e-6"]
    assert call(blank, "words", "shortMarks", [7, 7]) == ["7", "7"]


def test_what_is_new_replaces_what_was_there_from_then_on(blank: Page) -> None:
    curve = {"times": [1, 2, 3], "steps": [1, 2, 3], "values": [9, 8, 7]}
    news = {"times": [2, 4], "steps": [2, 4], "values": [5, 4]}
    found = call(blank, "curves", "joined", curve, news, 2)
    assert found == {"times": [1, 2, 4], "steps": [1, 2, 4], "values": [9, 5, 4]}


def test_the_closest_value_is_found(blank: Page) -> None:
    values = [0, 1, 5, 9]
    for wanted in (-1, 0, 0.4, 0.6, 3.1, 7, 7.1, 20, math.pi):
        index = call(blank, "plot", "closest", values, wanted)
        assert abs(values[index] - wanted) == min(abs(each - wanted) for each in values)
