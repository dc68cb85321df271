"""What SELECT asks for: which of it is allowed, of which kinds it is, what * stands for, and the
names of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from scheduler.gateway.influx.lexer import KEYWORDS
from scheduler.gateway.influx.patterns import Pattern
from scheduler.gateway.influx.syntax import (
    Boolean,
    Call,
    Duration,
    Expression,
    Float,
    Integer,
    Operation,
    Parentheses,
    QueryError,
    Reference,
    Select,
    Selected,
    StatementError,
    Text,
    Wildcard,
)

SELECTORS = ("first", "last", "min", "max", "percentile", "top", "bottom")
AGGREGATES = ("count", "sum", "mean", "median", "mode", "stddev", "spread", "integral", "distinct")
TRANSFORMATIONS = (
    "derivative",
    "non_negative_derivative",
    "difference",
    "non_negative_difference",
    "moving_average",
    "cumulative_sum",
)
FUNCTIONS = frozenset((*SELECTORS, *AGGREGATES, *TRANSFORMATIONS))
_LITERALS = (Float, Integer, Text, Boolean, Duration)
_GO_LITERALS: dict[type, str] = {
    Float: "*influxql.NumberLiteral",
    Integer: "*influxql.IntegerLiteral",
    Text: "*influxql.StringLiteral",
    Reference: "*influxql.VarRef",
    Call: "*influxql.Call",
}


@dataclass(slots=True)
class _SeenFunctions:
    calls: int = 0
    plain: bool = False  # a field or tag outside of functions
    aggregates: bool = False
    distinct: bool = False
    extremes: str = ""  # top or bottom


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: `length` 0: not by time."""

    length: int = 0
    offset: int = 0
    tags: tuple[str, ...] = ()


# --- what is allowed ----------------------------------------------------------------------------


def check(select: Select, by_time: bool) -> None:
    """Raises QueryError for what is not supported, StatementError in InfluxDB's words for what is
    wrong."""
    seen = _SeenFunctions()
    columns = [each for each in select.columns if each.expression != Reference("time")]
    for each in columns:
        _Check(select, by_time, seen).expression(each.expression)
    if not columns:
        raise StatementError("at least 1 non-time field must be queried")
    if seen.calls > 1 and seen.extremes:
        raise StatementError(
            f"selector function {seen.extremes}() cannot be combined with other functions"
        )
    if not seen.calls:
        if select.fill in ("none", "linear"):
            raise StatementError(f"fill({select.fill}) must be used with a function")
        if by_time:
            raise StatementError("GROUP BY requires at least one aggregate function")
    if seen.distinct and (seen.calls != 1 or seen.plain):
        raise StatementError(
            "aggregate function distinct() cannot be combined with other functions or fields"
        )
    if seen.plain and seen.aggregates:
        raise StatementError("mixing aggregate and non-aggregate queries is not supported")
    if seen.plain and seen.calls > 1:
        raise StatementError(
            "mixing multiple selector functions with tags or fields is not supported"
        )


