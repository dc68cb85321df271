"""SELECT: from series to rows, in the steps and the order of InfluxDB 1.x."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scheduler.gateway.influx import columns, conditions, go_json
from scheduler.gateway.influx.arithmetic import computed
from scheduler.gateway.influx.batches import PointBatch, merged, of_minutes
from scheduler.gateway.influx.columns import TRANSFORMATIONS, Grouping, call_kind
from scheduler.gateway.influx.filling import filled
from scheduler.gateway.influx.reducing import (
    NUMBERS,
    combined,
    distinct,
    extremes,
    summarized,
)
from scheduler.gateway.influx.syntax import (
    MAX_TIME,
    MIN_TIME,
    Call,
    Duration,
    Expression,
    Integer,
    Operation,
    Parentheses,
    Reference,
    Select,
    StatementError,
)
from scheduler.gateway.influx.tagged_series import (
    FieldValues,
    Measurement,
    SeriesView,
    TaggedSeries,
)
from scheduler.gateway.influx.transforming import integrals, transformed
from scheduler.gateway.influx.windows import Windows
from scheduler.gateway.series.reading import Kind
from scheduler.gateway.series.thinning import MINUTE_NS

ROWS_MAX = 1_000_000  # that it may answer
_COMBINED = ("count", "sum", "mean", "min", "max", "first", "last")
_SELECTORS = ("first", "last", "min", "max", "percentile", "top", "bottom")
_SECOND = 10**9
_ORDER: tuple[str, ...] = ("", "float", "integer", "string", "boolean", "tag")

GroupKey = tuple[str, tuple[str, ...]]  # measurement, values of the dimensions


def run(select: Select, measurements: SeriesView, now: int) -> list[go_json.SeriesAnswer]:
    """Raises QueryError, StatementError."""
    condition, found = conditions.split(select.condition, now, select.zone)
    grouping = columns.grouping(select, now, frozenset())
    columns.check(select, bool(grouping.length))
    first = MIN_TIME if found.first is None else found.first
    last = found.last
    if last is None:
        last = now if grouping.length else MAX_TIME
    sources = _sources(select, measurements)
    fields = _fields(sources)
    tag_keys = frozenset(key for each in sources for key in each.tag_keys)
    conditions.check(condition, fields)
    grouping = columns.grouping(select, now, tag_keys)
    typed = columns.with_kinds(select, fields, tag_keys)
    for column in typed.columns:
        columns.check_kinds(column.expression)
    groups = _groups(typed, sources, condition, grouping)
    time = columns.time_name(select)
    return _Selection(typed, measurements, groups, grouping, (first, last), time).series()


def _sources(select: Select, measurements: SeriesView) -> list[Measurement]:
    found: list[Measurement] = []
    for source in select.sources:
        names = [name for name in measurements.names() if source.matches(name)]
        found += [measurements.named(name) for name in names]
    return found


def _fields(sources: Sequence[Measurement]) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in sources:
        for name, kind in source.fields.items():
            known = found.get(name)
            if known is None or _ORDER.index(kind) < _ORDER.index(known):
                found[name] = kind
    return found


def _groups(
    select: Select,
    sources: Sequence[Measurement],
    condition: Expression | None,
    grouping: Grouping,
) -> dict[GroupKey, list[TaggedSeries]]:
    """By what the output has, in its order. SLIMIT counts within a measurement."""
    found: dict[GroupKey, list[TaggedSeries]] = {}
    keys = sorted(set(grouping.tags))
    for source in sources:
        of_source: dict[tuple[str, ...], list[TaggedSeries]] = {}
        for series in source.series:
            if conditions.holds(condition, series.tags):
                tags = tuple(series.tags.get(key, "") for key in keys)
                of_source.setdefault(tags, []).append(series)
        wanted = list(of_source)
        if select.series_limit or select.series_offset:
            wanted.sort(key=lambda tags: _limited_by(keys, tags))
            wanted = wanted[select.series_offset :][: select.series_limit]
        for tags in wanted:
            members = of_source[tags] if select.ascending else of_source[tags][::-1]
            found.setdefault((source.name, tags), []).extend(members)
    return dict(sorted(found.items(), reverse=not select.ascending))


def _limited_by(keys: Sequence[str], tags: Sequence[str]) -> str:
    """The order in which SLIMIT counts; that of the answer is another one."""
    present = [(key, value) for key, value in zip(keys, tags, strict=True) if value]
    return "|".join([*(key for key, _ in present), *(value for _, value in present)])


@dataclass(slots=True)
class _Selection:
    select: Select
    measurements: SeriesView
    groups: dict[GroupKey, list[TaggedSeries]]
    grouping: Grouping
    range: tuple[int, int]
    time: str
    _by_minutes: bool = False

    def series(self) -> list[go_json.SeriesAnswer]:
        shown = columns.shown(self.select)
        calls: list[Call] = []
        references: list[Reference] = []
        for column in shown:
            _collect(column.expression, calls, references)
        references.sort(key=lambda each: (each.name, _ORDER.index(each.kind)))
        if not calls and not any(each.kind for each in references):
            return []
        self._read(calls, references)
        known = [each for each in calls if call_kind(each)]
        if calls and not known:
            return []
        selector = len(calls) == 1 and calls[0].name in _SELECTORS
        streams = [
            self._limited(self._call(each, self.range, references, selector)) for each in known
        ]
        if not calls:
            streams = [self._limited(self._plain(references))]
        rows = _Rows(self.select, known, references, streams, [each.expression for each in shown])
        names = columns.names(shown, self.time)
        keys = sorted(set(self.grouping.tags))
        found, total = [], 0
        for (name, tags), values in rows.by_group(list(self.groups)):
            total += len(values)
            if total > ROWS_MAX:
                raise StatementError(f"more than {ROWS_MAX} rows: use GROUP BY time or LIMIT")
            found.append(
                go_json.SeriesAnswer(
                    name, dict(zip(keys, tags, strict=True)), names, values, True, self.select.zone
                )
            )
        return found

    def _read(self, calls: Sequence[Call], references: Sequence[Reference]) -> None:
        named = {each.name for each in references if each.kind != "tag"}
        for call in calls:
            named |= set(_names_of(call))
        series = [each for group in self.groups.values() for each in group]
        first, last = self.range
        if self._fits_minutes(calls, references):
            self._by_minutes = self.measurements.read_minutes(series, named, first, last)
        if self._by_minutes:
            return
        margin = self.grouping.length  # for the first difference
        self.measurements.read(
            series, named, max(first - margin, MIN_TIME), min(last + margin, MAX_TIME)
        )

    def _fits_minutes(self, calls: Sequence[Call], references: Sequence[Reference]) -> bool:
        """Whether the values can be computed from what is known of whole minutes."""
        grouping = self.grouping
        return bool(
            calls
            and not references
            and all(
                call.name in _COMBINED
                and isinstance(argument := call.arguments[0], Reference)
                and argument.kind in NUMBERS
                for call in calls
            )
            and grouping.length
            and grouping.length % MINUTE_NS == 0
            and grouping.offset % MINUTE_NS == 0
            and self.select.zone is None
        )

    def _limited(self, batches: dict[GroupKey, PointBatch]) -> dict[GroupKey, PointBatch]:
        """LIMIT and OFFSET count within a series."""
        limit, offset = self.select.limit, self.select.offset
        if not limit and not offset:
            return batches
        kept = slice(offset, offset + limit if limit else None)
        return {key: batch.chosen(kept) for key, batch in batches.items()}

    def _windows(self, bounds: tuple[int, int]) -> Windows:
        grouping = self.grouping
        return Windows(*bounds, grouping.length, grouping.offset, self.select.zone)

    # --- series ---------------------------------------------------------------------------------

    def _plain(self, references: Sequence[Reference]) -> dict[GroupKey, PointBatch]:
        """Fields and tags as they are: a row for each moment at which one of the fields is."""
        found = {}
        for (name, tags), members in self.groups.items():
            batches = []
            for each in members:
                held = self._held(each, references)
                times = [column.times for column in held if column is not None]
                if times:
                    union = times[0] if len(times) == 1 else np.unique(np.concatenate(times))
                    batches.append(
                        self._batch(name, tags, each, FieldValues(union, union), references)
                    )
            if batches:
                found[name, tags] = merged(batches, self.select.ascending)
        return found

    def _held(
        self, series: TaggedSeries, references: Sequence[Reference]
    ) -> list[FieldValues | None]:
        return [self._column(series, each, self.range) for each in references]

    def _column(
        self, series: TaggedSeries, reference: Reference, bounds: tuple[int, int]
    ) -> FieldValues | None:
        if reference.kind in ("", "tag"):
            return None
        kind: Kind = reference.kind  # type: ignore[assignment]  # the others are excluded
        column = self.measurements.column(series, reference.name, kind)
        return None if column is None else column.between(*bounds)

    def _batch(
        self,
        name: str,
        tags: tuple[str, ...],
        series: TaggedSeries,
        column: FieldValues,
        beside: Sequence[Reference],
        kind: Kind = "integer",
        subtags: tuple[str, ...] = (),
    ) -> PointBatch:
        """In the order of the query."""
        values = []
        for each in beside:
            found = np.full(len(column.times), None, object)
            if each.kind == "tag":
                found[:] = series.tags.get(each.name) or None
            elif (other := self._column(series, each, (MIN_TIME, MAX_TIME))) is not None:
                at = np.searchsorted(other.times, column.times)
                at[at == len(other.times)] = 0
                if len(other.times):
                    same = other.times[at] == column.times
                    found[same] = other.values[at[same]].astype(object)
            values.append(found)
        batch = PointBatch(
            name, tags, kind, column.times, column.values, tuple(values), subtags=subtags
        )
        return batch if self.select.ascending else batch.chosen(slice(None, None, -1))

    def _batches(
        self,
        reference: Reference,
        bounds: tuple[int, int],
        beside: Sequence[Reference],
        subtags: Sequence[str] = (),
    ) -> dict[GroupKey, list[PointBatch]]:
        """Of each series of each group that has this field."""
        found: dict[GroupKey, list[PointBatch]] = {}
        if reference.kind in ("", "tag"):
            return found
        kind: Kind = reference.kind  # type: ignore[assignment]  # as above
        for (name, tags), members in self.groups.items():
            for each in members:
                column = self._column(each, reference, bounds)
                if column is not None:
                    own = tuple(each.tags.get(key, "") for key in subtags)
                    batch = self._batch(name, tags, each, column, beside, kind, own)
                    found.setdefault((name, tags), []).append(batch)
        return found

    def _merged(
        self, reference: Reference, bounds: tuple[int, int], beside: Sequence[Reference] = ()
    ) -> dict[GroupKey, PointBatch]:
        return {
            key: merged(batches, self.select.ascending)
            for key, batches in self._batches(reference, bounds, beside).items()
        }

    # --- functions ------------------------------------------------------------------------------

    def _call(
        self,
        call: Call,
        bounds: tuple[int, int],
        beside: Sequence[Reference] = (),
        selector: bool = False,
    ) -> dict[GroupKey, PointBatch]:
        name, windows = call.name, self._windows(bounds)
        argument = call.arguments[0]
        if name in TRANSFORMATIONS:
            found = self._transformed(call, bounds)
        elif name in ("top", "bottom"):
            found = self._extremes(call, windows, beside)
        elif name == "integral":
            assert isinstance(argument, Reference)
            unit = _unit(call, _SECOND)
            found = {
                key: integrals(batch, windows, unit, self.select.ascending)
                for key, batch in self._merged(argument, bounds).items()
            }
        elif name == "distinct":
            assert isinstance(argument, Reference)
            found = {
                key: _at_starts(distinct(batch, windows), windows)
                for key, batch in self._merged(argument, bounds).items()
            }
        else:
            found = self._reduced(call, windows, beside)
            if not selector or windows.length:
                found = {key: _at_starts(batch, windows) for key, batch in found.items()}
                if windows.length and self.select.fill != "none":
                    found = {
                        key: self._filled(call, batch, windows) for key, batch in found.items()
                    }
        return {key: batch for key, batch in found.items() if len(batch)}

    def _filled(self, call: Call, batch: PointBatch, windows: Windows) -> PointBatch:
        fill, number = self.select.fill, self.select.fill_value
        if call.name == "count" and fill == "null":
            fill, number = "number", 0
        return filled(batch, windows, fill, number, self.select.ascending)

    def _reduced(
        self, call: Call, windows: Windows, beside: Sequence[Reference]
    ) -> dict[GroupKey, PointBatch]:
        name, argument = call.name, call.arguments[0]
        ascending, bounds = self.select.ascending, (windows.first, windows.last)
        if isinstance(argument, Call):  # count(distinct())
            inner = self._call(argument, bounds)
            return {
                key: combined("count", [batch], windows, ascending) for key, batch in inner.items()
            }
        assert isinstance(argument, Reference)
        if name not in _COMBINED:
            percentile = float(getattr(call.arguments[-1], "value", 0))
            return {
                key: summarized(name, batch, windows, percentile)
                for key, batch in self._merged(argument, bounds, beside).items()
            }
        if self._by_minutes:
            return self._of_minutes(name, argument, windows)
        batches = self._batches(argument, bounds, beside)
        return {key: combined(name, each, windows, ascending) for key, each in batches.items()}

    def _of_minutes(
        self, name: str, reference: Reference, windows: Windows
    ) -> dict[GroupKey, PointBatch]:
        """As if each minute were a point. Of sums, this may change the last digit."""
        found: dict[GroupKey, list[PointBatch]] = {}
        for key, members in self.groups.items():
            for each in members:
                known = self.measurements.minutes(each, reference.name)
                if known is not None:
                    batch = of_minutes(name, *key, known, reference.kind == "integer")
                    batch = batch if self.select.ascending else batch.chosen(slice(None, None, -1))
                    found.setdefault(key, []).append(batch)
        function = "sum" if name == "count" else name
        return {
            key: combined(function, batches, windows, self.select.ascending)
            for key, batches in found.items()
        }

    def _transformed(self, call: Call, bounds: tuple[int, int]) -> dict[GroupKey, PointBatch]:
        length, argument = self.grouping.length, call.arguments[0]
        first, last = bounds
        if length and call.name != "cumulative_sum":  # one window more, for the first difference
            if self.select.ascending:
                first = max(first - length, MIN_TIME)
            else:
                last = min(last + length, MAX_TIME)
        if isinstance(argument, Call):
            inner = self._call(argument, (first, last))
        else:
            assert isinstance(argument, Reference)
            inner = self._merged(argument, (first, last))
        unit = _unit(call, length or _SECOND)
        count = call.arguments[-1].value if isinstance(call.arguments[-1], Integer) else 0
        return {
            key: transformed(call.name, batch, unit, count, self.select.ascending)
            for key, batch in inner.items()
        }

    def _extremes(
        self, call: Call, windows: Windows, beside: Sequence[Reference]
    ) -> dict[GroupKey, PointBatch]:
        reference, *named, count = call.arguments
        assert isinstance(reference, Reference)
        assert isinstance(count, Integer)
        bounds = windows.first, windows.last
        if named:
            keys = sorted({each.name for each in named if isinstance(each, Reference)})
            batches = self._batches(reference, bounds, beside, keys)
        else:
            batches = {
                key: [batch] for key, batch in self._merged(reference, bounds, beside).items()
            }
        return {
            key: extremes(call.name, each, windows, count.value, self.select.ascending)
            for key, each in batches.items()
        }


def _unit(call: Call, otherwise: int) -> int:
    match call.arguments:
        case (_, Duration(nanoseconds)):
            return nanoseconds
    return otherwise


def _at_starts(batch: PointBatch, windows: Windows) -> PointBatch:
    """The time of a value is the start of its window; without a bound, 1970."""
    starts = windows.starts(batch.times)
    return replace(batch, times=np.where(starts == MIN_TIME, 0, starts))


def _names_of(expression: Expression) -> list[str]:
    match expression:
        case Reference(name):
            return [name]
        case Call(_, arguments):
            return [name for each in arguments for name in _names_of(each)]
    return []


def _collect(expression: Expression, calls: list[Call], references: list[Reference]) -> None:
    """Each once."""
    match expression:
        case Call():
            if expression not in calls:
                calls.append(expression)
        case Reference():
            if expression not in references:
                references.append(expression)
        case Operation(_, left, right):
            _collect(left, calls, references)
            _collect(right, calls, references)
        case Parentheses(inner):
            _collect(inner, calls, references)


# --- rows ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rows:
    """Joins what several functions have found, by time."""

    select: Select
    calls: Sequence[Call]
    references: Sequence[Reference]
    streams: Sequence[dict[GroupKey, PointBatch]]
    shown: Sequence[Expression]

    def by_group(self, groups: Sequence[GroupKey]) -> list[tuple[GroupKey, list[list[Any]]]]:
        found = []
        for key in groups:
            batches = [stream.get(key) for stream in self.streams]
            if any(batch is not None and len(batch) for batch in batches):
                found.append((key, self._rows(batches)))
        return found

    def _rows(self, batches: Sequence[PointBatch | None]) -> list[list[Any]]:
        places: dict[Expression, int] = {each: at for at, each in enumerate(self._symbols())}
        values = self._joined(batches)
        compute = [_compiled(each, places) for each in self.shown]
        return [[time, *(each(row) for each in compute)] for time, row in values]

    def _symbols(self) -> list[Expression]:
        return [*self.calls, *self.references]

    def _joined(self, batches: Sequence[PointBatch | None]) -> list[tuple[int, list[Any]]]:
        """The time and the value of each symbol, row by row. What is missing is what fill() says;
        with fill(previous), what it was in the row before."""
        kinds = [*(call_kind(each) for each in self.calls), *(e.kind for e in self.references)]
        keeps = self.select.fill == "previous"
        empty = [_default(self.select.fill_value, kind) for kind in kinds]
        columns_of = [self._columns(batch, number) for number, batch in enumerate(batches)]
        lists = [each[0] for each in columns_of]
        at = [0] * len(lists)
        row: list[Any] = [None] * len(kinds)
        found: list[tuple[int, list[Any]]] = []
        nearest = min if self.select.ascending else max
        while True:
            waiting = [times[at[n]] for n, times in enumerate(lists) if at[n] < len(times)]
            if not waiting:
                return found
            time = nearest(waiting)
            for number, (times, symbols) in enumerate(columns_of):
                index = at[number]
                here = index < len(times) and times[index] == time
                for place, column in symbols:
                    value = column[index] if here else None
                    if value is not None:
                        row[place] = value
                    elif not keeps:
                        row[place] = empty[place]
                at[number] += here
            found.append((time, row.copy()))

    def _columns(
        self, batch: PointBatch | None, number: int
    ) -> tuple[list[int], list[tuple[int, list[Any]]]]:
        """The times, and the values of each symbol by its place."""
        own = [number] if self.calls else []
        others = range(len(self.calls), len(self.calls) + len(self.references))
        if batch is None:
            return [], [(place, []) for place in (*own, *others)]
        values = batch.values.tolist()
        if batch.missing is not None:
            gone = batch.missing.tolist()
            values = [None if no else each for each, no in zip(values, gone, strict=True)]
        lists = [values] if own else []
        beside = [each.tolist() for each in batch.beside]
        beside += [[None] * len(batch)] * (len(others) - len(beside))
        return batch.times.tolist(), list(zip((*own, *others), (*lists, *beside), strict=True))


def _default(number: float | int | None, kind: str) -> Any:
    if number is None:
        return None
    if kind == "float":
        return float(number)
    return int(number) if kind == "integer" else number


def _compiled(
    expression: Expression, places: Mapping[Expression, int]
) -> Callable[[list[Any]], Any]:
    place = places.get(expression)
    if place is not None:
        return lambda row: _shown(row[place])
    return lambda row: _shown(computed(expression, places, row))


def _shown(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
