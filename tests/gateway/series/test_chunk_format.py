"""Packing gives back each bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.series.chunk_format import pack, unpack
from scheduler.gateway.series.reading import DTYPES, Kind, Points

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    "float": st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 0.1, 1e300, 5e-324]),
    "integer": INT64,
    "boolean": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
}


def made(rows: list[tuple[int, int, Any]], kind: Kind) -> Points:
    values = np.empty(len(rows), DTYPES[kind])
    values[:] = [row[2] for row in rows]
    return Points(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        values,
    )


def check(points: Points, kind: Kind) -> bytes:
    content = pack(points, kind)
    back, told = unpack(content)
    assert told == kind
    assert np.array_equal(back.times, points.times)
    assert np.array_equal(back.steps, points.steps)
    assert back.values.dtype == points.values.dtype
    if kind == "float":  # each bit: NaN is NaN, and -0.0 is not 0.0
        assert np.array_equal(back.values.view(np.uint64), points.values.view(np.uint64))
    else:
        assert back.values.tolist() == points.values.tolist()
    return content


@pytest.mark.parametrize("kind", VALUES)
@given(st.data())
def test_what_is_unpacked_is_what_was_packed(kind: Kind, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(INT64, INT64, VALUES[kind]), max_size=30))
    check(made(rows, kind), kind)


@given(
    st.integers(0, 2**60),
    st.sampled_from([1, 1000, 10**6, 10**9]),
    st.integers(0, 300),
    st.sampled_from([0, 1, 3, 6]),
)
def test_series_as_trainings_log_them(first: int, unit: int, count: int, decimals: int) -> None:
    generator = np.random.default_rng(count)
    times = first + unit * np.cumsum(generator.integers(0, 50, count))
    values = np.round(generator.normal(size=count).cumsum(), decimals)
    check(Points(times.astype(np.int64), np.arange(count), values), "float")


def test_texts_that_end_with_zeros_are_kept() -> None:
    check(made([(1, 1, "a\0"), (2, 1, "a"), (3, 1, "")], "string"), "string")


def test_a_training_takes_less_than_eight_bytes_a_point() -> None:
    """Wall-clock times to the nanosecond, consecutive steps, a noisy loss computed in float32."""
    count, generator = 10_000, np.random.default_rng(1)
    times = 1_790_000_000_000_000_000 + np.cumsum(generator.normal(1e9, 1e6, count)).astype("i8")
    loss = np.exp(-np.arange(count) / 3000) + generator.normal(0, 0.01, count)
    points = Points(times, np.arange(count), loss.astype(np.float32).astype(np.float64))
    assert len(check(points, "float")) / count < 8


@pytest.mark.parametrize("cut", [0, 3, 10, 40, -1])
def test_what_is_damaged_is_refused(cut: int) -> None:
    points = made([(i * i, i, math.sqrt(i)) for i in range(100)], "float")
    with pytest.raises(ValueError, match=r"."):
        unpack(pack(points, "float")[:cut])