@dataclass(slots=True)
class _Check:
    select: Select
    by_time: bool
    seen: _SeenFunctions
    whole: bool = True  # not within an operation

    def expression(self, expression: Expression) -> None:
        match expression:
            case Reference():
                self.seen.plain = True
            case Wildcard():
                if not self.whole:
                    raise StatementError("unable to use wildcard in a binary expression")
                self.seen.plain = True
            case Pattern():
                if not self.whole:
                    raise StatementError("unable to use regex in a binary expression")
                self.seen.plain = True
            case Call():
                self._call(expression)
            case Operation(_, left, right):
                self.whole = False
                if isinstance(left, _LITERALS) and isinstance(right, _LITERALS):
                    raise StatementError("field must contain at least one variable")
                for each in (left, right):
                    if not isinstance(each, _LITERALS):
                        self.expression(each)
            case Parentheses(inner):
                self.expression(inner)
            case _:
                raise StatementError("field must contain at least one variable")

    def _call(self, call: Call) -> None:
        if call.name not in FUNCTIONS:
            raise QueryError(f"undefined or unsupported function {call.name}()")
        self.seen.calls += 1
        name, arguments = call.name, call.arguments
        if name in ("top", "bottom"):
            self._extremes(call)
        elif name in TRANSFORMATIONS:
            self._transformation(call)
        elif name == "distinct":
            self._distinct(arguments, nested=False)
        elif name == "percentile":
            self._expect_number(call, 2)
            if not isinstance(arguments[1], Integer | Float):
                raise StatementError("expected float argument in percentile()")
            self._field(name, arguments[0])
        elif name == "integral":
            self._unit(call)
            self.seen.aggregates = True
            self._field(name, arguments[0])
        else:
            self._function(call)

    def _function(self, call: Call) -> None:
        self.seen.aggregates |= call.name not in SELECTORS
        self._expect_number(call, 1)
        match call.name, call.arguments[0]:
            case "count", Call("distinct", inner):
                self._distinct(inner, nested=True)
            case _, argument:
                self._field(call.name, argument)

    def _expect_number(self, call: Call, wanted: int) -> None:
        if len(call.arguments) != wanted:
            raise StatementError(
                f"invalid number of arguments for {call.name}, expected {wanted}, "
                f"got {len(call.arguments)}"
            )

    def _unit(self, call: Call) -> None:
        given = len(call.arguments)
        if not 1 <= given <= 2:
            raise StatementError(
                f"invalid number of arguments for {call.name}, expected at least 1 but no more "
                f"than 2, got {given}"
            )
        if given == 2:
            unit = call.arguments[1]
            if not isinstance(unit, Duration):
                if call.name == "integral":
                    raise StatementError("second argument must be a duration")
                shown = _GO_LITERALS.get(type(unit), "another expression")
                raise StatementError(
                    f"second argument to {call.name} must be a duration, got {shown}"
                )
            if unit.nanoseconds <= 0:
                raise StatementError(
                    f"duration argument must be positive, got {duration_text(unit.nanoseconds)}"
                )

    def _field(self, name: str, argument: Expression) -> None:
        match argument:
            case Reference():
                return
            case Wildcard():
                if not self.whole:
                    raise StatementError(f"unsupported expression with wildcard: {name}()")
                self.seen.aggregates = True
            case Pattern():
                if not self.whole:
                    raise StatementError(f"unsupported expression with regex field: {name}()")
                self.seen.aggregates = True
            case _:
                raise StatementError(f"expected field argument in {name}()")

    def _transformation(self, call: Call) -> None:
        name = call.name
        if name.endswith("derivative"):
            self._unit(call)
        elif name == "moving_average":
            self._average(call)
        else:
            self._expect_number(call, 1)
        self.seen.aggregates = True
        argument = call.arguments[0]
        if isinstance(argument, Call):
            if not self.by_time:
                raise StatementError(f"{name} aggregate requires a GROUP BY interval")
            if argument.name == "distinct":
                self._distinct(argument.arguments, nested=True)
            else:
                if argument.name in TRANSFORMATIONS or argument.name in ("top", "bottom"):
                    raise QueryError(f"{argument.name}() within {name}() is not supported here")
                self._call(argument)
            return
        if self.by_time:
            raise StatementError(f"aggregate function required inside the call to {name}")
        self._field(name, argument)

    def _average(self, call: Call) -> None:
        self._expect_number(call, 2)
        count = call.arguments[1]
        if not isinstance(count, Integer):
            shown = _GO_LITERALS.get(type(count), "another expression")
            raise StatementError(
                f"second argument for moving_average must be an integer, got {shown}"
            )
        if count.value <= 1:
            raise StatementError(f"moving_average window must be greater than 1, got {count.value}")

    def _distinct(self, arguments: tuple[Expression, ...], nested: bool) -> None:
        if not arguments:
            raise StatementError("distinct function requires at least one argument")
        if len(arguments) != 1:
            raise StatementError("distinct function can only have one argument")
        if not isinstance(arguments[0], Reference):
            raise StatementError("expected field argument in distinct()")
        self.seen.distinct |= not nested
        self.seen.aggregates = True

    def _extremes(self, call: Call) -> None:
        name, arguments = call.name, call.arguments
        if self.seen.extremes:
            raise StatementError(
                f"selector function {self.seen.extremes}() cannot be combined with other functions"
            )
        if len(arguments) < 2:
            raise StatementError(
                f"invalid number of arguments for {name}, expected at least 2, got {len(arguments)}"
            )
        count = arguments[-1]
        if not isinstance(count, Integer):
            raise StatementError(f"expected integer as last argument in {name}()")
        if count.value <= 0:
            raise StatementError(f"limit ({count.value}) in {name} function must be at least 1")
        if self.select.limit and count.value > self.select.limit:
            raise StatementError(
                f"limit ({count.value}) in {name} function can not be larger than the LIMIT "
                f"({self.select.limit}) in the select statement"
            )
        if not isinstance(arguments[0], Reference):
            raise StatementError(f"expected first argument to be a field in {name}()")
        for each in arguments[1:-1]:
            if not isinstance(each, Reference):
                raise StatementError(f"only fields or tags are allowed in {name}()")
            self.seen.plain = True
        self.seen.extremes = name


