"""fill(): a value for each window of GROUP BY time, also where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scheduler.gateway.influx.batches import PointBatch
from scheduler.gateway.influx.syntax import MIN_TIME, StatementError
from scheduler.gateway.influx.windows import Windows
from scheduler.gateway.series.reading import DTYPES, Int64s, Kind

WINDOWS_MAX = 1_000_000  # of one statement

Number = float | int


def filled(
    batch: PointBatch, windows: Windows, fill: str, number: Number | None, ascending: bool
) -> PointBatch:
    """`fill`: null, number, previous or linear."""
    if not len(batch):
        return batch
    times = _expected(batch, windows, ascending)
    at = np.searchsorted(times if ascending else -times, batch.times if ascending else -batch.times)
    missing = np.ones(len(times), np.bool_)
    missing[at] = False
    values = np.zeros(len(times), DTYPES[batch.kind])
    if batch.kind == "string":
        values[:] = ""
    values[at] = batch.values
    beside = []
    for each in batch.beside:
        column = np.full(len(times), None, object)
        column[at] = each
        beside.append(column)
    if fill == "number":
        values[missing] = as_kind(number, batch.kind)
        nothing = None
    elif fill == "previous":
        nothing = _take_previous(values, missing)
    elif fill == "linear" and batch.kind in ("float", "integer"):
        nothing = _interpolate(values, missing, times // windows.length, batch.kind)
    else:
        nothing = missing
    if nothing is not None and not nothing.any():
        nothing = None
    return replace(
        batch, times=times, values=values, beside=tuple(beside), missing=nothing, weights=None
    )


def as_kind(number: Number | None, kind: Kind) -> Any:
    """What fill(5) is for a series of texts or booleans: their empty value."""
    if kind == "string":
        return ""
    if kind == "boolean":
        return False
    return int(number or 0) if kind == "integer" else float(number or 0)


def _expected(batch: PointBatch, windows: Windows, ascending: bool) -> Int64s:
    """The windows from the first to the last of the query; if it has no bound, to the last one that
    has a value."""
    low = windows.start(windows.first) if windows.first > MIN_TIME else MIN_TIME
    high = windows.start(windows.last)
    begin, end = (low, high) if ascending else (high, low)
    if begin == MIN_TIME:
        begin = windows.start(int(batch.times[0]))
    if not ascending and end == MIN_TIME:
        end = int(batch.times[-1])
    count = abs(end - begin) // windows.length + 1
    if count > WINDOWS_MAX:
        raise StatementError(f"max-select-buckets limit exceeded: ({count}/{WINDOWS_MAX})")
    if windows.zone is None:
        step = windows.length if ascending else -windows.length
        if (end - begin) * step < 0:
            return batch.times
        regular = begin + step * np.arange(count, dtype=np.int64)
        return np.union1d(regular, batch.times)[:: 1 if ascending else -1]
    return _expected_in_zone(batch, windows, begin, end, ascending)


def _expected_in_zone(
    batch: PointBatch, windows: Windows, begin: int, end: int, ascending: bool
) -> Int64s:
    """A day of a zone may have 23 or 25 hours."""
    found: list[int] = []
    there = batch.times.tolist()[::-1]
    time, step = begin, windows.length if ascending else -windows.length
    offset = windows.zone_offset(time)
    while there or (time <= end if ascending else time >= end):
        if there and (there[-1] <= time if ascending else there[-1] >= time):
            found.append(there.pop())
        else:
            found.append(time)
        time += step
        new = windows.zone_offset(time - 1)
        if new != offset:
            if abs(offset - new) < windows.length:
                time += offset - new
            offset = new
        if len(found) > WINDOWS_MAX:
            raise StatementError(f"max-select-buckets limit exceeded: ({WINDOWS_MAX})")
    return np.array(found, np.int64)


def _take_previous(values: Any, missing: Any) -> Any:
    """Returns where there is none before."""
    last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(values))))
    values[:] = values[np.maximum(last, 0)]
    return last < 0


def _interpolate(values: Any, missing: Any, places: Int64s, kind: Kind) -> Any:
    """On the line between its neighbours. Returns where one of them is missing."""
    count = len(values)
    index = np.arange(count)
    before = np.maximum.accumulate(np.where(missing, -1, index))
    after = np.minimum.accumulate(np.where(missing, count, index)[::-1])[::-1]
    between = missing & (before >= 0) & (after < count)
    low, high = before[between], after[between]
    slope = (values[high] - values[low]).astype(np.float64) / (places[high] - places[low])
    found = slope * (places[between] - places[low]) + values[low].astype(np.float64)
    values[between] = np.trunc(found).astype(np.int64) if kind == "integer" else found
    return missing & ~between
