"""What a store of series shows to those who read: series, their points, the record of a job.

Values only; `series_store.py` implements the protocols.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Kind = Literal["float", "integer", "boolean", "string"]
Int64s = npt.NDArray[np.int64]
Values = npt.NDArray[Any]  # float64, int64, bool or object: by the kind of the series

DTYPES: Mapping[Kind, Any] = {
    "float": np.float64,
    "integer": np.int64,
    "boolean": np.bool_,
    "string": object,
}
NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one field of one attempt of a job."""

    id: int
    job: str
    attempt: int
    measurement: str
    field: str
    kind: Kind
    tags: tuple[tuple[str, str], ...]  # sorted


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Sorted by time; those of one time by step."""

    times: Int64s  # [n] nanoseconds since 1970
    steps: Int64s  # [n] NO_STEP: it has none
    values: Values  # [n]

    def __len__(self) -> int:
        return len(self.times)

    def chosen(self, index: Any) -> Points:
        """`index`: a slice, a mask, or numbers in ascending order."""
        return Points(self.times[index], self.steps[index], self.values[index])


@dataclass(frozen=True, slots=True, eq=False)
class Minutes:
    """What is known of the minutes that have numbers, in order; NaN does not count. Of hours, where
    points have been thinned out to these."""

    starts: Int64s  # [n] nanoseconds
    counts: Int64s  # [n] of points, also of those that were thinned out
    sums: npt.NDArray[np.float64]  # [n]
    minima: npt.NDArray[np.float64]  # [n]
    maxima: npt.NDArray[np.float64]  # [n]
    firsts: npt.NDArray[np.float64]  # [n]
    lasts: npt.NDArray[np.float64]  # [n]


@dataclass(frozen=True, slots=True)
class Artifact:
    path: str
    size: int
    sha256: str
    at: float


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a job has told of itself, beside series."""

    params: Mapping[str, str]
    tags: Mapping[str, str]
    description: str
    artifacts: Sequence[Artifact]
    refused: Mapping[str, int]  # how often, by reason
    lost: Mapping[str, int]  # how many entries, by why


class SeriesReader(Protocol):
    """May be called by any thread."""

    def jobs(self) -> set[str]:
        """Those that have series."""
        ...

    def measurements(self, jobs: Collection[str] | None = None) -> list[str]:
        """Of these jobs (None: of all), sorted. Takes less time than all their series."""
        ...

    def series(
        self, jobs: Collection[str] | None = None, measurement: str | None = None
    ) -> list[Series]:
        """Of these jobs (None: of all), ordered by id."""
        ...

    def points(
        self, series: Sequence[int], first_ns: int | None = None, last_ns: int | None = None
    ) -> dict[int, Points]:
        """From `first_ns` on and before `last_ns`. A series without any has no points here, too."""
        ...

    def record(self, job: str) -> JobRecord: ...


@runtime_checkable
class MinutesReader(SeriesReader, Protocol):
    def count(self, series: Sequence[int], first_ns: int, last_ns: int) -> int:
        """How many points `points` would read, at most."""
        ...

    def minutes(
        self, series: Sequence[int], first_ns: int | None = None, last_ns: int | None = None
    ) -> dict[int, Minutes]:
        """For many points: what `points` would give, by minute, without reading most of them. Only
        of numbers. Both moments must be the beginning of a minute."""
        ...


def no_points(kind: Kind) -> Points:
    nothing = np.empty(0, np.int64)
    return Points(nothing, nothing, np.empty(0, DTYPES[kind]))


def joined(parts: Sequence[Points]) -> Points:
    """Sorted again. `parts`: at least one, with values of one kind."""
    if len(parts) == 1:
        return parts[0]
    times = np.concatenate([part.times for part in parts])
    steps = np.concatenate([part.steps for part in parts])
    values = np.concatenate([part.values for part in parts])
    if np.all(times[1:] > times[:-1]):
        return Points(times, steps, values)
    order = np.lexsort((steps, times))
    return Points(times[order], steps[order], values[order])


Steps = tuple[int, int]  # from the smallest to the largest one of an attempt


def newest(attempts: Mapping[int, Points]) -> Points:
    """The points of one series over the attempts of a job, without doubled steps: where a newer
    attempt has been, between its smallest and its largest step, those of older ones do not count.
    Points without a step all count."""
    kept: list[Points] = []
    covered: list[Steps] = []
    for attempt in sorted(attempts, reverse=True):
        points = attempts[attempt]
        kept.append(uncovered(points, covered))
        covered += steps_of(points)
    return joined(kept[::-1])


def uncovered(points: Points, covered: Sequence[Steps]) -> Points:
    """Without those whose step a newer attempt has been at."""
    hidden = np.zeros(len(points), np.bool_)
    for first, last in covered:
        hidden |= (points.steps >= first) & (points.steps <= last)
    hidden &= points.steps != NO_STEP
    return points.chosen(~hidden) if hidden.any() else points


def steps_of(points: Points) -> list[Steps]:
    stepped = points.steps[points.steps != NO_STEP]
    return [(int(stepped.min()), int(stepped.max()))] if len(stepped) else []
