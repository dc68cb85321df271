from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.series.reading import Kind, Minutes, Points
from scheduler.gateway.series.thinning import (
    HOUR_NS,
    MINUTE_NS,
    SeriesSpan,
    minutes_of,
    pack_minutes,
    regrouped,
    replaced,
    thinned,
    unpack_minutes,
)
from tests.gateway.series.delivering import rows
from tests.gateway.series.test_chunk_format import made

SECOND = 10**9
NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf])
TIMES = st.lists(st.integers(0, 5 * 3600), min_size=1, max_size=60, unique=True).map(sorted)


def told(minutes: Minutes | None) -> list[tuple[float, ...]]:
    assert minutes is not None
    columns = [getattr(minutes, name).tolist() for name in Minutes.__slots__]
    return list(zip(*columns, strict=True))


def points(times: list[int], values: list[float], kind: Kind = "float") -> Points:
    return made([(at * SECOND, i, v) for i, (at, v) in enumerate(zip(times, values))], kind)  # noqa: B905


def test_of_a_minute_the_least_the_greatest_and_the_last_stay() -> None:
    spiky = points([0, 10, 20, 30, 59, 60, 61], [1.0, 9.0, -5.0, 2.0, 3.0, 7.0, 7.0])
    piece = thinned(SeriesSpan(spiky), 60)
    assert rows(piece.points) == [
        (10 * SECOND, 1, 9.0),
        (20 * SECOND, 2, -5.0),
        (59 * SECOND, 4, 3.0),
        (60 * SECOND, 5, 7.0),
        (61 * SECOND, 6, 7.0),
    ]
    assert told(piece.minutes) == [
        (0, 5, 10.0, -5.0, 9.0, 1.0, 3.0),
        (MINUTE_NS, 2, 14.0, 7.0, 7.0, 7.0, 7.0),
    ]


def test_nan_stays_only_as_the_last() -> None:
    piece = thinned(SeriesSpan(points([0, 1, 2, 3], [math.nan, 1.0, 2.0, math.nan])), 60)
    assert [row[1] for row in rows(piece.points)] == [1, 2, 3]
    assert told(piece.minutes) == [(0, 2, 3.0, 1.0, 2.0, 1.0, 2.0)]
    nothing = thinned(SeriesSpan(points([0, 1], [math.nan, math.nan])), 60)
    assert len(nothing.points) == 1
    assert told(nothing.minutes) == []


def test_of_texts_the_last_of_each_minute_stays() -> None:
    words = made([(0, 0, "a"), (1, 1, "b"), (MINUTE_NS, 2, "c")], "string")
    piece = thinned(SeriesSpan(words), 60)
    assert [row[2] for row in rows(piece.points)] == ["b", "c"]
    assert piece.minutes is None


@given(TIMES, st.data())
def test_hours_of_minutes_are_hours_of_points(times: list[int], data: st.DataObject) -> None:
    values = data.draw(st.lists(NUMBERS, min_size=len(times), max_size=len(times)))
    all_of_them = points(times, values)
    twice = thinned(thinned(SeriesSpan(all_of_them), 60), 3600)
    once = thinned(SeriesSpan(all_of_them), 3600)
    assert told(twice.minutes) == [
        (*row[:2], sum_, *row[3:])
        for row, (_, _, sum_, *_) in zip(told(once.minutes), told(twice.minutes), strict=True)
    ]
    for one, other in zip(told(once.minutes), told(twice.minutes), strict=True):
        assert math.isclose(one[2], other[2], abs_tol=1e-3)
    assert set(rows(twice.points)) >= {
        row for row in rows(once.points) if not math.isnan(row[2])
    } or len(twice.points) == len(once.points)


@given(TIMES, st.data())
def test_minutes_in_parts_are_minutes_of_the_whole(times: list[int], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-99, 99), min_size=len(times), max_size=len(times)))
    whole = points(times, [float(value) for value in values])
    cut = data.draw(st.integers(0, len(times)))
    parts = [minutes_of(whole.chosen(slice(None, cut))), minutes_of(whole.chosen(slice(cut, None)))]
    found = regrouped([part for part in parts if part is not None])
    assert told(found) == told(minutes_of(whole))
    assert told(unpack_minutes(pack_minutes(found))) == told(found)
    assert told(regrouped([found], HOUR_NS)) == told(minutes_of(whole, HOUR_NS))


def test_of_the_same_moment_and_step_the_new_value_counts() -> None:
    old = made([(1, 1, 0.1), (2, 2, 0.2), (2, 3, 0.3)], "float")
    new = made([(0, 0, 9.0), (2, 2, 9.2)], "float")
    assert rows(replaced(old, new)) == [(0, 0, 9.0), (1, 1, 0.1), (2, 2, 9.2), (2, 3, 0.3)]


def test_nothing_is_thinned_to_nothing() -> None:
    empty = points([], [])
    assert len(thinned(SeriesSpan(empty), 60).points) == 0
    assert np.array_equal(replaced(empty, empty).times, empty.times)
