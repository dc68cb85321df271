"""SHOW: what there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.gateway.influx import conditions
from scheduler.gateway.influx.go_json import SeriesAnswer
from scheduler.gateway.influx.patterns import Pattern
from scheduler.gateway.influx.syntax import (
    Expression,
    Operation,
    Parentheses,
    QueryError,
    Reference,
    Show,
    StatementError,
    Text,
)
from scheduler.gateway.influx.tagged_series import Measurement, SeriesView

DATABASE = "experiments"


def run(show: Show, measurements: SeriesView, database: str, now: int) -> list[SeriesAnswer]:
    match show.what:
        case "databases":
            return [_table("databases", ["name"], [[DATABASE]])]
        case "created":
            return []
    if not (show.on_database or database):
        raise StatementError("database name required")
    match show.what:
        case "policies":
            columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"]
            return [_table("", columns, [["autogen", "0s", "168h0m0s", 1, True]])]
        case "measurements":
            return _measurements(show, measurements)
        case "fields":
            return _fields(show, measurements)
        case "tag keys":
            return _tag_keys(show, measurements, now)
    return _tag_values(show, measurements, now)


def _table(name: str, columns: list[str], rows: list[list[Any]]) -> SeriesAnswer:
    return SeriesAnswer(name, {}, columns, rows, timed=False)


def _limited(rows: list[list[Any]], show: Show) -> list[list[Any]]:
    return rows[show.offset :][: show.limit or None]


def _tables(name: str, columns: list[str], rows: list[list[Any]], show: Show) -> list[SeriesAnswer]:
    kept = _limited(rows, show)
    return [_table(name, columns, kept)] if kept else []


def _wanted(show: Show, measurements: SeriesView) -> list[str]:
    return [
        name
        for name in measurements.names()
        if not show.sources or any(one.matches(name) for one in show.sources)
    ]


def _found(show: Show, measurements: SeriesView) -> list[Measurement]:
    return [measurements.named(name) for name in _wanted(show, measurements)]


def _measurements(show: Show, measurements: SeriesView) -> list[SeriesAnswer]:
    if _has_time(show.condition):
        raise StatementError("SHOW MEASUREMENTS doesn't support time in WHERE clause")
    rows: list[list[Any]] = [
        [name]
        for name in _wanted(show, measurements)
        if show.condition is None or _may_hold(show.condition, measurements.named(name))
    ]
    return _tables("measurements", ["name"], rows, show)


def _has_time(condition: Expression | None) -> bool:
    match condition:
        case Operation(_, left, right):
            return _has_time(left) or _has_time(right)
        case Parentheses(inner):
            return _has_time(inner)
        case Reference(name):
            return name.lower() == "time"
    return False


def _may_hold(condition: Expression, measurement: Measurement) -> bool:
    """Of a measurement: whether one of its values of the tag is so; with != and !~, whether none
    is. A tag that it does not have says nothing."""
    match condition:
        case Operation("AND", left, right):
            return _may_hold(left, measurement) and _may_hold(right, measurement)
        case Operation("OR", left, right):
            return _may_hold(left, measurement) or _may_hold(right, measurement)
        case Parentheses(inner):
            return _may_hold(inner, measurement)
        case Operation(("=" | "!=" | "=~" | "!~") as operator, Reference(name), wanted):
            if name not in measurement.tag_keys or not isinstance(wanted, Text | Pattern):
                return False
            values = {each.tags[name] for each in measurement.series if name in each.tags}
            found = any(
                wanted.found_in(each) if isinstance(wanted, Pattern) else each == wanted.value
                for each in values
            )
            return found == (operator in ("=", "=~"))
    raise QueryError("WHERE may compare tags only")


def _fields(show: Show, measurements: SeriesView) -> list[SeriesAnswer]:
    return [
        table
        for each in _found(show, measurements)
        for table in _tables(
            each.name,
            ["fieldKey", "fieldType"],
            [[name, each.fields[name]] for name in sorted(each.fields)],
            show,
        )
    ]


def _tag_keys(show: Show, measurements: SeriesView, now: int) -> list[SeriesAnswer]:
    condition, _ = conditions.split(show.condition, now, None)
    found = []
    for each in _found(show, measurements):
        conditions.check(condition, ())
        keys = {
            key for one in each.series if conditions.holds(condition, one.tags) for key in one.tags
        }
        found += _tables(each.name, ["tagKey"], [[key] for key in sorted(keys)], show)
    return found


def _tag_values(show: Show, measurements: SeriesView, now: int) -> list[SeriesAnswer]:
    condition, _ = conditions.split(show.condition, now, None)
    conditions.check(condition, ())
    found = []
    for each in _found(show, measurements):
        series = [one for one in each.series if conditions.holds(condition, one.tags)]
        keys = [
            key for key in sorted(each.tag_keys) if conditions.holds(show.key, {"_tagKey": key})
        ]
        rows = [
            [key, value] for key in keys for value in _values(key, [one.tags for one in series])
        ]
        found += _tables(each.name, ["key", "value"], rows, show)
    return found


def _values(key: str, tags: Sequence[dict[str, str]]) -> list[str]:
    return sorted({each[key] for each in tags if key in each})
