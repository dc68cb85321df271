"""An entry: what a training logged, as one line of JSON in a spool. The format, and its limits.

The relay writes entries, the gateway reads them, and both refuse the same for the same reason. What
is refused is refused alone: a point in an entry, an entry in a spool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

LINE_BYTES_MAX = 2**20
NAME_MAX = 250  # characters of a measurement, a field, a key
TEXT_MAX = 8192  # of the value of a field, parameter or tag
DESCRIPTION_MAX = 2**16
TAGS_MAX = 32  # of a point
PAIRS_MAX = 1000  # of an entry
PATH_MAX = 1000
PRECISIONS = ("ns", "us", "ms", "s")

_INT64 = 2**63
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character: no file can hold it
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)

Value = float | int | bool | str
Tags = tuple[tuple[str, str], ...]  # sorted


class BadEntry(ValueError):
    """The message is the reason, for the owner of the training: one line."""


class LoggedPoint(NamedTuple):
    measurement: str
    tags: Tags
    field: str
    at_ns: int
    step: int | None
    value: Value


class PointsEntry(NamedTuple):
    points: list[LoggedPoint]
    refused: list[str]  # a reason for each point that was


class LinesEntry(NamedTuple):
    lines: str  # line protocol
    precision: str
    at_ns: int  # of a line without a time


class PairsEntry(NamedTuple):
    kind: str  # "params" or "tags"
    pairs: dict[str, str]


class DescriptionEntry(NamedTuple):
    text: str


class ArtifactEntry(NamedTuple):
    path: str
    size: int
    sha256: str


class LossEntry(NamedTuple):
    """What the relay had to drop."""

    entries: int
    why: str


Entry = PointsEntry | LinesEntry | PairsEntry | DescriptionEntry | ArtifactEntry | LossEntry


def parse(line: bytes) -> Entry | None:
    """None: nothing that is kept. Raises BadEntry."""
    if len(line) > LINE_BYTES_MAX:
        raise BadEntry(f"an entry of {len(line)} bytes: {LINE_BYTES_MAX} at most")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise BadEntry("an entry that is not JSON") from None
    if not isinstance(record, dict) or not record:
        raise BadEntry("an entry that is not a JSON object")
    for key, read in _KINDS.items():
        if key in record:
            return read(record)
    raise BadEntry(f"an entry of an unknown kind: {shown(next(iter(record)))}")


def shown(text: str, most: int = 60) -> str:
    """A name as a reason may show it."""
    return ascii(text if len(text) <= most else f"{text[:most]}...")


# --- each kind ----------------------------------------------------------------------------------


def _points(record: Mapping[str, Any]) -> PointsEntry:
    listed = record["points"]
    if not isinstance(listed, list):
        raise BadEntry("points that are not a list")
    entry = PointsEntry([], [])
    for each in listed:
        try:
            entry.points.append(_point(each))
        except BadEntry as error:
            entry.refused.append(str(error))
    return entry


def _point(listed: Any) -> LoggedPoint:
    if not (isinstance(listed, list) and len(listed) == 6):
        raise BadEntry("a point that is not [measurement, tags, field, time, step, value]")
    measurement, tags, field, at_ns, step, value = listed
    check_name(measurement, "measurement")
    check_name(field, "field")
    if type(at_ns) is not int or not -_INT64 <= at_ns < _INT64:
        raise BadEntry(f"field {shown(field)}: its time is no whole number of nanoseconds")
    if step is not None and (type(step) is not int or not 0 <= step < _INT64):
        raise BadEntry(f"field {shown(field)}: its step is no whole number from 0 on")
    check_value(field, value)
    return LoggedPoint(measurement, _tags(tags), field, at_ns, step, value)


def _tags(tags: Any) -> Tags:
    if not tags and isinstance(tags, dict):
        return ()
    pairs = _pairs("tag", tags, TAGS_MAX)
    for key, value in pairs.items():
        if _CONTROL.search(value):
            raise BadEntry(f"tag {shown(key)}: its value has a control character")
    return tuple(sorted(pairs.items()))


def _lines(record: Mapping[str, Any]) -> LinesEntry:
    lines, precision, at_ns = record["lines"], record.get("precision", "ns"), record.get("at")
    if not isinstance(lines, str):
        raise BadEntry("lines that are not a text")
    if precision not in PRECISIONS:
        raise BadEntry("lines with a precision that is not one of ns, us, ms, s")
    if type(at_ns) is not int or not 0 <= at_ns < _INT64:
        raise BadEntry("lines without the time of their arrival")
    return LinesEntry(lines, precision, at_ns)


def _params(record: Mapping[str, Any]) -> PairsEntry:
    return PairsEntry("params", _pairs("param", record["params"], PAIRS_MAX))


def _run_tags(record: Mapping[str, Any]) -> PairsEntry:
    return PairsEntry("tags", _pairs("tag", record["tags"], PAIRS_MAX))


def _pairs(kind: str, pairs: Any, most: int) -> dict[str, str]:
    if not isinstance(pairs, dict):
        raise BadEntry(f"{kind}s that are not an object")
    if len(pairs) > most:
        raise BadEntry(f"{len(pairs)} {kind}s at once: {most} at most")
    found = {}
    for key, value in pairs.items():
        check_name(key, kind)
        text = value if isinstance(value, str) else json.dumps(value)
        _check_text(text, f"{kind} {shown(key)}", TEXT_MAX)
        found[key] = text
    return found


def _description(record: Mapping[str, Any]) -> DescriptionEntry:
    text = record["describes"]
    if not isinstance(text, str):
        raise BadEntry("a description that is not a text")
    _check_text(text, "the description", DESCRIPTION_MAX)
    return DescriptionEntry(text)


def _artifact(record: Mapping[str, Any]) -> ArtifactEntry:
    path, size, sha256 = record["artifact"], record.get("size"), record.get("sha256")
    check_path(path)
    if type(size) is not int or not 0 <= size < _INT64:
        raise BadEntry(f"artifact {shown(path)}: its size is no whole number")
    if not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise BadEntry(f"artifact {shown(path)}: its sha256 is not 64 hexadecimal digits")
    return ArtifactEntry(path, size, sha256)


def _loss(record: Mapping[str, Any]) -> LossEntry:
    entries, why = record["lost"], record.get("why", "")
    if type(entries) is not int or not 0 < entries < _INT64 or not isinstance(why, str):
        raise BadEntry("a loss without a number and a reason")
    return LossEntry(entries, _CONTROL.sub("?", why[:NAME_MAX]))


def _not_kept(record: Mapping[str, Any]) -> None:
    return None


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Entry | None]] = {
    "points": _points,
    "lines": _lines,
    "params": _params,
    "tags": _run_tags,
    "describes": _description,
    "artifact": _artifact,
    "lost": _loss,
    "dataset": _not_kept,
}


# --- limits that hold for entries and for what is told in another way ---------------------------


def check_name(name: Any, kind: str) -> None:
    """`kind`: what it names, for the reason. Raises BadEntry."""
    wrong = _wrong_name(name) if isinstance(name, str) else "is not a text"
    if wrong:
        raise BadEntry(f"{kind} {shown(str(name))}: {wrong}")


@lru_cache(4096)
def _wrong_name(name: str) -> str:
    if not name:
        return "is empty"
    if len(name) > NAME_MAX:
        return f"has {len(name)} characters: {NAME_MAX} at most"
    return "has a control character" if _CONTROL.search(name) else ""


def check_value(field: str, value: Any) -> None:
    """Raises BadEntry."""
    kind = type(value)
    if kind is float or kind is bool:
        return
    if kind is int:
        if not -_INT64 <= value < _INT64:
            raise BadEntry(f"field {shown(field)}: a whole number of more than 64 bits")
    elif kind is str:
        _check_text(value, f"field {shown(field)}", TEXT_MAX)
    else:
        raise BadEntry(f"field {shown(field)}: its value is no number, boolean or text")


def check_path(path: Any) -> None:
    """Of an artifact: relative, and within the folder of its run. Raises BadEntry."""
    if not isinstance(path, str) or not 0 < len(path) <= PATH_MAX or _CONTROL.search(path):
        raise BadEntry(f"artifact {shown(str(path))}: is not a path of 1 to {PATH_MAX} characters")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise BadEntry(f"artifact {shown(path)}: is not a path below the run")


def _check_text(text: str, what: str, most: int) -> None:
    if len(text) > most:
        raise BadEntry(f"{what}: {len(text)} characters, {most} at most")
    if _SURROGATE.search(text):
        raise BadEntry(f"{what}: is not Unicode")
