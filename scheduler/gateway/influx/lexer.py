"""InfluxQL as tokens, each with its place. Knows no grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scheduler.gateway.influx.syntax import QueryError

KEYWORDS = frozenset(
    [
        "ALL",
        "ALTER",
        "ANALYZE",
        "AND",
        "ANY",
        "AS",
        "ASC",
        "BEGIN",
        "BY",
        "CARDINALITY",
        "CONTINUOUS",
        "CREATE",
        "DATABASE",
        "DATABASES",
        "DEFAULT",
        "DELETE",
        "DESC",
        "DESTINATIONS",
        "DIAGNOSTICS",
        "DISTINCT",
        "DROP",
        "DURATION",
        "END",
        "EVERY",
        "EXACT",
        "EXPLAIN",
        "FALSE",
        "FIELD",
        "FOR",
        "FROM",
        "GRANT",
        "GRANTS",
        "GROUP",
        "GROUPS",
        "IN",
        "INF",
        "INSERT",
        "INTO",
        "KEY",
        "KEYS",
        "KILL",
        "LIMIT",
        "MEASUREMENT",
        "MEASUREMENTS",
        "NAME",
        "OFFSET",
        "ON",
        "OR",
        "ORDER",
        "PASSWORD",
        "POLICIES",
        "POLICY",
        "PRIVILEGES",
        "QUERIES",
        "QUERY",
        "READ",
        "REPLICATION",
        "RESAMPLE",
        "RETENTION",
        "REVOKE",
        "SELECT",
        "SERIES",
        "SET",
        "SHARD",
        "SHARDS",
        "SHOW",
        "SLIMIT",
        "SOFFSET",
        "STATS",
        "SUBSCRIPTION",
        "SUBSCRIPTIONS",
        "TAG",
        "TO",
        "TRUE",
        "USER",
        "USERS",
        "VALUES",
        "WHERE",
        "WITH",
        "WRITE",
    ]
)
_SPACE = re.compile(r"(?:[ \t\n]|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS = re.compile(r"[0-9]+")
_DURATION = re.compile(r"[0-9]+[A-Za-zµ][A-Za-zµ0-9]*")
_DECIMAL = re.compile(r"[0-9]*\.[0-9]+|[0-9]+\.")
_SIGNS = (
    *("=~", "!~", "!=", "<>", ">=", "<=", "::"),
    *("=", ">", "<", "+", "-", "*", "/", "%", "&", "|", "^", "(", ")", ",", ";", ".", ":"),
)


@dataclass(frozen=True, slots=True)
class LexedToken:
    """`kind`: a keyword or a sign; or name, text, integer, number, duration, end, wrong."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def shown(self) -> str:
        return self.text or ("EOF" if self.kind == "end" else self.kind)


class Lexer:
    def __init__(self, source: str) -> None:
        self.source = source

    def after_space(self, at: int) -> int:
        match = _SPACE.match(self.source, at)
        return match.end() if match else at

    def token(self, at: int) -> LexedToken:
        """The one that begins exactly here."""
        source = self.source
        if at >= len(source):
            return LexedToken("end", "", at, at)
        character = source[at]
        if match := _WORD.match(source, at):
            word = match[0]
            kind = word.upper() if word.upper() in KEYWORDS else "name"
            return LexedToken(kind, "" if kind != "name" else word, at, match.end())
        if character in "\"'":
            return self._quoted(at)
        if match := _DECIMAL.match(source, at):
            return LexedToken("number", match[0], at, match.end())
        for kind, pattern in (("duration", _DURATION), ("integer", _DIGITS)):
            if match := pattern.match(source, at):
                return LexedToken(kind, match[0], at, match.end())
        for sign in _SIGNS:
            if source.startswith(sign, at):
                return LexedToken("!=" if sign == "<>" else sign, "", at, at + len(sign))
        return LexedToken("wrong", character, at, at + 1)

    def _quoted(self, at: int) -> LexedToken:
        """A text, or a name in double quotes."""
        source, quote, found, index = self.source, self.source[at], [], at + 1
        escapes = {"\\": "\\", quote: quote, "n": "\n"}
        while index < len(source) and source[index] not in (quote, "\n"):
            if source[index] == "\\":
                escaped = source[index + 1 : index + 2]
                if escaped not in escapes or not escaped:
                    raise self.error(f"bad escape: \\{escaped}", index)
                found.append(escapes[escaped])
                index += 2
            else:
                found.append(source[index])
                index += 1
        if source[index : index + 1] != quote:
            raise self.error("a quote without an end", at)
        return LexedToken("text" if quote == "'" else "name", "".join(found), at, index + 1)

    def pattern(self, at: int) -> tuple[str, int]:
        """Between slashes, and where it ends; `at` is the first slash."""
        source, found, index = self.source, [], at + 1
        while index < len(source) and source[index] not in "/\n":
            if source[index] == "\\" and source[index + 1 : index + 2] == "/":
                found.append("/")
                index += 2
                continue
            if source[index] == "\\":  # also before another backslash
                found.append(source[index])
                index += 1
            found.append(source[index : index + 1])
            index += 1
        if source[index : index + 1] != "/":
            raise self.error("bad regex", at)
        return "".join(found), index + 1

    def error(self, message: str, at: int) -> QueryError:
        before = self.source[:at]
        line = before.count("\n") + 1
        column = at - (before.rfind("\n") + 1) + 1
        return QueryError(f"{message} at line {line}, char {column}")