def grouping(select: Select, now: int, tag_keys: frozenset[str]) -> Grouping:
    """`tag_keys`: what * stands for."""
    length = offset = 0
    tags: list[str] = []
    for dimension in select.dimensions:
        match dimension:
            case Reference(name):
                if name.lower() == "time":
                    raise StatementError("time() is a function and expects at least one argument")
                tags.append(name)
            case Call():
                if length:
                    raise StatementError("multiple time dimensions not allowed")
                length, offset = _interval(dimension, now)
            case Wildcard():
                tags += sorted(tag_keys)
            case Pattern() as pattern:
                tags += sorted(key for key in tag_keys if pattern.found_in(key))
            case _:
                raise StatementError("only time and tag dimensions allowed")
    return Grouping(length, offset, tuple(tags))


def _interval(call: Call, now: int) -> tuple[int, int]:
    if call.name != "time":
        raise StatementError("only time() calls allowed in dimensions")
    match call.arguments:
        case (Duration(length),):
            offset = 0
        case (Duration(length), Duration(shift)) if length:
            offset = abs(shift) % length * (-1 if shift < 0 else 1)
        case (Duration(length), Call("now", ())) if length:
            offset = now % length
        case (Duration(length), _):
            raise StatementError("time dimension offset must be duration or now()")
        case () | (_, _, _, *_):
            raise StatementError("time dimension expected 1 or 2 arguments")
        case _:
            raise StatementError("time dimension must have duration argument")
    return max(length, 0), offset


def duration_text(nanoseconds: int) -> str:
    if not nanoseconds:
        return "0s"
    units = {"w": 604800 * 10**9, "d": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9,
             "s": 10**9, "ms": 10**6, "u": 1000}  # fmt: skip
    for unit, length in units.items():
        if nanoseconds % length == 0:
            return f"{nanoseconds // length}{unit}"
    return f"{nanoseconds}ns"


# --- kinds and wildcards ------------------------------------------------------------------------


def with_kinds(select: Select, fields: Mapping[str, str], tag_keys: frozenset[str]) -> Select:
    """Each reference with its kind, and wildcards as what they stand for. The time itself is no
    column."""
    columns: list[Selected] = []
    tags = {each.name for each in select.dimensions if isinstance(each, Reference)}
    if any(isinstance(each, Wildcard | Pattern) for each in select.dimensions):
        tags = set(tag_keys)
    known = [Reference(name, kind) for name, kind in fields.items()]
    known += [Reference(key, "tag") for key in tag_keys - tags] if fields else []
    known.sort(key=lambda each: (each.name, _order(each.kind)))
    for column in select.columns:
        if column.expression == Reference("time"):
            continue
        typed = _typed(column.expression, fields, tag_keys)
        columns += _expanded(replace(column, expression=typed), known)
    return replace(select, columns=tuple(columns))


def _order(kind: str) -> int:
    return ("float", "integer", "string", "boolean", "", "", "tag").index(kind)


def _typed(
    expression: Expression, fields: Mapping[str, str], tag_keys: frozenset[str]
) -> Expression:
    match expression:
        case Reference(name, kind):
            if kind not in ("", "field", "tag"):
                raise QueryError(f"a cast is not supported here: {name}::{kind}")
            if kind == "tag":
                return expression
            found = fields.get(name, "")
            return Reference(name, found or ("tag" if name in tag_keys and not kind else ""))
        case Call(name, arguments):
            return Call(name, tuple(_typed(each, fields, tag_keys) for each in arguments))
        case Operation(operator, left, right):
            return Operation(
                operator, _typed(left, fields, tag_keys), _typed(right, fields, tag_keys)
            )
        case Parentheses(inner):
            return Parentheses(_typed(inner, fields, tag_keys))
    return expression


def _expanded(column: Selected, known: list[Reference]) -> Iterator[Selected]:
    match column.expression:
        case Wildcard(kind):
            for each in known:
                if not kind or (kind == "tag") == (each.kind == "tag"):
                    yield Selected(each)
        case Pattern() as pattern:
            yield from (Selected(each) for each in known if pattern.found_in(each.name))
        case Call() as call:
            yield from _expanded_call(column, call, known)
        case _:
            yield column


def _expanded_call(column: Selected, call: Call, known: list[Reference]) -> Iterator[Selected]:
    inner = call
    while inner.arguments and isinstance(inner.arguments[0], Call):
        inner = inner.arguments[0]
    argument = inner.arguments[0] if inner.arguments else None
    if not isinstance(argument, Wildcard | Pattern):
        yield column
        return
    if isinstance(argument, Wildcard) and argument.kind == "tag":
        raise StatementError(f"unable to use tag wildcard in {inner.name}()")
    kinds = {"float", "integer"}
    if inner.name in ("count", "first", "last", "distinct", "mode"):
        kinds |= {"string", "boolean"}
    elif inner.name in ("min", "max"):
        kinds |= {"boolean"}
    for each in known:
        matches = not isinstance(argument, Pattern) or argument.found_in(each.name)
        if each.kind in kinds and matches:
            name = f"{column.alias or call.name}_{each.name}"
            yield Selected(_with_argument(call, each), name)


