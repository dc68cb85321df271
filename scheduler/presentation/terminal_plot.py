"""Curves as characters: a plot that fits a terminal. Pure.

With braille, each character has two by four dots. Without it, or where several curves could not be
told apart for lack of colours, each curve has a letter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from scheduler.presentation.render import Screen, cut, printable, width

ROWS = 12
WIDTH, WIDTH_LEAST = 80, 20  # where nothing is said of the screen; characters of the plot itself
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, then by row

Dot = tuple[int, int]


class PlottedCurve(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]  # by x


class _Marks(NamedTuple):
    """What one character of the plot is made of."""

    columns: int  # dots
    rows: int
    braille: bool


def plot(
    title: str,
    curves: Sequence[PlottedCurve],
    screen: Screen,
    x_text: Callable[[float], str] | None = None,
    rows: int = ROWS,
) -> list[str]:
    """Values that are not finite are left out, which breaks the line there."""
    found = [(x, y) for curve in curves for x, y in curve.points if math.isfinite(y)]
    if not found:
        return [f"{printable(title)}: no numbers to plot"]
    x_range, y_range = _range([x for x, _ in found]), _range([y for _, y in found])
    labels = _y_labels(y_range, rows)
    margin = max(map(len, labels.values()))
    columns = max(WIDTH_LEAST, (screen.width or WIDTH) - margin - 2)
    marks = _marks(screen, len(curves))
    cells: dict[Dot, tuple[int, int]] = {}  # the braille dots of a character, and whose it is
    for number, curve in enumerate(curves):
        for x, y in _line_dots(curve.points, x_range, y_range, columns, rows, marks):
            cell = x // marks.columns, y // marks.rows
            dots = _DOTS[x % 2][y % 4] if marks.braille else 0
            before, owner = cells.get(cell, (0, number))
            cells[cell] = (before | dots, number if not marks.braille else owner)
    lines = [printable(title)]
    axis = "│" if screen.blocks else "|"
    for row in range(rows):
        drawn = "".join(
            _character(cells.get((column, row)), marks, len(curves), screen)
            for column in range(columns)
        ).rstrip()
        lines.append(f"{labels.get(row, ''):>{margin}} {axis}{drawn}")
    lines.append(_x_axis(x_range, columns, margin, x_text or _number))
    return lines + (_legend(curves, marks, screen) if len(curves) > 1 else [])


def _marks(screen: Screen, curves: int) -> _Marks:
    braille = screen.blocks and (curves == 1 or (screen.colour and curves <= len(COLOURS)))
    return _Marks(2, 4, True) if braille else _Marks(1, 1, False)


def _character(cell: tuple[int, int] | None, marks: _Marks, curves: int, screen: Screen) -> str:
    if cell is None:
        return " "
    dots, owner = cell
    text = chr(_BRAILLE + dots) if marks.braille else _letter(owner, curves)
    return screen.paint(text, COLOURS[owner % len(COLOURS)])


def _letter(number: int, curves: int) -> str:
    return "*" if curves == 1 else LETTERS[number % len(LETTERS)]


# --- lines --------------------------------------------------------------------------------------


def _line_dots(
    points: Sequence[tuple[float, float]],
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    columns: int,
    rows: int,
    marks: _Marks,
) -> Iterator[Dot]:
    width, height = columns * marks.columns - 1, rows * marks.rows - 1
    before: Dot | None = None
    for x, y in points:
        if not math.isfinite(y):
            before = None
            continue
        dot = (
            round(_part(x, x_range) * width),
            round((1 - _part(y, y_range)) * height),
        )
        yield from _between(before or dot, dot)
        before = dot


def _between(start: Dot, end: Dot) -> Iterator[Dot]:
    """A straight line of dots."""
    across, down = end[0] - start[0], end[1] - start[1]
    steps = max(abs(across), abs(down), 1)
    for step in range(steps + 1):
        yield start[0] + round(across * step / steps), start[1] + round(down * step / steps)


def _part(value: float, spread: tuple[float, float]) -> float:
    """Each is halved first: the difference of two numbers may be more than there are numbers."""
    least, most = spread
    return (value / 2 - least / 2) / (most / 2 - least / 2) if most > least else 0.5


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


# --- words --------------------------------------------------------------------------------------


def _y_labels(spread: tuple[float, float], rows: int) -> dict[int, str]:
    least, most = spread
    if least == most:
        return {rows // 2: _number(least)}
    return {0: _number(most), rows // 2: _number(least / 2 + most / 2), rows - 1: _number(least)}


def _x_axis(
    spread: tuple[float, float], columns: int, margin: int, text: Callable[[float], str]
) -> str:
    least, most = text(spread[0]), text(spread[1])
    if least == most:
        return f"{'':{margin + 2}}{least:^{columns}}".rstrip()
    return f"{'':{margin + 2}}{least}{most:>{max(1, columns - width(least))}}"


def _legend(curves: Sequence[PlottedCurve], marks: _Marks, screen: Screen) -> list[str]:
    lines = []
    for number, curve in enumerate(curves):
        mark = "━━" if marks.braille else _letter(number, len(curves))
        room = (screen.width or 1_000) - len(mark) - 3
        name = cut(printable(curve.name), room, keep_end=True)
        lines.append(f"  {screen.paint(mark, COLOURS[number % len(COLOURS)])} {name}")
    return lines


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:.4g}"
