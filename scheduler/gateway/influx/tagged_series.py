"""Series of the store as InfluxDB has them: one series has several fields, and the job is a tag, or
the node that tells of itself.

Of the attempts of a job the newest value of a step counts. What is not a number is not shown,
because InfluxDB has no such values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.gateway.influx.syntax import StatementError
from scheduler.gateway.series.reading import (
    DTYPES,
    Int64s,
    Kind,
    Minutes,
    MinutesReader,
    Points,
    Series,
    SeriesReader,
    Values,
    newest,
    no_points,
)
from scheduler.gateway.series.thinning import MINUTE_NS, minutes_of, regrouped

JOB, NODE = "job", "node"  # the tags
_NODE_PREFIX = "node:"  # of what a node tells of itself, where others have the id of a job
POINTS_MAX = 5_000_000  # that one statement may read
_READ_AT_ONCE = 100  # series
# If jobs differ in the kind of a field, it is the first of these that some job has.
_PRECEDENCE: tuple[Kind, ...] = ("float", "integer", "string", "boolean")
_ESCAPED = re.compile(r"([, =\\])")


@dataclass(frozen=True, slots=True)
class TaggedSeries:
    """All fields with the same tags: a series of InfluxDB."""

    key: str  # by which series are ordered
    tags: dict[str, str]
    fields: dict[str, list[Series]]  # the attempts of each


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    series: list[TaggedSeries]  # by key
    fields: dict[str, Kind]
    tag_keys: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class FieldValues:
    """The values of one field of one series, at different times in ascending order."""

    times: Int64s
    values: Values

    def between(self, first: int, last: int) -> FieldValues:
        low, high = np.searchsorted(self.times, [first, last + 1])
        return FieldValues(self.times[low:high], self.values[low:high])


@dataclass(slots=True)
class SeriesView:
    """Of some jobs, at one moment. Only what is asked for is read."""

    reader: SeriesReader
    jobs: Collection[str] | None = None  # None: all
    _names: list[str] | None = field(default=None, init=False)
    _known: dict[str, Measurement] = field(default_factory=dict, init=False)
    _points: dict[int, Points] = field(default_factory=dict, init=False)
    _minutes: dict[int, Minutes] | None = field(default=None, init=False)

    def named(self, name: str) -> Measurement:
        """One of `names`."""
        if name not in self._known:
            self._known[name] = _measurement(name, self.reader.series(self.jobs, name))
        return self._known[name]

    def names(self) -> list[str]:
        if self._names is None:
            self._names = self.reader.measurements(self.jobs)
        return self._names

    def read(
        self, series: Iterable[TaggedSeries], fields: Collection[str], first: int, last: int
    ) -> None:
        """All at once, before `column`: one by one would take longer. Of several attempts, what is
        before and after tells as well which values count."""
        parts, whole = set[int](), set[int]()
        for one in series:
            for name in fields:
                attempts = one.fields.get(name, ())
                (parts if len(attempts) == 1 else whole).update(each.id for each in attempts)
        self._points = {}
        self._read(sorted(parts), first, last + 1)
        self._read(sorted(whole), None, None)

    def read_minutes(
        self, series: Iterable[TaggedSeries], fields: Collection[str], first: int, last: int
    ) -> bool:
        """What is known of whole minutes, if there are too many points to read. False: there are
        not, or some have steps that a newer attempt may hide."""
        attempts = [one.fields.get(name, []) for one in series for name in fields]
        wanted = sorted({each.id for found in attempts for each in found})
        reader = self.reader
        if (
            not isinstance(reader, MinutesReader)
            or any(len(found) > 1 for found in attempts)
            or reader.count(wanted, first, last + 1) <= POINTS_MAX
        ):
            return False
        begin, end = -(-first // MINUTE_NS) * MINUTE_NS, (last + 1) // MINUTE_NS * MINUTE_NS
        if begin >= end:
            return False
        before = reader.points(wanted, first, begin)
        after = reader.points(wanted, end, last + 1)
        within = reader.minutes(wanted, begin, end)
        self._minutes = {
            each: regrouped(
                [
                    part
                    for part in (
                        minutes_of(before[each]),
                        within[each],
                        minutes_of(after[each]),
                    )
                    if part is not None
                ]
            )
            for each in wanted
        }
        return True

    def minutes(self, series: TaggedSeries, name: str) -> Minutes | None:
        """None: minutes are not read, or this series does not have this field."""
        found = series.fields.get(name)
        return self._minutes[found[0].id] if found and self._minutes is not None else None

    def _read(self, series: Sequence[int], first: int | None, last: int | None) -> None:
        for begin in range(0, len(series), _READ_AT_ONCE):
            asked = series[begin : begin + _READ_AT_ONCE]
            self._points |= self.reader.points(asked, first, last)
            if self.points_read > POINTS_MAX:
                raise StatementError(f"more than {POINTS_MAX:,} points: name a job, or a time")

    @property
    def points_read(self) -> int:
        return sum(len(each) for each in self._points.values())

    def column(self, series: TaggedSeries, name: str, kind: Kind) -> FieldValues | None:
        """None: it does not have this field, or not of this kind."""
        attempts: dict[int, Points] = {}
        for each in series.fields.get(name, ()):
            values = _converted(self._points[each.id].values, each.kind, kind)
            if values is not None:
                points = self._points[each.id]
                attempts[each.attempt] = Points(points.times, points.steps, values)
        if not attempts:
            return None
        points = newest(attempts) if len(attempts) > 1 else next(iter(attempts.values()))
        return _column(points, kind)


def _measurement(name: str, listed: Sequence[Series]) -> Measurement:
    by_tags: dict[tuple[tuple[str, str], ...], dict[str, list[Series]]] = {}
    kinds: dict[str, set[Kind]] = {}
    for each in listed:
        tags = tuple(sorted({**dict(each.tags), **_whose(each.job)}.items()))
        by_tags.setdefault(tags, {}).setdefault(each.field, []).append(each)
        kinds.setdefault(each.field, set()).add(each.kind)
    series = [TaggedSeries(_key(tags), dict(tags), found) for tags, found in by_tags.items()]
    return Measurement(
        name,
        sorted(series, key=lambda each: each.key),
        {each: next(k for k in _PRECEDENCE if k in found) for each, found in kinds.items()},
        frozenset(key for tags in by_tags for key, _ in tags),
    )


def of_node(name: str) -> str:
    """What the store has in the place of a job."""
    return _NODE_PREFIX + name


def is_node(job: str) -> bool:
    return job.startswith(_NODE_PREFIX)


def _whose(job: str) -> dict[str, str]:
    return {NODE: job.removeprefix(_NODE_PREFIX)} if is_node(job) else {JOB: job}


def _key(tags: tuple[tuple[str, str], ...]) -> str:
    """As in the line protocol."""
    return ",".join(f"{_escape(key)}={_escape(value)}" for key, value in tags)


def _escape(text: str) -> str:
    return _ESCAPED.sub(r"\\\1", text)


def _converted(values: Values, kind: Kind, wanted: Kind) -> Values | None:
    if kind == wanted:
        return values
    if {kind, wanted} == {"float", "integer"}:
        return values.astype(DTYPES[wanted])
    return None


def _column(points: Points, kind: Kind) -> FieldValues:
    times, values = points.times, points.values
    if kind == "float":
        finite = np.isfinite(values)
        if not finite.all():
            times, values = times[finite], values[finite]
    if len(times) > 1 and not np.all(times[1:] > times[:-1]):
        last = np.append(times[1:] != times[:-1], True)  # of one time, the last counts
        times, values = times[last], values[last]
    return FieldValues(times, values)


def empty_column(kind: Kind) -> FieldValues:
    points = no_points(kind)
    return FieldValues(points.times, points.values)
