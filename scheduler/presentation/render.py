"""Text for a terminal: widths, tables, bars, times, colours. Knows nothing about jobs. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

# Named tuples, because importing dataclasses takes 10 ms.

GAP = "  "
LEAST = 8  # a text cut to fewer columns is useless
_CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "grey": 90}
_MIB = re.compile(r"(?<![\w.,-])[0-9]{4,9}(?=( (of|to) [0-9,]+)? MiB\b)")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Screen(NamedTuple):
    """What can be shown. If the width is None, nothing is cut: that is for pipes."""

    width: int | None = None
    colour: bool = False
    blocks: bool = True  # whether the encoding has more than ASCII

    def paint(self, text: str, colour: str) -> str:
        if not (self.colour and colour and text):
            return text
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


# --- text ---------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Text from other users must neither control the terminal nor break the line."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def with_separators(text: str) -> str:
    """`takes 8200 of 8000 MiB` becomes `takes 8,200 of 8,000 MiB`: rows keep older texts."""
    return _MIB.sub(lambda found: f"{int(found[0]):,}", text)


def width(text: str) -> int:
    """The number of columns on the screen; a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # rarely needed

    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def cut(text: str, columns: int, keep_end: bool = False) -> str:
    """At most that wide. `keep_end` is for names, which differ more often at the end."""
    if width(text) <= columns:
        return text
    head, tail = text, ""
    if keep_end and columns > 6:
        tail = text[-(columns // 2 - 1) :]
        while width(tail) > columns // 2:
            tail = tail[1:]
        head = text[: -len(tail)]
    while head and width(head) + 1 + width(tail) > columns:
        head = head[:-1]
    return f"{head}…{tail}"


def wrap(text: str, columns: int | None) -> list[str]:
    if columns is None or width(text) <= columns:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and width(longer) > columns:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]


# --- tables -------------------------------------------------------------------------------------


class Column(NamedTuple):
    title: str
    right: bool = False
    least: int | None = None  # cut below this only if nothing else helps; None: never cut
    keep_end: bool = False
    optional: bool = False  # left out if there is no room


class Cell(NamedTuple):
    text: str
    colour: str = ""
    pieces: tuple[tuple[str, str], ...] = ()  # the same text in pieces, each with its colour


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], screen: Screen) -> list[str]:
    """One line for each row. Leaves out optional columns, then cuts others, until a line fits."""
    lines = [[Cell(column.title, "grey") for column in columns], *rows]
    shown = {i: max(width(line[i].text) for line in lines) for i in range(len(columns))}
    if screen.width is not None:
        _fit(columns, shown, screen.width)
    return [
        GAP.join(_pad(columns[i], line[i], room, screen) for i, room in shown.items()).rstrip()
        for line in lines
    ]


def _fit(columns: Sequence[Column], shown: dict[int, int], most: int) -> None:
    """Changes `shown`, the width of each column by its index."""
    least = {i: columns[i].least for i in shown}
    for index in reversed([i for i in shown if columns[i].optional]):
        if _line({i: min(room, least[i] or room) for i, room in shown.items()}) <= most:
            break
        del shown[index]
    may_give_way = {i: bound for i, bound in least.items() if i in shown and bound is not None}
    _cut_columns(shown, may_give_way, most)
    _cut_columns(shown, {i: min(bound, LEAST) for i, bound in may_give_way.items()}, most)


def _cut_columns(shown: dict[int, int], least: dict[int, int], most: int) -> None:
    """Cuts the column with the most room above its minimum first."""
    while least and _line(shown) > most:
        index = max(least, key=lambda i: shown[i] - least[i])
        if shown[index] <= least[index]:
            return
        shown[index] -= 1


def _line(shown: dict[int, int]) -> int:
    return sum(shown.values()) + len(GAP) * (len(shown) - 1)


def _pad(column: Column, cell: Cell, room: int, screen: Screen) -> str:
    text = cut(printable(cell.text), room, column.keep_end)
    blank = " " * (room - width(text))
    painted = "".join(screen.paint(*piece) for piece in cell.pieces or [(text, cell.colour)])
    return f"{blank}{painted}" if column.right else f"{painted}{blank}"


def fields(pairs: Sequence[tuple[str, str]], screen: Screen, indent: int = 2) -> list[str]:
    """`name  value` lines; long values continue on indented lines."""
    margin = " " * indent
    room = max((len(name) for name, _ in pairs), default=0) + len(GAP)
    columns = None if screen.width is None else max(20, screen.width - room - indent)
    lines = []
    for name, value in pairs:
        first, *rest = wrap(printable(value), columns)
        lines.append(f"{margin}{screen.paint(name, 'grey')}{' ' * (room - len(name))}{first}")
        lines += [f"{margin}{' ' * room}{line}" for line in rest]
    return lines


# --- bars ---------------------------------------------------------------------------------------


def bar(parts: Sequence[int], whole: int, columns: int, screen: Screen) -> Cell:
    """Adjacent parts look different, with or without colours; the rest is dotted.

    Each part gets at least one cell, if there are enough, so that no part is invisible.
    """
    marks = "█▓▒" if screen.blocks else "#=%"
    colours = ("green", "cyan", "blue")
    pieces, used, total = [("[", "")], 0, 0
    for index, part in enumerate(parts):
        total += part
        end = min(columns, max(used + 1, round(columns * total / whole) if whole else columns))
        pieces.append((marks[index % len(marks)] * (end - used), colours[index % len(colours)]))
        used = end
    pieces.append(("." * (columns - used) + "]", ""))
    return Cell("".join(text for text, _ in pieces), pieces=tuple(pieces))


# --- times --------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """About two digits: seconds do not matter in a span of hours."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 1.5 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 1.5 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 10 * _HOUR:
        hours, minutes = divmod(round(seconds / _MINUTE), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if seconds < 1.5 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} d"


def ago(moment: float, now: float) -> str:
    seconds = max(0, int(now - moment))
    if seconds == 0:
        return "just now"
    return f"{seconds} s ago" if seconds < _MINUTE else f"{span(seconds)} ago"


def clock(moment: float, now: float) -> str:
    """Local time, with the date unless it is today."""
    local, today = time.localtime(moment), time.localtime(now)
    same_day = (local.tm_year, local.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", local)
