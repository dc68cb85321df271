"""From a series of values to another: differences, running sums, areas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scheduler.gateway.influx.batches import PointBatch
from scheduler.gateway.influx.reducing import check_kind
from scheduler.gateway.influx.syntax import MIN_TIME
from scheduler.gateway.influx.windows import Windows
from scheduler.gateway.series.reading import DTYPES, Kind


def transformed(
    function: str, batch: PointBatch, unit: int, count: int, ascending: bool
) -> PointBatch:
    """derivative (per `unit`), difference, moving_average (of `count`), cumulative_sum."""
    check_kind(function, batch.kind)
    batch = replace(batch.present(), beside=())
    if function == "cumulative_sum":
        with np.errstate(over="ignore"):
            return replace(batch, values=np.cumsum(batch.values))
    if function == "moving_average":
        return _averaged(batch, count)
    return _differences(function, batch, unit, ascending)


def _differences(function: str, batch: PointBatch, unit: int, ascending: bool) -> PointBatch:
    if len(batch) > 1:  # of one moment, the first counts
        new = np.append(True, batch.times[1:] != batch.times[:-1])
        batch = batch.chosen(new)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.diff(batch.values)
    later = batch.chosen(slice(1, None))
    kept = values >= 0 if function.startswith("non_negative") else np.ones(len(values), np.bool_)
    kind = batch.kind
    if function.endswith("derivative"):
        elapsed = np.diff(batch.times) * (1 if ascending else -1)
        values = values.astype(np.float64) / (elapsed / unit)
        kind = "float"
    return replace(later, kind=kind, values=values).chosen(kept)


def _averaged(batch: PointBatch, count: int) -> PointBatch:
    """Adds and subtracts one after the other, as InfluxDB does."""
    values, size = batch.values, len(batch)
    if size < count:
        return replace(batch.chosen(slice(0, 0)), kind="float", values=np.empty(0, np.float64))
    steps = np.zeros(2 * size, DTYPES[batch.kind])
    steps[1::2] = values
    steps[2 * count :: 2] = -values[:-count] if count < size else []
    with np.errstate(over="ignore"):
        sums = np.cumsum(steps)[1::2][count - 1 :]
    averaged = batch.chosen(slice(count - 1, None))
    return replace(averaged, kind="float", values=sums.astype(np.float64) / count)


def integrals(batch: PointBatch, windows: Windows, unit: int, ascending: bool) -> PointBatch:
    """The area below each window, by trapezoids; at the end of a window between its neighbours."""
    check_kind("integral", batch.kind)
    found: list[tuple[int, float]] = []
    total, previous_time, previous = 0.0, 0, 0.0
    start = end = 0
    begun = False
    kind: Kind = batch.kind
    bounded = bool(windows.length) or kind == "integer"

    def bounds(time: int) -> tuple[int, int]:
        low, high = windows.window(time)
        return (low, high) if ascending else (high, low)

    for time, value in zip(
        batch.times.tolist(), batch.values.astype(np.float64).tolist(), strict=True
    ):
        if not begun:
            begun, previous_time, previous = True, time, value
            if bounded:
                start, end = bounds(time)
                if kind == "integer" and start == MIN_TIME:
                    start = 0
            continue
        if time == previous_time:
            previous = value
            continue
        if bounded and ((ascending and time >= end) or (not ascending and time <= end)):
            reached = value
            if previous_time != end:
                reached = _between(end, previous_time, time, previous, value)
                total += 0.5 * (reached + previous) * ((end - previous_time) / unit)
                previous_time = end
                if kind == "float":
                    previous = reached
            found.append((start, total))
            start, end = bounds(time)
            total = 0.0
            value_here = value if kind == "float" else reached
        else:
            value_here = value
        total += 0.5 * (value_here + previous) * ((time - previous_time) / unit)
        previous_time, previous = time, value
    if begun and previous_time != start:
        found.append((start, total))
    times = np.array([each for each, _ in found], np.int64)
    values = np.array([each for _, each in found], np.float64)
    return replace(batch, kind="float", times=times, values=values, beside=())


def _between(time: int, low: int, high: int, low_value: float, high_value: float) -> float:
    slope = (high_value - low_value) / float(high - low)
    return slope * float(time - low) + low_value
