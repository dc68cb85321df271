"""What stays of points when they are old, and what is known of each minute of them. Pure.

Of a minute, later of an hour, the least, the greatest and the last point stay, as they were
logged: so a spike stays where it was. The number and the sum of all points are kept beside them.
Values that are no numbers have no least: only the last stays.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from scheduler.gateway.series.reading import Int64s, Minutes, Points

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
_LEVEL = 6
_COLUMNS = tuple(field.name for field in fields(Minutes))
_WHOLE = ("starts", "counts")


@dataclass(frozen=True, slots=True, eq=False)
class SeriesSpan:
    """Consecutive points of one series. `seconds`: of the spans to which they are thinned out, and
    0 if they are all there; then what is known of minutes can be computed."""

    points: Points
    seconds: int = 0
    minutes: Minutes | None = None


def thinned(piece: SeriesSpan, seconds: int) -> SeriesSpan:
    width = seconds * 10**9
    minutes = piece.minutes
    if minutes is None or piece.seconds == 0:
        minutes = minutes_of(piece.points, width)
    else:
        minutes = regrouped([minutes], width)
    return SeriesSpan(_kept(piece.points, width), seconds, minutes)


def _kept(points: Points, width: int) -> Points:
    starts = _starts(points.times, width)
    if not len(starts):
        return points
    ends = np.append(starts[1:], len(points)) - 1
    chosen = [ends]
    if points.values.dtype in (np.float64, np.int64):
        chosen += [_extremes(points.values, starts, least) for least in (True, False)]
    return points.chosen(np.unique(np.concatenate(chosen)))


def _extremes(values: npt.NDArray[np.float64], starts: Int64s, least: bool) -> Int64s:
    """The index of the first least, or greatest, value of each span that has one."""
    numbers = values
    if values.dtype == np.float64:
        numbers = np.where(np.isnan(values), np.inf if least else -np.inf, values)
    best = (np.minimum if least else np.maximum).reduceat(numbers, starts)
    spans = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    hits = np.flatnonzero(values == best[spans])
    _, first = np.unique(spans[hits], return_index=True)
    return hits[first]


def _starts(times: Int64s, width: int) -> Int64s:
    """The index at which each span begins."""
    if not len(times):
        return np.empty(0, np.int64)
    spans = times // width
    return np.flatnonzero(np.append(True, spans[1:] != spans[:-1]))


# --- minutes ------------------------------------------------------------------------------------


def minutes_of(points: Points, width: int = MINUTE_NS) -> Minutes | None:
    """NaN does not count. None: these are no numbers."""
    if points.values.dtype not in (np.float64, np.int64):
        return None
    values, times = points.values.astype(np.float64), points.times
    if np.isnan(values).any():
        there = ~np.isnan(values)
        values, times = values[there], times[there]
    starts = _starts(times, width)
    if not len(starts):
        return _no_minutes()
    ends = np.append(starts[1:], len(times))
    with np.errstate(invalid="ignore", over="ignore"):  # infinities
        sums = np.add.reduceat(values, starts)
    return Minutes(
        starts=times[starts] // width * width,
        counts=ends - starts,
        sums=sums,
        minima=np.minimum.reduceat(values, starts),
        maxima=np.maximum.reduceat(values, starts),
        firsts=values[starts],
        lasts=values[ends - 1],
    )


def regrouped(parts: Sequence[Minutes], width: int = MINUTE_NS) -> Minutes:
    """As spans of this width, each once. If several parts have the same minute, the first part has
    its first value."""
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (_COLUMNS if parts else ())
    }
    if not columns or not len(columns["starts"]):
        return _no_minutes()
    if np.any(np.diff(columns["starts"]) < 0):
        order = np.argsort(columns["starts"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    starts = _starts(columns["starts"], width)
    ends = np.append(starts[1:], len(columns["starts"]))
    with np.errstate(invalid="ignore", over="ignore"):
        sums = np.add.reduceat(columns["sums"], starts)
    return Minutes(
        starts=columns["starts"][starts] // width * width,
        counts=np.add.reduceat(columns["counts"], starts),
        sums=sums,
        minima=np.minimum.reduceat(columns["minima"], starts),
        maxima=np.maximum.reduceat(columns["maxima"], starts),
        firsts=columns["firsts"][starts],
        lasts=columns["lasts"][ends - 1],
    )


def _no_minutes() -> Minutes:
    none, nothing = np.empty(0, np.int64), np.empty(0, np.float64)
    return Minutes(none, none, nothing, nothing, nothing, nothing, nothing)


def pack_minutes(minutes: Minutes) -> bytes:
    return zlib.compress(b"".join(getattr(minutes, name).tobytes() for name in _COLUMNS), _LEVEL)


def unpack_minutes(content: bytes) -> Minutes:
    whole = zlib.decompress(content)
    length = len(whole) // len(_COLUMNS)
    columns: dict[str, npt.NDArray[Any]] = {
        name: np.frombuffer(
            whole, np.int64 if name in _WHOLE else np.float64, length // 8, number * length
        )
        for number, name in enumerate(_COLUMNS)
    }
    return Minutes(**columns)


# --- pieces -------------------------------------------------------------------------------------


def replaced(old: Points, new: Points) -> Points:
    """Both; of the same moment and step, the new one."""
    if not len(old) or not len(new):
        return new if len(new) else old
    times = np.concatenate([old.times, new.times])
    steps = np.concatenate([old.steps, new.steps])
    order = np.lexsort((steps, times))  # stable: the new ones come after their equals
    times, steps = times[order], steps[order]
    last = np.append((times[1:] != times[:-1]) | (steps[1:] != steps[:-1]), True)
    values = np.concatenate([old.values, new.values])[order]
    return Points(times[last], steps[last], values[last])
