"""What a query says: statements and expressions, as values."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from scheduler.gateway.influx.patterns import Pattern

# The first moment and the last that InfluxDB knows. The first is never that of a point.
MIN_TIME, MAX_TIME = -(2**63) + 2, 2**63 - 2


class QueryError(Exception):
    """The whole query is refused: it is wrong, or says what is not supported here."""


class StatementError(Exception):
    """One statement cannot be answered; the message is InfluxDB's. Those before it are answered."""


# --- expressions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reference:
    """A field or a tag. `kind`: float, integer, string, boolean, tag, field, or empty."""

    name: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Float:
    value: float


@dataclass(frozen=True, slots=True)
class Integer:
    value: int


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Boolean:
    value: bool


@dataclass(frozen=True, slots=True)
class Duration:
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Moment:
    nanoseconds: int  # since 1970


@dataclass(frozen=True, slots=True)
class Wildcard:
    kind: str = ""  # field, tag, or empty: both


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Parentheses:
    inner: Expression


Literal = Float | Integer | Text | Boolean | Duration | Moment
Expression = Reference | Literal | Pattern | Wildcard | Call | Operation | Parentheses


# --- statements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FromClause:
    """`name` or `pattern`: of measurements."""

    name: str = ""
    pattern: Pattern | None = None

    def matches(self, measurement: str) -> bool:
        return self.pattern.found_in(measurement) if self.pattern else self.name == measurement


@dataclass(frozen=True, slots=True)
class Selected:
    """What is selected."""

    expression: Expression
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Select:
    columns: tuple[Selected, ...]
    sources: tuple[FromClause, ...]
    condition: Expression | None = None
    dimensions: tuple[Expression, ...] = ()
    fill: str = "null"  # none, number, previous, linear
    fill_value: float | int | None = None
    ascending: bool = True
    limit: int = 0
    offset: int = 0
    series_limit: int = 0
    series_offset: int = 0
    zone: ZoneInfo | None = None


@dataclass(frozen=True, slots=True)
class Show:
    """`what`: databases, policies, measurements, fields, tag keys, tag values, or created."""

    what: str
    on_database: str = ""
    sources: tuple[FromClause, ...] = ()
    condition: Expression | None = None
    key: Expression | None = None  # of tag values: an operation on the reference _tagKey
    limit: int = 0
    offset: int = 0


Statement = Select | Show
