"""Expressions over the values of a row, as Go computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scheduler.gateway.influx.syntax import (
    Boolean,
    Expression,
    Float,
    Integer,
    Operation,
    Parentheses,
    Text,
)

_WRAP, _SIGN = 2**64, 2**63


def computed(expression: Expression, places: Mapping[Expression, int], row: list[Any]) -> Any:
    """None: one of the values is missing, or they do not fit together."""
    place = places.get(expression)
    if place is not None:
        return row[place]
    match expression:
        case Float(value) | Integer(value) | Text(value) | Boolean(value):
            return value
        case Parentheses(inner):
            return computed(inner, places, row)
        case Operation(operator, left, right):
            return _operation(operator, computed(left, places, row), computed(right, places, row))
    return None


def _operation(operator: str, left: Any, right: Any) -> Any:
    if isinstance(left, bool) and operator in "&|^":
        other = False if right is None else right
        if not isinstance(other, bool):
            return False
        return {"&": left and other, "|": left or other, "^": left != other}[operator]
    if not (_is_number(left) and _is_number(right)):
        return None
    if isinstance(left, int) and isinstance(right, int):
        return _of_integers(operator, left, right)
    return _of_floats(operator, float(left), float(right))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_floats(operator: str, left: float, right: float) -> float | None:
    try:
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right if right else 0.0
            case "%":
                return math.fmod(left, right) if right else math.nan
    except (OverflowError, ValueError):
        return math.nan
    return None


def _of_integers(operator: str, left: int, right: int) -> int | float | None:
    match operator:
        case "+":
            return _wrapped(left + right)
        case "-":
            return _wrapped(left - right)
        case "*":
            return _wrapped(left * right)
        case "/":
            return float(left) / float(right) if right else 0.0
        case "%":
            return int(math.copysign(1, left)) * (abs(left) % abs(right)) if right else 0
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
    return None


def _wrapped(value: int) -> int:
    return (value + _SIGN) % _WRAP - _SIGN
