"""Reads rows of text tables strictly: an error names the file and the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler.core.admission import INT_MAX
from scheduler.core.errors import Rejected

ENCODING = "utf-8-sig"  # with or without the byte order mark of spreadsheets
GPUS_MAX = 1024  # of one job
SECONDS_MAX = 10 * 365 * 86_400.0  # of one job or epoch; a longer time is a mistake


class TraceError(Rejected):
    """A trace or table is not valid: `file:line: what is wrong`."""


@dataclass(frozen=True, slots=True)
class Row:
    path: Path
    line: int  # from 1
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        value = self.values[column].strip()
        if not value:
            raise self.error(column, "is empty")
        return value

    def number(self, column: str, least: float = 0.0, most: float = math.inf) -> float:
        value = self.values[column]
        try:
            number = float(value)
        except ValueError:
            raise self.error(column, f"{value!r} is not a number") from None
        if not math.isfinite(number):
            raise self.error(column, f"{value!r} is not a finite number")
        if not least <= number <= most:
            bounds = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
            raise self.error(column, f"{value} is not {bounds}")
        return number

    def positive(self, column: str, most: float = math.inf) -> float:
        number = self.number(column, 0.0, most)
        if number == 0.0:
            raise self.error(column, "must be more than 0")
        return number

    def whole(self, column: str, least: int = 0, most: int = INT_MAX) -> int:
        number = self.number(column, least, most)
        if number != int(number):
            raise self.error(column, f"{self.values[column]} is not a whole number")
        return int(number)

    def flag(self, column: str) -> bool:
        return self.whole(column, 0, 1) == 1

    def error(self, column: str, what: str) -> TraceError:
        return TraceError(f"{self.path}:{self.line}: {column}: {what}")


def first_line(path: Path) -> str:
    with _explained_errors(path), path.open(encoding=ENCODING, newline="") as file:
        return file.readline().rstrip("\r\n")


def with_header(
    path: Path, needed: Sequence[str], defaults: Mapping[str, str] | None = None
) -> Iterator[Row]:
    """The rows of a table with a header. Columns with a default may be left out or empty."""
    lines = _lines(path, ",")
    line, columns = next(lines, (1, []))
    if missing := [column for column in needed if column not in columns]:
        raise TraceError(f"{path}:{line}: missing column {', '.join(missing)}")
    defaults = defaults or {}
    for row in _rows(path, lines, columns):
        empty = {c: value for c, value in defaults.items() if not row.values.get(c)}
        yield Row(path, row.line, {**row.values, **empty}) if empty else row


def without_header(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a table without a header, separated by tabs, with these columns."""
    return _rows(path, _lines(path, "\t"), columns)


def _rows(
    path: Path, lines: Iterator[tuple[int, list[str]]], columns: Sequence[str]
) -> Iterator[Row]:
    for line, values in lines:
        if len(values) != len(columns):
            raise TraceError(f"{path}:{line}: {len(values)} columns, expected {len(columns)}")
        yield Row(path, line, dict(zip(columns, values, strict=True)))


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each line that is not blank, split into columns, with its number."""
    with _explained_errors(path), path.open(encoding=ENCODING, newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        for values in reader:
            if values:
                yield reader.line_num, values


@contextmanager
def _explained_errors(path: Path) -> Iterator[None]:
    """Turns errors of the whole file into TraceError."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: the file is not UTF-8 text") from None
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from None