def _with_argument(call: Call, reference: Reference) -> Call:
    """In place of the wildcard."""
    first = call.arguments[0]
    new = _with_argument(first, reference) if isinstance(first, Call) else reference
    return Call(call.name, (new, *call.arguments[1:]))


def call_kind(call: Call) -> str:
    """Of its values; empty: not known."""
    if call.name == "count":
        return "integer"
    if call.name in ("mean", "median", "integral", "stddev", "moving_average") or (
        call.name.endswith("derivative")
    ):
        return "float"
    match call.arguments[0]:
        case Call() as inner:
            return call_kind(inner)
        case Reference(_, kind):
            return kind
    return ""


def check_kinds(expression: Expression) -> str:
    """Returns the kind of its values, if it is known. Raises StatementError if what it computes
    with does not fit together."""
    match expression:
        case Reference(_, kind):
            return kind
        case Call() as call:
            for argument in call.arguments:
                check_kinds(argument)
            return call_kind(call)
        case Parentheses(inner):
            return check_kinds(inner)
        case Operation(operator, left, right):
            kinds = check_kinds(left), check_kinds(right)
            if "" in kinds:
                return kinds[0] or kinds[1]
            numbers = all(kind in ("float", "integer") for kind in kinds)
            bits = kinds in (("integer", "integer"), ("boolean", "boolean"))
            if bits if operator in "&|^" else numbers:
                return "float" if "float" in kinds else kinds[0]
            raise StatementError(
                f"type error: {shown_as(expression)}: incompatible types: {kinds[0]} and {kinds[1]}"
            )
    return _LITERAL_KINDS.get(type(expression), "")


_LITERAL_KINDS: dict[type, str] = {
    Float: "float",
    Integer: "integer",
    Text: "string",
    Boolean: "boolean",
}


def shown_as(expression: Expression) -> str:
    """As InfluxQL."""
    match expression:
        case Reference(name, kind):
            return f"{_quoted(name)}::{kind}" if kind else _quoted(name)
        case Call(name, arguments):
            return f"{name}({', '.join(shown_as(each) for each in arguments)})"
        case Parentheses(inner):
            return f"({shown_as(inner)})"
        case Operation(operator, left, right):
            return f"{shown_as(left)} {operator} {shown_as(right)}"
        case Float(value):
            return f"{value:.3f}"
        case Integer(value):
            return str(value)
        case Duration(nanoseconds):
            return duration_text(nanoseconds)
        case Text(value):
            return f"'{value}'"
    return str(getattr(expression, "value", "*")).lower()


def _quoted(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and name.upper() not in KEYWORDS
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return name if plain else f'"{escaped}"'


# --- names --------------------------------------------------------------------------------------


def time_name(select: Select) -> str:
    """`SELECT time AS "at", ...` changes it."""
    aliases = [each.alias for each in select.columns if each.expression == Reference("time")]
    return next((each for each in reversed(aliases) if each), "time")


def names(columns: list[Selected], time: str) -> list[str]:
    """Of all columns, the time first. None is there twice."""
    found = [each.alias for each in columns]
    used = {alias: 1 for alias in found if alias}
    for index, column in enumerate(columns):
        if found[index]:
            continue
        name = _name(column.expression)
        count = used.get(name)
        if count is not None:
            base = name
            while f"{base}_{count}" in used:
                count += 1
            used[base] = count + 1
            name = f"{base}_{count}"
        used[name] = used.get(name, 0) + 1
        found[index] = name
    return [time, *found]


def shown(select: Select) -> list[Selected]:
    """Also the tags and fields that top and bottom name."""
    found: list[Selected] = []
    for column in select.columns:
        if column.expression == Reference("time"):
            continue
        found.append(column)
        match column.expression:
            case Call("top" | "bottom", arguments):
                found += [Selected(each) for each in arguments[1:] if isinstance(each, Reference)]
    return found


def _name(expression: Expression) -> str:
    match expression:
        case Call(name, _) | Reference(name):
            return name
        case Parentheses(inner):
            return _name(inner)
        case Operation():
            return "_".join(_names_within(expression))
    return ""


def _names_within(expression: Expression) -> Iterator[str]:
    match expression:
        case Call(name, _) | Reference(name):
            yield name
        case Parentheses(inner):
            yield from _names_within(inner)
        case Operation(_, left, right):
            yield from _names_within(left)
            yield from _names_within(right)
