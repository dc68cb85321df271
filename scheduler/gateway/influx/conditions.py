"""WHERE: a range of time, and which series. All that is said of the time must hold at once, even
beside OR, as in InfluxDB."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from scheduler.gateway.influx.patterns import Pattern
from scheduler.gateway.influx.syntax import (
    MAX_TIME,
    MIN_TIME,
    Boolean,
    Call,
    Duration,
    Expression,
    Float,
    Integer,
    Moment,
    Operation,
    Parentheses,
    QueryError,
    Reference,
    StatementError,
    Text,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATE_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_FLIPPED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


class Range(NamedTuple):
    """Nanoseconds since 1970, both inclusive. None: no bound."""

    first: int | None = None
    last: int | None = None

    def within(self, other: Range) -> Range:
        firsts = [each for each in (self.first, other.first) if each is not None]
        lasts = [each for each in (self.last, other.last) if each is not None]
        return Range(max(firsts, default=None), min(lasts, default=None))


def split(
    condition: Expression | None, now: int, zone: ZoneInfo | None
) -> tuple[Expression | None, Range]:
    """What is said of tags, and of the time."""
    match condition:
        case None:
            return None, Range()
        case Operation(("AND" | "OR") as operator, left, right):
            left_rest, left_range = split(left, now, zone)
            right_rest, right_range = split(right, now, zone)
            both = left_range.within(right_range)
            if left_rest is None or right_rest is None:
                return left_rest or right_rest, both
            return Operation(operator, left_rest, right_rest), both
        case Operation(operator, Reference(name), right) if name.lower() == "time":
            return None, _range(operator, right, now, zone)
        case Operation(operator, left, Reference(name)) if name.lower() == "time":
            return None, _range(_FLIPPED.get(operator, operator), left, now, zone)
        case Parentheses(inner):
            rest, found = split(inner, now, zone)
            return (None if rest is None else Parentheses(rest)), found
        case Operation():
            return condition, Range()
    raise QueryError("WHERE may compare tags and the time only")


def _range(operator: str, expression: Expression, now: int, zone: ZoneInfo | None) -> Range:
    if isinstance(expression, Text):
        expression = _moment_of(expression.value, zone) or expression
    match _reduced(expression, now, zone):
        case Moment(value):
            if not MIN_TIME < value <= MAX_TIME:
                over = "overflows" if value > 0 else "underflows"
                raise StatementError(f"time {value} {over} time literal")
        case Duration(value) | Integer(value):
            pass
        case Float(number):
            value = int(number)
        case _:
            raise StatementError("invalid operation: time is compared with what is no time")
    match operator:
        case ">":
            return Range(value + 1, None)
        case ">=":
            return Range(value, None)
        case "<":
            return Range(None, value - 1)
        case "<=":
            return Range(None, value)
        case "=":
            return Range(value, value)
    raise StatementError(f"invalid time comparison operator: {operator}")


def _reduced(expression: Expression, now: int, zone: ZoneInfo | None) -> Expression:
    """Computed, as far as it is known."""
    match expression:
        case Call("now", ()):
            return Moment(now)
        case Parentheses(inner):
            return _reduced(inner, now, zone)
        case Operation(operator, left, right):
            return _computed(operator, _reduced(left, now, zone), _reduced(right, now, zone), zone)
    return expression


def _computed(
    operator: str, left: Expression, right: Expression, zone: ZoneInfo | None
) -> Expression:
    if isinstance(left, Text):
        left = _moment_of(left.value, zone) or left
    if isinstance(right, Text):
        right = _moment_of(right.value, zone) or right
    match left, operator, right:
        case Moment(a), "+", Duration(b) | Integer(b):
            return Moment(a + b)
        case Duration(a), "+", Moment(b):
            return Moment(a + b)
        case Moment(a), "-", Duration(b) | Integer(b):
            return Moment(a - b)
        case Moment(a), "-", Moment(b):
            return Duration(a - b)
        case Duration(a), "+", Duration(b):
            return Duration(a + b)
        case Duration(a), "-", Duration(b):
            return Duration(a - b)
        case Duration(a), "*", Integer(b):
            return Duration(a * b)
        case Duration(a), "/", Integer(b):
            return Duration(a // b if b else 0)
        case Integer(a), "+", Integer(b):
            return Integer(a + b)
        case Integer(a), "-", Integer(b):
            return Integer(a - b)
        case Integer(a), "*", Integer(b):
            return Integer(a * b)
    return Operation(operator, left, right)


def _moment_of(text: str, zone: ZoneInfo | None) -> Moment | None:
    """A date, or RFC 3339 with a space or a T; in the zone of the query, unless it names one."""
    if match := _DATE_TIME.fullmatch(text):
        *numbers, fraction, offset = match.groups()
    elif match := _DATE.fullmatch(text):
        numbers, fraction, offset = list(match.groups()), None, None
    else:
        return None
    try:
        year, month, day, hour, minute, second = (int(each) for each in (*numbers, 0, 0, 0)[:6])
        there = datetime(year, month, day, hour, minute, second, tzinfo=zone or UTC)
        if offset:
            shift = timedelta()
            if offset != "Z":
                hours, minutes = int(offset[1:3]), int(offset[4:6])
                shift = timedelta(hours=hours, minutes=minutes) * (-1 if offset[0] == "-" else 1)
            there = there.replace(tzinfo=UTC) - shift
        seconds = (there - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise StatementError("invalid timestamp string") from None
    return Moment(seconds * 10**9 + int((fraction or "").ljust(9, "0")))


# --- series -------------------------------------------------------------------------------------


def check(condition: Expression | None, fields: Collection[str]) -> None:
    """Raises QueryError if it says what is not supported. `fields`: of what is selected from."""
    match condition:
        case None:
            return
        case Operation("AND" | "OR", left, right):
            check(left, fields)
            check(right, fields)
        case Parentheses(inner):
            check(inner, fields)
        case Operation("=" | "!=" | "=~" | "!~", Reference(name, kind), Text() | Pattern()):
            if kind not in ("", "tag") or (name in fields and kind != "tag"):
                raise QueryError(f"WHERE may compare tags and the time only: {name} is a field")
        case Operation("=" | "!=", Text() as text, Reference() as reference):
            check(Operation("=", reference, text), fields)
        case Operation(operator, Reference(name), _):
            wrong = f"{name} is a field" if name in fields else f"{name} {operator} ..."
            raise QueryError(
                f"WHERE may compare tags and the time only, tags with = != =~ !~: {wrong}"
            )
        case _:
            raise QueryError("WHERE may compare tags and the time only")


def holds(condition: Expression | None, tags: Mapping[str, str]) -> bool:
    """Of a series. A tag that it does not have is as one that is empty."""
    match condition:
        case None:
            return True
        case Operation("AND", left, right):
            return holds(left, tags) and holds(right, tags)
        case Operation("OR", left, right):
            return holds(left, tags) or holds(right, tags)
        case Parentheses(inner):
            return holds(inner, tags)
        case Operation("=", Reference(name), Text(value)) | Operation(
            "=", Text(value), Reference(name)
        ):
            return tags.get(name, "") == value
        case Operation("!=", Reference(name), Text(value)) | Operation(
            "!=", Text(value), Reference(name)
        ):
            return tags.get(name, "") != value
        case Operation("=~", Reference(name), Pattern() as pattern):
            return pattern.found_in(tags.get(name, ""))
        case Operation("!~", Reference(name), Pattern() as pattern):
            return not pattern.found_in(tags.get(name, ""))
        case Boolean(value):
            return value
    raise QueryError("WHERE may compare tags and the time only")
