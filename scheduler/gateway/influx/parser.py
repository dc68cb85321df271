"""InfluxQL to statements: recursive descent over the part that is supported. What is not is refused
by its name and its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from zoneinfo import ZoneInfo

from scheduler.gateway.influx import patterns
from scheduler.gateway.influx.lexer import LexedToken, Lexer
from scheduler.gateway.influx.syntax import (
    Boolean,
    Call,
    Duration,
    Expression,
    Float,
    FromClause,
    Integer,
    Operation,
    Parentheses,
    QueryError,
    Reference,
    Select,
    Selected,
    Show,
    Statement,
    Text,
    Wildcard,
)

QUERY_MAX = 100_000  # characters
STATEMENTS_MAX = 100
DEPTH_MAX = 100
_INT_MAX = 2**63 - 1
_PRECEDENCE = {
    **dict.fromkeys(("OR",), 1),
    **dict.fromkeys(("AND",), 2),
    **dict.fromkeys(("=", "!=", "=~", "!~", "<", "<=", ">", ">="), 3),
    **dict.fromkeys(("+", "-", "|", "^"), 4),
    **dict.fromkeys(("*", "/", "%", "&"), 5),
}
_COMPARING = ("=", "!=", "=~", "!~", "<", "<=", ">", ">=", "AND", "OR")
_UNITS = {
    "ns": 1,
    "u": 1000,
    "µ": 1000,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
_KINDS = ("float", "integer", "string", "boolean")
_STATEMENTS = (
    *("SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN"),
    *("GRANT", "REVOKE", "ALTER", "SET", "KILL"),
)
Found = TypeVar("Found")


def parse(query: str) -> list[Statement]:
    """Raises QueryError."""
    if len(query) > QUERY_MAX:
        raise QueryError(f"a query of more than {QUERY_MAX} characters")
    try:
        return _Parser(query).statements()
    except RecursionError:
        raise QueryError("a query with too many parentheses") from None


class _Parser:
    def __init__(self, query: str) -> None:
        self._lexer = Lexer(query)
        self._at = 0
        self._depth = 0

    # --- tokens ---------------------------------------------------------------------------------

    def _peek(self) -> LexedToken:
        return self._lexer.token(self._lexer.after_space(self._at))

    def _next(self) -> LexedToken:
        token = self._peek()
        self._at = token.end
        return token

    def _take(self, kind: str) -> bool:
        if self._peek().kind != kind:
            return False
        self._next()
        return True

    def _expect(self, *kinds: str) -> LexedToken:
        token = self._next()
        if token.kind not in kinds:
            raise self._unexpected(token, *kinds)
        return token

    def _unexpected(self, token: LexedToken, *expected: str) -> QueryError:
        words = {"name": "identifier", "text": "string"}
        wanted = ", ".join(words.get(each, each) for each in expected)
        return self._lexer.error(f"found {token.shown}, expected {wanted}", token.start)

    def _unsupported(self, what: str, token: LexedToken) -> QueryError:
        return self._lexer.error(f"{what} is not supported here", token.start)

    def _name(self) -> str:
        return self._expect("name").text

    def _pattern(self) -> patterns.Pattern | None:
        """The regular expression that follows, if one does."""
        at = self._lexer.after_space(self._at)
        if self._lexer.source[at : at + 1] != "/":
            return None
        source, self._at = self._lexer.pattern(at)
        try:
            return patterns.compiled(source)
        except patterns.PatternError as error:
            raise self._lexer.error(f"error parsing regexp: {error}", at) from None

    # --- statements -----------------------------------------------------------------------------

    def statements(self) -> list[Statement]:
        found: list[Statement] = []
        separated = True
        while (token := self._peek()).kind != "end":
            if token.kind == ";":
                self._next()
                separated = True
                continue
            if not separated:
                raise self._unexpected(token, ";")
            found.append(self._statement())
            separated = False
            if len(found) > STATEMENTS_MAX:
                raise QueryError(f"more than {STATEMENTS_MAX} statements")
        return found

    def _statement(self) -> Statement:
        token = self._next()
        if token.kind == "SELECT":
            return self._select()
        if token.kind == "SHOW":
            return self._show()
        if token.kind == "CREATE" and self._peek().kind == "DATABASE":
            self._next()
            return self._create()
        if token.kind in _STATEMENTS:
            raise self._unsupported(token.kind, token)
        raise self._unexpected(token, *_STATEMENTS)

    def _create(self) -> Show:
        """Every database is there already: what is written to any is kept."""
        name = self._name()
        if self._peek().kind == "WITH":
            raise self._unsupported("CREATE DATABASE ... WITH", self._peek())
        return Show("created", name)

    def _select(self) -> Select:
        columns = self._list(self._column)
        if self._peek().kind == "INTO":
            raise self._unsupported("INTO", self._peek())
        self._expect("FROM")
        sources = self._list(self._source)
        condition = self._condition()
        dimensions = self._dimensions()
        fill, fill_value = self._fill()
        ascending = self._ascending()
        limit, offset = self._limits()
        series_limit, series_offset = self._number("SLIMIT"), self._number("SOFFSET")
        return Select(
            tuple(columns),
            tuple(sources),
            condition,
            tuple(dimensions),
            fill,
            fill_value,
            ascending,
            limit,
            offset,
            series_limit,
            series_offset,
            self._zone(),
        )

    def _list(self, part: Callable[[], Found]) -> list[Found]:
        found = [part()]
        while self._take(","):
            found.append(part())
        return found

    def _column(self) -> Selected:
        token = self._peek()
        expression = self._pattern() or self._expression()
        if bad := _comparison(expression):
            raise self._lexer.error(
                f"invalid operator {bad} in SELECT clause: it is intended for WHERE clause",
                token.start,
            )
        return Selected(expression, self._name() if self._take("AS") else "")

    def _source(self) -> FromClause:
        """`measurement`, `policy.measurement`, `database.policy.measurement`; there is one database
        with one policy, so these do not matter."""
        if pattern := self._pattern():
            return FromClause(pattern=pattern)
        token = self._peek()
        if token.kind == "(":
            raise self._unsupported("a subquery", token)
        names = [self._name()]
        while self._lexer.source.startswith(".", self._at):
            self._at += 1
            following = self._lexer.source[self._at : self._at + 1]
            if following == "/":
                return FromClause(pattern=self._pattern())
            names.append("" if following == "." else self._name())
        if len(names) > 3:
            raise self._lexer.error("too many segments in the name of a measurement", token.start)
        return FromClause(names[-1])

    def _condition(self) -> Expression | None:
        return self._expression() if self._take("WHERE") else None

    def _dimensions(self) -> list[Expression]:
        if not self._take("GROUP"):
            return []
        self._expect("BY")
        return self._list(lambda: self._pattern() or self._expression())

    def _fill(self) -> tuple[str, float | int | None]:
        token = self._peek()
        if token.kind != "name" or token.text.lower() != "fill":
            return "null", None
        call = self._expression()
        if not isinstance(call, Call):
            raise QueryError("fill must be a function call")
        if len(call.arguments) != 1:
            raise QueryError("fill requires an argument, e.g.: 0, null, none, previous, linear")
        match call.arguments[0]:
            case Reference(("null" | "none" | "previous" | "linear") as how):
                return how, None
            case Integer(value) | Float(value):
                return "number", value
        raise QueryError("expected number argument in fill()")

    def _ascending(self) -> bool:
        if not self._take("ORDER"):
            return True
        self._expect("BY")
        token = self._next()
        if token.kind in ("ASC", "DESC"):
            return token.kind == "ASC"
        if token.kind != "name":
            raise self._unexpected(token, "name", "ASC", "DESC")
        direction = self._next() if self._peek().kind in ("ASC", "DESC") else None
        if token.text != "time" or self._peek().kind == ",":
            raise QueryError("only ORDER BY time supported at this time")
        return direction is None or direction.kind == "ASC"

    def _number(self, keyword: str) -> int:
        if not self._take(keyword):
            return 0
        token = self._expect("integer")
        return min(int(token.text), _INT_MAX)

    def _zone(self) -> ZoneInfo | None:
        token = self._peek()
        if token.kind != "name" or token.text.lower() != "tz":
            return None
        call = self._expression()
        if not isinstance(call, Call):
            raise QueryError("tz must be a function call")
        if len(call.arguments) != 1:
            raise QueryError("tz requires exactly one argument")
        (name,) = call.arguments
        if not isinstance(name, Text):
            raise QueryError("expected string argument in tz()")
        try:
            return ZoneInfo(name.value)
        except (OSError, ValueError, KeyError):
            raise QueryError(f"unable to find time zone {name.value}") from None

    # --- SHOW -----------------------------------------------------------------------------------

    def _show(self) -> Show:
        token = self._next()
        match token.kind, self._peek().kind:
            case "DATABASES", _:
                return Show("databases")
            case "RETENTION", "POLICIES":
                self._next()
                return Show("policies", self._on())
            case "MEASUREMENTS", _:
                return self._show_measurements()
            case "FIELD", "KEYS":
                self._next()
                database, sources = self._on(), self._from()
                self._unsorted()
                return Show("fields", database, sources, None, None, *self._limits())
            case "TAG", "KEYS":
                self._next()
                database, sources, condition = self._on(), self._from(), self._condition()
                self._unsorted()
                shown = Show("tag keys", database, sources, condition, None, *self._limits())
                for keyword in ("SLIMIT", "SOFFSET"):
                    self._number(keyword)  # InfluxDB reads them, too, and does nothing with them
                return shown
            case "TAG", "VALUES":
                self._next()
                return self._show_values()
        following = f" {self._peek().kind}" if self._peek().kind.isupper() else ""
        raise self._unsupported(f"SHOW {token.shown.upper()}{following}", token)

    def _show_measurements(self) -> Show:
        database = self._on()
        sources: tuple[FromClause, ...] = ()
        if self._take("WITH"):
            self._expect("MEASUREMENT")
            self._expect("=", "=~")
            sources = (self._source(),)
        condition = self._condition()
        self._unsorted()
        return Show("measurements", database, sources, condition, None, *self._limits())

    def _show_values(self) -> Show:
        database, sources = self._on(), self._from()
        self._expect("WITH")
        self._expect("KEY")
        key = self._key()
        condition = self._condition()
        self._unsorted()
        return Show("tag values", database, sources, condition, key, *self._limits())

    def _key(self) -> Expression:
        token = self._expect("IN", "=", "!=", "=~", "!~")
        asked = Reference("_tagKey")
        if token.kind == "IN":
            self._expect("(")
            keys = [Operation("=", asked, Text(each)) for each in self._list(self._name)]
            self._expect(")")
            found: Expression = keys[0]
            for each in keys[1:]:
                found = Operation("OR", found, each)
            return found
        if token.kind in ("=", "!="):
            return Operation(token.kind, asked, Text(self._name()))
        pattern = self._pattern()
        if pattern is None:
            raise self._unexpected(self._next(), "regex")
        return Operation(token.kind, asked, pattern)

    def _on(self) -> str:
        return self._name() if self._take("ON") else ""

    def _from(self) -> tuple[FromClause, ...]:
        return tuple(self._list(self._source)) if self._take("FROM") else ()

    def _unsorted(self) -> None:
        if self._peek().kind == "ORDER":
            raise self._unsupported("ORDER BY in SHOW", self._peek())

    def _limits(self) -> tuple[int, int]:
        return self._number("LIMIT"), self._number("OFFSET")

    # --- expressions ----------------------------------------------------------------------------

    def _expression(self, above: int = 0) -> Expression:
        """With operators that bind more than those `above`."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise QueryError(f"more than {DEPTH_MAX} parentheses")
        left = self._operand()
        while True:
            operator = self._peek().kind
            precedence = _PRECEDENCE.get(operator, 0)
            if precedence <= above:
                self._depth -= 1
                return left
            self._next()
            if operator in ("=~", "!~"):
                right: Expression | None = self._pattern()
                if right is None:
                    raise self._unexpected(self._next(), "regex")
            else:
                right = self._expression(precedence)
            left = Operation(operator, left, right)

    def _operand(self) -> Expression:
        token = self._next()
        match token.kind:
            case "(":
                inner = self._expression()
                self._expect(")")
                return Parentheses(inner)
            case "name" | "DISTINCT":
                return self._named(token)
            case "text":
                return Text(token.text)
            case "number":
                return Float(float(token.text))
            case "integer":
                if int(token.text) > _INT_MAX:
                    raise self._unsupported("an integer of more than 63 bits", token)
                return Integer(int(token.text))
            case "duration":
                return Duration(self._duration(token))
            case "TRUE" | "FALSE":
                return Boolean(token.kind == "TRUE")
            case "*":
                return self._wildcard()
            case "+" | "-":
                return self._signed(token)
        raise self._unexpected(token, "name", "text", "number", "bool")

    def _named(self, token: LexedToken) -> Expression:
        if self._lexer.source.startswith("(", self._at):
            self._at += 1
            name = token.text if token.kind == "name" else "distinct"
            return self._call(name.lower())
        if token.kind == "DISTINCT":
            return Call("distinct", (Reference(self._name()),))
        name = token.text
        while self._lexer.source.startswith(".", self._at):
            self._at += 1
            name += f".{self._name()}"
        kind = self._kind((*_KINDS, "field", "tag"))
        return Reference(name, kind)

    def _kind(self, known: tuple[str, ...]) -> str:
        if not self._lexer.source.startswith("::", self._at):
            return ""
        self._at += 2
        token = self._next()
        kind = token.text.lower() or token.kind.lower()
        if kind not in known:
            raise self._unexpected(token, *known)
        return kind

    def _call(self, name: str) -> Call:
        if self._take(")"):
            return Call(name, ())
        arguments = self._list(lambda: self._pattern() or self._expression())
        self._expect(")")
        return Call(name, tuple(arguments))

    def _wildcard(self) -> Wildcard:
        return Wildcard(self._kind(("field", "tag")))

    def _signed(self, token: LexedToken) -> Expression:
        if self._peek().kind not in ("number", "integer", "duration", "(", "name"):
            raise self._unexpected(self._next(), "name", "number", "duration", "(")
        sign = -1 if token.kind == "-" else 1
        match self._operand():
            case Float(value):
                return Float(sign * value)
            case Integer(value):
                return Integer(sign * value)
            case Duration(nanoseconds):
                return Duration(sign * nanoseconds)
            case other:
                return Operation("*", Integer(sign), other)

    def _duration(self, token: LexedToken) -> int:
        total, left = 0, token.text
        while left:
            digits = left[: len(left) - len(left.lstrip("0123456789"))]
            rest = left[len(digits) :]
            unit = next((each for each in ("ns", "ms") if rest.startswith(each)), rest[:1])
            if not digits or unit not in _UNITS:
                raise QueryError("invalid duration")
            total += int(digits) * _UNITS[unit]
            left = rest[len(unit) :]
        if total > _INT_MAX:
            raise QueryError(f"overflowed duration {token.text}: choose a smaller duration or INF")
        return total


def _comparison(expression: Expression) -> str:
    """The first operator that cannot be selected. Empty: there is none."""
    match expression:
        case Operation(operator, left, right):
            if operator in _COMPARING:
                return operator
            return _comparison(left) or _comparison(right)
        case Call(_, arguments):
            return next((bad for each in arguments if (bad := _comparison(each))), "")
        case Parentheses(inner):
            return _comparison(inner)
    return ""
