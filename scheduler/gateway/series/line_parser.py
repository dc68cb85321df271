"""InfluxDB's line protocol, as clients really write it: a wrong line is refused alone. Pure.

Clients exist that leave quotes within a text unescaped, and that write `nan`: so a text ends at the
first quote after which a line can go on, and NaN and infinities are values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from scheduler.relay.entries import (
    TAGS_MAX,
    BadEntry,
    LinesEntry,
    LoggedPoint,
    Tags,
    Value,
    check_name,
    check_value,
    shown,
)

TEXT_LINES_MAX = 100  # of a text in quotes

_NANOSECONDS: Mapping[str, int] = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}
_MEASUREMENT = re.compile(r"(?:\\.|[^, \\])+")
_TAG = re.compile(r",((?:\\.|[^,= \\])+)=((?:\\.|[^,= \\])+)")
_TEXT_END = r'"(?=,(?:\\.|[^,= \\])+=| +-?[0-9]+ *$| *$)'
_FIELD = re.compile(
    r'((?:\\.|[^,= \\])+)=(?:"((?:\\.|[^\\])*?)' + _TEXT_END + r'|([^,\s"]+))', re.DOTALL
)
_TIME = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_ESCAPED = re.compile(r"\\([,= ])")
_ESCAPED_TEXT = re.compile(r'\\(["\\])')
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}[iu]", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_WORDS: Mapping[str, Value] = {
    **dict.fromkeys(("t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("f", "F", "false", "False", "FALSE"), False),
    **{sign + word: math.nan for sign in ("", "+", "-") for word in ("nan", "NaN", "NAN")},
    **{
        sign + word: math.inf if sign != "-" else -math.inf
        for sign in ("", "+", "-")
        for word in ("inf", "Inf", "INF", "infinity", "Infinity")
    },
}


def points_of(entry: LinesEntry) -> Iterator[LoggedPoint | BadEntry]:
    """Yields the points of each line, or why it was refused. Lines without a time arrived one after
    the other, a nanosecond apart, so that none takes the place of another."""
    scale = _NANOSECONDS[entry.precision]
    for number, line in enumerate(_lines(entry.lines)):
        try:
            yield from _points(line, scale, entry.at_ns + number)
        except BadEntry as error:
            yield error


def _lines(text: str) -> Iterator[str]:
    """Without comments. A text in quotes may go on in the next line: a line in which one is open
    takes the following, up to the one that closes it, if that is near."""
    lines = [line.rstrip("\r ") for line in text.split("\n")]
    number = 0
    while number < len(lines):
        line = lines[number].lstrip(" ")
        number += 1
        if not line or line.startswith("#"):
            continue
        if '="' in line and _has_odd_quotes(line):
            for end in range(number, min(len(lines), number + TEXT_LINES_MAX)):
                if _has_odd_quotes(lines[end]):
                    line, number = "\n".join([line, *lines[number : end + 1]]), end + 1
                    break
        yield line


def _has_odd_quotes(line: str) -> bool:
    return line.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 1


def _points(line: str, scale: int, now_ns: int) -> list[LoggedPoint]:
    measurement, tags, rest = _head(line)
    fields: list[tuple[str, Value]] = []
    while True:
        match = _FIELD.match(rest)
        if match is None:
            raise BadEntry(f"line protocol: no field at {shown(rest, 30)}")
        field = _ESCAPED.sub(r"\1", match[1])
        check_name(field, "field")
        value = _text(match[2]) if match[2] is not None else _value(field, match[3])
        check_value(field, value)
        fields.append((field, value))
        rest = rest[match.end() :]
        if not rest.startswith(","):
            break
        rest = rest[1:]
    at_ns = _time(rest.strip(" "), scale, now_ns)
    return [LoggedPoint(measurement, tags, field, at_ns, None, value) for field, value in fields]


def _head(line: str) -> tuple[str, Tags, str]:
    match = _MEASUREMENT.match(line)
    if match is None:
        raise BadEntry(f"line protocol: no measurement at {shown(line, 30)}")
    measurement = _ESCAPED.sub(r"\1", match[0])
    check_name(measurement, "measurement")
    tags: dict[str, str] = {}
    end = match.end()
    while (tag := _TAG.match(line, end)) is not None:
        key, value = (_ESCAPED.sub(r"\1", part) for part in tag.groups())
        check_name(key, "tag")
        check_name(value, f"tag {shown(key)}")
        tags[key] = value
        end = tag.end()
    if len(tags) > TAGS_MAX:
        raise BadEntry(f"{len(tags)} tags at once: {TAGS_MAX} at most")
    if line[end : end + 1] != " ":
        raise BadEntry(f"line protocol: no tag and no field at {shown(line[end:], 30)}")
    return measurement, tuple(sorted(tags.items())), line[end:].lstrip(" ")


def _text(content: str) -> str:
    return _ESCAPED_TEXT.sub(r"\1", content)


def _value(field: str, text: str) -> Value:
    if _NUMBER.fullmatch(text):
        return float(text)
    if _WHOLE.fullmatch(text):
        return int(text[:-1])
    if text in _WORDS:
        return _WORDS[text]
    raise BadEntry(f"field {shown(field)}: its value is no number, boolean or text in quotes")


def _time(text: str, scale: int, now_ns: int) -> int:
    if not text:
        return now_ns
    if not _TIME.fullmatch(text) or not -(2**63) <= int(text) * scale < 2**63:
        raise BadEntry(f"line protocol: no time at {shown(text, 30)}")
    return int(text) * scale
