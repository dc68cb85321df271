"""Rows of text tables, read strictly: what is wrong is said with its file and line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler.errors import Rejected

WHOLE_MAX = 2**53  # beyond this a float, as some tables write their counts, is no longer exact


class TraceError(Rejected):
    """A trace or table that cannot be: `file:line: what is wrong`."""


@dataclass(frozen=True, slots=True)
class Row:
    where: str  # "file:line"
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        value = self.values[column].strip()
        if not value:
            raise self.wrong(column, "is empty")
        return value

    def number(self, column: str, least: float = 0.0, most: float = math.inf) -> float:
        value = self.values[column]
        try:
            number = float(value)
        except ValueError:
            raise self.wrong(column, f"{value!r} is no number") from None
        if not math.isfinite(number):
            raise self.wrong(column, f"{value!r} is no finite number")
        if not least <= number <= most:
            bounds = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
            raise self.wrong(column, f"{value} is not {bounds}")
        return number

    def positive(self, column: str) -> float:
        number = self.number(column)
        if number == 0.0:
            raise self.wrong(column, "is 0, expected more")
        return number

    def whole(self, column: str, least: int = 0, most: int = WHOLE_MAX) -> int:
        number = self.number(column, least, most)
        if number != int(number):
            raise self.wrong(column, f"{self.values[column]} is no whole number")
        return int(number)

    def flag(self, column: str) -> bool:
        return self.whole(column, 0, 1) == 1

    def wrong(self, column: str, what: str) -> TraceError:
        return TraceError(f"{self.where}: {column}: {what}")


def first_line(path: Path) -> str:
    with _told(path), path.open(encoding="utf-8", newline="") as file:
        return file.readline().rstrip("\r\n")


def with_header(
    path: Path, needed: Sequence[str], defaults: Mapping[str, str] | None = None
) -> Iterator[Row]:
    """The rows of a table that names its columns in its first line. What has a default may be left
    out or empty."""
    lines = _lines(path, ",")
    where, columns = next(lines, (f"{path}:1", []))
    if missing := [column for column in needed if column not in columns]:
        raise TraceError(f"{where}: no column {', '.join(missing)}")
    defaults = defaults or {}
    for row in _rows(lines, columns):
        empty = [column for column in defaults if not row.values.get(column)]
        yield Row(row.where, {**row.values, **{c: defaults[c] for c in empty}}) if empty else row


def without_header(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a table of tabs, whose columns are known."""
    yield from _rows(_lines(path, "\t"), columns)


def _rows(lines: Iterator[tuple[str, list[str]]], columns: Sequence[str]) -> Iterator[Row]:
    for where, values in lines:
        if len(values) != len(columns):
            raise TraceError(f"{where}: {len(values)} columns, expected {len(columns)}")
        yield Row(where, dict(zip(columns, values, strict=True)))


def _lines(path: Path, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Each line that is not blank, split, and where it is."""
    with _told(path), path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        for values in reader:
            if values:
                yield f"{path}:{reader.line_num}", values


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What may be wrong with a whole file, in words."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: is no text in UTF-8") from None
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from None
