"""From the points of a window to one value, or to a few: sums in InfluxDB's order of additions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from scheduler.gateway.influx.batches import PointBatch, by_window
from scheduler.gateway.influx.syntax import StatementError
from scheduler.gateway.influx.windows import Windows
from scheduler.gateway.series.reading import DTYPES, Int64s, Kind, Values

NUMBERS: tuple[Kind, ...] = ("float", "integer")
# What a function can be computed of.
KINDS: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(
        ("count", "first", "last", "mode", "distinct"), ("float", "integer", "string", "boolean")
    ),
    **dict.fromkeys(("min", "max"), ("float", "integer", "boolean")),
    **dict.fromkeys(("sum", "mean", "median", "spread", "stddev", "percentile"), NUMBERS),
    **dict.fromkeys(("top", "bottom", "integral", "derivative", "difference"), NUMBERS),
    **dict.fromkeys(("moving_average", "cumulative_sum"), NUMBERS),
}


def check_kind(function: str, kind: Kind) -> None:
    name = function.removeprefix("non_negative_")
    if kind not in KINDS[name]:
        words = name.replace("_", " ")
        raise StatementError(f"unsupported {words} iterator type: *query.{kind}InterruptIterator")


# --- by series first, then over series -----------------------------------------------------------


def combined(
    function: str, batches: Sequence[PointBatch], windows: Windows, ascending: bool
) -> PointBatch:
    """count, sum, mean, min, max, first, last. InfluxDB computes each of every series, and then
    thrice of what it has got: of means, this changes the last digit."""
    check_kind(function, batches[0].kind)
    reduced = [_reduced(function, each, windows, ascending) for each in batches]
    starts = [windows.starts(each.times) for each in reduced]
    found = by_window(reduced, starts, ascending)
    again = "sum" if function == "count" else function
    for _ in range(1 if again != "mean" else 3):
        found = _reduced(again, found, windows, ascending)
    return found


def _reduced(function: str, batch: PointBatch, windows: Windows, ascending: bool) -> PointBatch:
    if not len(batch):
        kind: Kind = {"count": "integer", "mean": "float"}.get(function, batch.kind)  # type: ignore[assignment]
        return replace(batch, kind=kind, values=batch.values.astype(DTYPES[kind]))
    starts = windows.starts(batch.times)
    bounds = bounds_of(starts)
    windows_at = starts[bounds[:-1]]
    if function in ("min", "max", "first", "last"):
        return batch.chosen(_chosen(function, batch, bounds, ascending))
    weights = None
    if function == "count":
        values: Values = np.diff(bounds)
        kind = "integer"
    elif function == "sum":
        values, kind = _sums(batch.values, bounds, batch.kind), batch.kind
    else:
        values, weights = _means(batch, bounds)
        kind = "float"
    nothing = tuple(np.full(len(windows_at), None, object) for _ in batch.beside)
    return replace(
        batch, kind=kind, times=windows_at, values=values, beside=nothing, weights=weights
    )


def bounds_of(starts: Int64s) -> Int64s:
    """Where windows begin, and the end of the last one."""
    changes = np.flatnonzero(starts[1:] != starts[:-1]) + 1
    return np.concatenate([[0], changes, [len(starts)]]).astype(np.int64)


def _numbers(bounds: Int64s) -> Int64s:
    """Of the window of each point."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def _sums(values: Values, bounds: Int64s, kind: Kind) -> Values:
    if kind == "float":
        return np.bincount(_numbers(bounds), values)  # adds one after the other
    sums: Values = np.add.reduceat(values, bounds[:-1])
    return sums


def _means(batch: PointBatch, bounds: Int64s) -> tuple[Values, Int64s]:
    values, weights = batch.values, batch.weights
    if weights is None:
        counts = np.diff(bounds)
    else:
        counts = np.add.reduceat(weights, bounds[:-1])
        values = np.where(weights >= 2, values * weights, values)
    sums = _sums(values, bounds, batch.kind)
    return sums.astype(np.float64) / counts, counts.astype(np.int64)


def _chosen(function: str, batch: PointBatch, bounds: Int64s, ascending: bool) -> Int64s:
    """The index of one point of each window."""
    numbers, ranks = _numbers(bounds), _ranks(batch.values, batch.kind)
    if function in ("min", "max"):
        # Of equal ones the earliest.
        order = np.lexsort((batch.times, ranks if function == "min" else -ranks, numbers))
    else:
        # Of those of one moment the largest; of booleans, false is first.
        best = ranks if function == "first" and batch.kind == "boolean" else -ranks
        times = batch.times if function == "first" else -batch.times
        order = np.lexsort((best, times, numbers))
    return order[bounds[:-1]]


def _ranks(values: Values, kind: Kind) -> Any:
    """Numbers in the order of the values, which can be negated."""
    if kind == "float":
        return values
    _, ranks = np.unique(values, return_inverse=True)
    return ranks.astype(np.int64)


# --- of all points of a window -------------------------------------------------------------------


def summarized(
    function: str, batch: PointBatch, windows: Windows, argument: float = 0
) -> PointBatch:
    """median, mode, spread, stddev, percentile."""
    check_kind(function, batch.kind)
    kind: Kind = "float" if function in ("median", "stddev") else batch.kind
    if not len(batch):
        return replace(batch, kind=kind, values=batch.values.astype(DTYPES[kind]))
    starts = windows.starts(batch.times)
    bounds = bounds_of(starts)
    if function == "percentile":
        return batch.chosen(_percentiles(batch, bounds, argument))
    compute: Callable[[Values, Int64s, Kind], Values] = {
        "median": _medians,
        "mode": lambda *_: _modes(batch, bounds),
        "spread": _spreads,
        "stddev": _deviations,
    }[function]
    values = compute(batch.values, bounds, batch.kind)
    nothing = tuple(np.full(len(values), None, object) for _ in batch.beside)
    return replace(batch, kind=kind, times=starts[bounds[:-1]], values=values, beside=nothing)


