"""Evaluates expressions of workflows: arithmetic, comparison, `&& || !`, `asInt` and `matches`.

As in Argo, a word without quotes that is no name is a text: `heads == tails` compares texts. Pure,
and bounded: no loops, no attributes, no calls but those below.

A tag like `{{outputs:train/loss}}` stands for a value that is known only when a step starts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Dict, Tuple, Union

Value = Union[float, int, bool, str]
TOKENS_MAX = 1000
DEPTH_MAX = 50
TEXT_MAX = 10_000

TAG = re.compile(r"\{\{outputs:[^{}]*\}\}")
_TOKEN = re.compile(
    r"""\s*(?:(?P<tag>\{\{outputs:[^{}]*\}\})
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])
    |(?P<text>'[^']*'|"[^"]*")
    |(?P<word>[A-Za-z_][\w-]*(?:\.[\w-]+)*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|=~|!~|[-+*/%<>!(),]))""",
    re.VERBOSE | re.ASCII,
)
_LEVELS: Tuple[Tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!=", "<=", ">=", "<", ">", "=~", "!~", "matches"),
    ("+", "-"),
    ("*", "/", "%"),
)
_ORDER: Dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SUMS: Dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
}


class ExpressionError(ValueError):
    """One line: what cannot be evaluated."""


class NotKnownYet(ExpressionError):
    """It needs what another step will give."""


def evaluate(
    text: str,
    names: Mapping[str, str] | None = None,
    later: Callable[[str], str] | None = None,
) -> Value:
    """`names`: the values of names; without them, each word is a text. `later`: the value of a
    tag."""
    return _Evaluation(text, names or {}, later).result()


def holds(text: str, later: Callable[[str], str] | None = None) -> bool:
    value = evaluate(text, later=later)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ExpressionError(f"{text!r} is {value!r}, and must be true or false")
    return value


@dataclass
class _Evaluation:
    text: str
    names: Mapping[str, str]
    later: Callable[[str], str] | None = None
    tokens: list[tuple[str, str]] | None = None
    at: int = 0
    depth: int = 0

    def result(self) -> Value:
        self.tokens = self._split()
        value = self._level(0)
        if self._peek()[1]:
            raise ExpressionError(f"{self.text!r}: {self._peek()[1]!r} is not expected there")
        return value

    def _split(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        at, text = 0, self.text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or len(found) == TOKENS_MAX or len(text) > TEXT_MAX:
                near = text[at : at + 20].strip()
                raise ExpressionError(f"{self.text[:60]!r}: cannot be read at {near!r}")
            found.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()
        return [*found, ("end", "")]

    def _peek(self) -> tuple[str, str]:
        assert self.tokens is not None
        return self.tokens[self.at]

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self.at += token[0] != "end"
        return token

    def _level(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._single()
        left = self._level(level + 1)
        while self._peek()[0] in ("sign", "word") and self._peek()[1] in _LEVELS[level]:
            sign = self._next()[1]
            left = self._both(sign, left, self._level(level + 1))
        return left

    def _single(self) -> Value:
        kind, token = self._next()
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise ExpressionError(f"{self.text[:60]!r}: is nested too deeply")
        try:
            if kind == "number":
                return float(token) if re.search(r"[.eE]", token) else int(token[:400])
            if kind == "text":
                return TAG.sub(lambda match: self._tagged(match[0]), token[1:-1])
            if kind == "tag":
                return self._tagged(token)
            if kind == "word":
                return self._word(token)
            if token == "(":
                value = self._level(0)
                self._expect(")")
                return value
            if token == "!":
                return not self._flag(self._single())
            if token == "-":
                return -self._number(self._single())
        finally:
            self.depth -= 1
        what = f"{token!r} is not expected there" if token else "something is missing at its end"
        raise ExpressionError(f"{self.text!r}: {what}")

    def _tagged(self, tag: str) -> str:
        if self.later is None:
            raise NotKnownYet(f"{self.text!r}: {tag} is known only when a step starts")
        return self.later(tag)

    def _word(self, word: str) -> Value:
        if self._peek()[1] == "(":
            self._next()
            value = self._level(0)
            self._expect(")")
            if word == "asInt":
                return int(self._number(value))
            if word == "asFloat":
                return float(self._number(value))
            if word == "string":
                return shown(value)
            raise ExpressionError(f"{self.text!r}: there is no function {word}")
        if word in ("true", "false"):
            return word == "true"
        if word in self.names:
            return TAG.sub(lambda match: self._tagged(match[0]), self.names[word])
        if self.names and "." in word:
            raise ExpressionError(f"{self.text!r}: {word} is not known there")
        return word

    def _expect(self, sign: str) -> None:
        if self._next()[1] != sign:
            raise ExpressionError(f"{self.text!r}: {sign!r} is missing")

    def _both(self, sign: str, left: Value, right: Value) -> Value:
        if sign == "&&":
            return self._flag(left) and self._flag(right)
        if sign == "||":
            return self._flag(left) or self._flag(right)
        if sign in ("==", "!="):
            return _same(left, right) == (sign == "==")
        if sign in ("=~", "!~", "matches"):
            return self._matches(left, right) == (sign != "!~")
        if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
            return shown(left) + shown(right)
        a, b = self._number(left), self._number(right)
        if sign in _ORDER:
            return _ORDER[sign](a, b)
        try:
            if sign in _SUMS:
                return _SUMS[sign](a, b)
            return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b
        except (ZeroDivisionError, OverflowError) as error:
            what = "division by zero" if isinstance(error, ZeroDivisionError) else "too large"
            raise ExpressionError(f"{self.text!r}: {what}") from None

    def _matches(self, text: Value, pattern: Value) -> bool:
        try:
            return re.search(shown(pattern), shown(text)) is not None
        except re.error as error:
            raise ExpressionError(f"{self.text!r}: {pattern!r} is no pattern: {error}") from None

    def _number(self, value: Value) -> float | int:
        if isinstance(value, str):
            try:
                return int(value[:400])
            except ValueError:
                try:
                    return float(value)
                except ValueError:
                    pass
        if isinstance(value, (bool, str)):
            raise ExpressionError(f"{self.text!r}: {value!r} is not a number")
        return value

    def _flag(self, value: Value) -> bool:
        if isinstance(value, str) and value in ("true", "false"):
            return value == "true"
        if not isinstance(value, bool):
            raise ExpressionError(f"{self.text!r}: {value!r} is neither true nor false")
        return value


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, str) != isinstance(right, str):
        return shown(left) == shown(right)
    return left == right


def shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
