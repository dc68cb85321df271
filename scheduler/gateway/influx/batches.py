"""Points of one output series at a time, and how those of several series become one.

The order of points of the same moment, and of sums, is InfluxDB's: that of its binary heap. Sums of
floats depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scheduler.gateway.series.reading import Int64s, Kind, Minutes, Values

Mask = npt.NDArray[np.bool_]
_IN_HEAP_ORDER_MAX = 100_000  # points; beyond, those of one moment come by series


@dataclass(frozen=True, slots=True, eq=False)
class PointBatch:
    """In the order of the query. `tags`: the values of its dimensions, sorted by their keys."""

    name: str
    tags: tuple[str, ...]
    kind: Kind
    times: Int64s
    values: Values
    beside: tuple[npt.NDArray[Any], ...] = ()  # what is selected with it: objects, or None
    missing: Mask | None = None  # where there is no value; None: nowhere
    weights: Int64s | None = None  # of how many points each is the mean; None: of one
    subtags: tuple[str, ...] = ()  # the tags that are arguments of top and bottom

    def __len__(self) -> int:
        return len(self.times)

    def chosen(self, index: Any) -> PointBatch:
        return replace(
            self,
            times=self.times[index],
            values=self.values[index],
            beside=tuple(each[index] for each in self.beside),
            missing=None if self.missing is None else self.missing[index],
            weights=None if self.weights is None else self.weights[index],
        )

    def present(self) -> PointBatch:
        """Without what is missing."""
        return self if self.missing is None else replace(self.chosen(~self.missing), missing=None)


def of_minutes(
    function: str, name: str, tags: tuple[str, ...], minutes: Minutes, whole: bool
) -> PointBatch:
    """A point for each minute. `whole`: the values are integers."""
    found = {
        "count": minutes.counts,
        "sum": minutes.sums,
        "mean": minutes.sums / minutes.counts,
        "min": minutes.minima,
        "max": minutes.maxima,
        "first": minutes.firsts,
        "last": minutes.lasts,
    }[function]
    kept = np.isfinite(found)
    values: Values = found[kept]
    kind: Kind = "integer" if function == "count" or (whole and function != "mean") else "float"
    if kind == "integer":
        values = values.astype(np.int64)
    weights = minutes.counts[kept] if function == "mean" else None
    return PointBatch(name, tags, kind, minutes.starts[kept], values, weights=weights)


def joined(batches: Sequence[PointBatch]) -> PointBatch:
    """One after the other."""
    first = batches[0]
    if len(batches) == 1:
        return first
    weights = [
        np.ones(len(each), np.int64) if each.weights is None else each.weights for each in batches
    ]
    return replace(
        first,
        times=np.concatenate([each.times for each in batches]),
        values=np.concatenate([each.values for each in batches]),
        beside=tuple(
            np.concatenate([each.beside[index] for each in batches])
            for index in range(len(first.beside))
        ),
        weights=None if first.weights is None else np.concatenate(weights),
    )


def merged(batches: Sequence[PointBatch], ascending: bool) -> PointBatch:
    """By time."""
    filled = [each for each in batches if len(each)] or list(batches[:1])
    whole = joined(filled)
    if len(filled) == 1:
        return whole
    order = np.argsort(whole.times if ascending else -whole.times, kind="stable")
    times = whole.times[order]
    if np.any(times[1:] == times[:-1]) and len(whole) <= _IN_HEAP_ORDER_MAX:
        order = _in_heap_order(filled, ascending)
    return whole.chosen(order)


def _in_heap_order(batches: Sequence[PointBatch], ascending: bool) -> Int64s:
    """Indices into the batches one after the other."""
    sign = 1 if ascending else -1
    keys: list[list[tuple[int, tuple[Any, ...]]]] = []
    for each in batches:
        beside = zip(*(one.tolist() for one in each.beside), strict=True)
        texts = list(beside) if each.beside else [()] * len(each)
        keys.append(list(zip((sign * each.times).tolist(), texts, strict=True)))

    def less(a: tuple[int, tuple[Any, ...]], b: tuple[int, tuple[Any, ...]]) -> bool:
        if a[0] != b[0]:
            return a[0] < b[0]
        for left, right in zip(a[1], b[1], strict=True):
            if not (isinstance(left, str) and isinstance(right, str)):
                return False
            if left != right:
                return (left < right) == ascending
        return False

    starts = np.cumsum([0, *(len(each) for each in batches[:-1])]).tolist()
    return _drained([len(each) for each in keys], lambda batch, at: keys[batch][at], less, starts)


def by_window(
    batches: Sequence[PointBatch], starts: Sequence[Int64s], ascending: bool
) -> PointBatch:
    """By the start of the window; within one, series after series in the heap's order."""
    filled = [(each, begun) for each, begun in zip(batches, starts, strict=True) if len(each)]
    if not filled:
        return batches[0]
    whole = joined([each for each, _ in filled])
    if len(filled) == 1:
        return whole
    sign = 1 if ascending else -1
    keys = [(sign * begun).tolist() for _, begun in filled]
    if len(whole) > _IN_HEAP_ORDER_MAX or len(filled) == 2:
        return whole.chosen(np.argsort(np.concatenate(keys), kind="stable"))
    firsts = np.cumsum([0, *(len(each) for each, _ in filled[:-1])]).tolist()
    order = _drained(
        [len(each) for each in keys], lambda batch, at: keys[batch][at], lambda a, b: a < b, firsts
    )
    return whole.chosen(order)


def _drained(
    lengths: Sequence[int],
    key: Callable[[int, int], Any],
    less: Callable[[Any, Any], bool],
    starts: Sequence[int],
) -> Int64s:
    """The order in which Go's container/heap gives what each of several lists has."""
    heap = [(key(batch, 0), batch, 0) for batch in range(len(lengths))]

    def down(at: int, count: int) -> bool:
        begun = at
        while (child := 2 * at + 1) < count:
            other = child + 1
            if other < count and less(heap[other][0], heap[child][0]):
                child = other
            if not less(heap[child][0], heap[at][0]):
                break
            heap[at], heap[child] = heap[child], heap[at]
            at = child
        return at > begun

    def up(at: int) -> None:
        while at and less(heap[at][0], heap[(parent := (at - 1) // 2)][0]):
            heap[at], heap[parent] = heap[parent], heap[at]
            at = parent

    for at in range(len(heap) // 2 - 1, -1, -1):
        down(at, len(heap))
    found: list[int] = []
    while heap:
        last = len(heap) - 1
        heap[0], heap[last] = heap[last], heap[0]
        down(0, last)
        _, batch, at = heap.pop()
        found.append(starts[batch] + at)
        if at + 1 < lengths[batch]:
            heap.append((key(batch, at + 1), batch, at + 1))
            up(len(heap) - 1)
    return np.array(found, np.int64)