def _medians(values: Values, bounds: Int64s, kind: Kind) -> Values:
    ordered = values[np.lexsort((values, _numbers(bounds)))]
    counts = np.diff(bounds)
    high = ordered[bounds[:-1] + counts // 2]
    low = ordered[bounds[:-1] + np.maximum(counts // 2 - 1, 0)]
    with np.errstate(over="ignore"):
        between = low.astype(np.float64) + (high - low).astype(np.float64) / 2
    medians: Values = np.where(counts % 2 == 0, between, high.astype(np.float64))
    return medians


def _modes(batch: PointBatch, bounds: Int64s) -> Values:
    found = np.empty(len(bounds) - 1, DTYPES[batch.kind])
    values, times = batch.values.tolist(), batch.times.tolist()
    edges = bounds.tolist()
    for index, (begin, end) in enumerate(pairwise(edges)):
        if batch.kind == "boolean":
            true = sum(values[begin:end])
            found[index] = true >= end - begin - true if end - begin > 1 else values[begin]
        else:
            found[index] = _mode(values[begin:end], times[begin:end])
    return found


def _mode(values: list[Any], times: list[int]) -> Any:
    """A value that changes only on its second occurrence: InfluxDB does not look at the first."""
    points = sorted(zip(values, times, strict=True), key=lambda each: each[0])
    most = current = points[0][0]
    most_often = often = 0
    most_time = time = points[0][1]
    for value, at in points:
        if value != current:
            often, current, time = 1, value, at
            continue
        often += 1
        if most_often > often or (most_often == often and time > most_time):
            continue
        most_often, most, most_time = often, value, at
    return most


def _spreads(values: Values, bounds: Int64s, kind: Kind) -> Values:
    with np.errstate(over="ignore"):
        highest: Values = np.maximum.reduceat(values, bounds[:-1])
        spread: Values = highest - np.minimum.reduceat(values, bounds[:-1])
        return spread


def _deviations(values: Values, bounds: Int64s, kind: Kind) -> Values:
    numbers = values.astype(np.float64)
    return np.array(
        [_deviation(numbers[begin:end]) for begin, end in pairwise(bounds.tolist())],
        np.float64,
    )


def _deviation(values: Values) -> float:
    if len(values) < 2:
        return math.nan
    mean = 0.0
    for count, value in enumerate(values.tolist(), 1):
        mean += (value - mean) / count
    squares = np.cumsum((values - mean) ** 2)  # one after the other
    return math.sqrt(squares[-1] / (len(values) - 1))


def _percentiles(batch: PointBatch, bounds: Int64s, percentile: float) -> Int64s:
    counts = np.diff(bounds)
    places = np.floor(counts * percentile / 100.0 + 0.5).astype(np.int64) - 1
    ordered = np.lexsort((batch.values, _numbers(bounds)))
    known = (places >= 0) & (places < counts)
    chosen: Int64s = ordered[(bounds[:-1] + places)[known]]
    return chosen


def distinct(batch: PointBatch, windows: Windows) -> PointBatch:
    """Each value of a window once, in ascending order of where it was first, then of itself."""
    check_kind("distinct", batch.kind)
    if not len(batch):
        return batch
    bounds = bounds_of(windows.starts(batch.times))
    numbers, ranks = _numbers(bounds), _ranks(batch.values, batch.kind)
    arrival = np.arange(len(batch))
    order = np.lexsort((arrival, ranks, numbers))
    new = np.ones(len(order), np.bool_)
    new[1:] = (numbers[order][1:] != numbers[order][:-1]) | (ranks[order][1:] != ranks[order][:-1])
    firsts = order[new]
    sorted_firsts = firsts[np.lexsort((ranks[firsts], batch.times[firsts], numbers[firsts]))]
    return replace(batch.chosen(sorted_firsts), beside=())


def extremes(
    function: str, batches: Sequence[PointBatch], windows: Windows, count: int, ascending: bool
) -> PointBatch:
    """top, bottom: of one output series. Several batches: only the best of each window of each of
    these counts."""
    check_kind(function, batches[0].kind)
    best = "max" if function == "top" else "min"
    if len(batches) > 1 or batches[0].subtags:
        by_tags: dict[tuple[str, ...], list[PointBatch]] = {}
        for each in batches:
            by_tags.setdefault(each.subtags, []).append(each)
        reduced = [combined(best, by_tags[tags], windows, ascending) for tags in sorted(by_tags)]
        starts = [windows.starts(each.times) for each in reduced]
        whole = by_window(reduced, starts, ascending)
    else:
        whole = batches[0]
    if not len(whole):
        return whole
    bounds = bounds_of(windows.starts(whole.times))
    numbers = _numbers(bounds)
    signed = -whole.values if function == "top" else whole.values
    order = np.lexsort((np.arange(len(whole)), whole.times, signed, numbers))
    places = np.arange(len(order)) - bounds[:-1][numbers[order]]
    kept = order[places < count]
    by_time = np.lexsort((np.arange(len(kept)), whole.times[kept], numbers[kept]))
    return whole.chosen(kept[by_time])
