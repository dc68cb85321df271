from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from scheduler.gateway.influx.conditions import Range, check, holds, split
from scheduler.gateway.influx.parser import parse
from scheduler.gateway.influx.syntax import Expression, QueryError, Select, StatementError

SECOND = 10**9
NOW = 1_600_000_000 * SECOND


def condition(text: str) -> Expression | None:
    (select,) = parse(f"SELECT a FROM m WHERE {text}")
    assert isinstance(select, Select)
    return select.condition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time > 5", (6, None)),
        ("time <= 5s", (None, 5 * SECOND)),
        ("5s > time", (None, 5 * SECOND - 1)),
        ("time = 5s", (5 * SECOND, 5 * SECOND)),
        ("time >= now() - 1h", (NOW - 3600 * SECOND, None)),
        ("time > 1s AND (time < 9s OR time < 8s)", (SECOND + 1, 8 * SECOND - 1)),
        ("time >= '1970-01-01T00:00:01.5Z'", (3 * SECOND // 2, None)),
        ("time >= '1970-01-01 00:00:01'", (SECOND, None)),
        ("time >= '1970-01-02' - 1d", (0, None)),
        ("time >= '1970-01-01T01:00:00+01:00'", (0, None)),
    ],
)
def test_what_is_said_of_the_time_is_a_range(text: str, expected: tuple[int, int]) -> None:
    assert split(condition(text), NOW, None) == (None, Range(*expected))


def test_a_date_is_of_the_zone_of_the_query() -> None:
    found = split(condition("time >= '1970-01-02'"), NOW, ZoneInfo("Europe/Berlin"))[1]
    assert found.first == 23 * 3600 * SECOND


@pytest.mark.parametrize("text", ["time > 'x'", "time > a", "time != 5", "time > '1500-01-01'"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(StatementError):
        split(condition(text), NOW, None)


def test_tags_are_compared_and_missing_ones_are_empty() -> None:
    rest, found = split(condition("(a = 'x' OR b !~ /y/) AND time > 0 AND c != 'z'"), NOW, None)
    assert found.first == 1
    assert holds(rest, {"a": "x", "b": "y"})
    assert holds(rest, {})
    assert not holds(rest, {"b": "y"})
    assert not holds(rest, {"a": "x", "c": "z"})


@pytest.mark.parametrize(
    "text", ["v = 'x'", "a > 'x'", "a = 5", "a = b", "a", "true", "mean(a) = 'x'"]
)
def test_only_tags_can_be_compared(text: str) -> None:
    with pytest.raises(QueryError):
        check(split(condition(text), NOW, None)[0], {"v"})
