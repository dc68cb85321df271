"""Answers as InfluxDB writes them, byte for byte: JSON of Go, times as RFC 3339 or as numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from scheduler.gateway.influx.windows import moment_text

CHUNK_ROWS = 10_000
_EPOCHS = {"u": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_ESCAPED = re.compile("[<>&\u2028\u2029]")


@dataclass(slots=True)
class SeriesAnswer:
    """`timed`: the first value of a row is a moment, in nanoseconds."""

    name: str
    tags: dict[str, str]
    columns: list[str]
    rows: list[list[Any]]
    timed: bool = True
    zone: ZoneInfo | None = None


@dataclass(slots=True)
class StatementResult:
    statement: int
    series: list[SeriesAnswer] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    epoch: str = ""  # empty: RFC 3339
    pretty: bool = False
    chunk_rows: int = 0  # 0: everything at once


def written(results: Sequence[StatementResult], form: Form) -> Iterator[str]:
    if not form.chunk_rows:
        yield _document([_result(each, form) for each in results], form)
        return
    for each in results:
        for chunk in _chunks(each, form):
            yield _document([chunk], form)


def error_text(message: str, pretty: bool = False) -> str:
    return _pretty(f'{{"error":{text(message)}}}', pretty) + "\n"


def _document(results: Sequence[str], form: Form) -> str:
    inside = f'"results":[{",".join(results)}]' if results else '"results":[]'
    return _pretty(f"{{{inside}}}" if results else "{}", form.pretty) + "\n"


def _result(result: StatementResult, form: Form) -> str:
    head = f'{{"statement_id":{result.statement}'
    if result.error:
        return f'{head},"error":{text(result.error)}}}'
    if not result.series:
        return f"{head}}}"
    shown = [
        _series(each, each.rows, form, partial=len(each.rows) > CHUNK_ROWS)
        for each in result.series
    ]
    return f'{head},"series":[{",".join(shown)}]}}'


def _chunks(result: StatementResult, form: Form) -> Iterator[str]:
    if result.error or not result.series:
        yield _result(result, form)
        return
    parts = [
        (each, each.rows[at : at + form.chunk_rows], at + form.chunk_rows < len(each.rows))
        for each in result.series
        for at in range(0, max(len(each.rows), 1), form.chunk_rows)
    ]
    for number, (each, rows, partial) in enumerate(parts, 1):
        more = ',"partial":true' if number < len(parts) else ""
        shown = _series(each, rows, form, partial)
        yield f'{{"statement_id":{result.statement},"series":[{shown}]{more}}}'


def _series(series: SeriesAnswer, rows: list[list[Any]], form: Form, partial: bool) -> str:
    parts = [f'"name":{text(series.name)}'] if series.name else []
    if series.tags:
        tags = ",".join(f"{text(key)}:{text(series.tags[key])}" for key in sorted(series.tags))
        parts.append(f'"tags":{{{tags}}}')
    parts.append(f'"columns":[{",".join(text(each) for each in series.columns)}]')
    if rows:
        parts.append(f'"values":[{",".join(_row(each, series, form) for each in rows)}]')
    if partial:
        parts.append('"partial":true')
    return f"{{{','.join(parts)}}}"


def _row(row: list[Any], series: SeriesAnswer, form: Form) -> str:
    if not series.timed:
        return f"[{','.join(value(each) for each in row)}]"
    time = moment(row[0], series.zone, form.epoch)
    return f"[{time},{','.join([value(each) for each in row[1:]])}]"


def moment(nanoseconds: int, zone: ZoneInfo | None, epoch: str) -> str:
    if not epoch:
        return f'"{moment_text(nanoseconds, zone)}"'
    divisor = _EPOCHS.get(epoch, 1)
    whole = abs(nanoseconds) // divisor  # toward zero, as in Go
    return str(-whole if nanoseconds < 0 else whole)


def value(each: Any) -> str:
    if each is None:
        return "null"
    if each is True or each is False:
        return "true" if each else "false"
    if isinstance(each, float):
        return number(each)
    return text(each) if isinstance(each, str) else str(each)


def number(each: float) -> str:
    """As encoding/json of Go: the shortest digits, with an exponent only if it is large."""
    if not math.isfinite(each):
        return "null"
    shown = repr(each)
    if shown.endswith(".0"):
        return shown[:-2]
    if "e" not in shown:
        return shown
    digits, _, exponent = shown.partition("e")
    power = int(exponent)
    if power < -6 or power >= 21:
        digits = digits.removesuffix(".0")
        return f"{digits}e{'+' if power > 0 else '-'}{abs(power)}"
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    whole, _, fraction = digits.partition(".")
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{whole}{fraction}"
    return f"{sign}{whole}{fraction}{'0' * (power - len(fraction))}"


def text(each: str) -> str:
    """With what HTML could misread as escapes."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], json.dumps(each, ensure_ascii=False))


def _pretty(document: str, wanted: bool) -> str:
    """Indented; numbers stay as they are written."""
    if not wanted:
        return document
    found, depth, quoted, index = [], 0, False, 0
    while index < len(document):
        character = document[index]
        index += 1
        found.append(character)
        if quoted:
            if character == "\\":
                found.append(document[index])
                index += 1
            elif character == '"':
                quoted = False
            continue
        if character == '"':
            quoted = True
        elif character in "[{":
            if document[index] in "]}":
                found.append(document[index])
                index += 1
                continue
            depth += 1
            found.append("\n" + "    " * depth)
        elif character in "]}":
            depth -= 1
            found.insert(len(found) - 1, "\n" + "    " * depth)
        elif character == ",":
            found.append("\n" + "    " * depth)
        elif character == ":":
            found.append(" ")
    return "".join(found)
