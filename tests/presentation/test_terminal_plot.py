from __future__ import annotations

import math

import pytest

from scheduler.presentation.render import Screen, width
from scheduler.presentation.terminal_plot import ROWS, PlottedCurve, plot

FALLING = PlottedCurve("run-1", [(step, 1 / (1 + step)) for step in range(100)])
RISING = PlottedCurve("run-2", [(step, step / 100) for step in range(100)])


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("curves", [[FALLING], [FALLING, RISING]])
@pytest.mark.parametrize("blocks", [True, False])
def test_a_plot_fills_the_screen_and_no_more(
    columns: int, curves: list[PlottedCurve], blocks: bool
) -> None:
    lines = plot("loss", curves, Screen(columns, blocks=blocks))
    assert len(lines) == 1 + ROWS + 1 + (2 if len(curves) > 1 else 0)
    assert max(map(width, lines)) == columns
    assert blocks or "".join(lines).isascii()


def test_axes_have_the_ends_of_what_is_shown() -> None:
    lines = plot("loss", [RISING], Screen(60))
    assert lines[0] == "loss"
    assert lines[1].split("│")[0].strip() == "0.99"
    assert lines[ROWS].split("│")[0].strip() == "0"
    assert lines[ROWS + 1].split() == ["0", "99"]


def test_a_falling_curve_goes_from_the_top_left_to_the_bottom_right() -> None:
    rows = [line.partition("|")[2] for line in plot("x", [FALLING], Screen(60, blocks=False))[1:-1]]
    assert rows[0].startswith("*")
    assert rows[-1].endswith("*")
    first = [row.index("*") for row in rows]
    assert first == sorted(first)


def test_several_curves_are_told_apart_with_and_without_colours() -> None:
    plain = "\n".join(plot("x", [FALLING, RISING], Screen(60)))
    assert "  a run-1\n  b run-2" in plain
    assert "\x1b" not in plain
    coloured = plot("x", [FALLING, RISING], Screen(60, colour=True))
    assert coloured[-2:] == ["  \x1b[36m━━\x1b[0m run-1", "  \x1b[33m━━\x1b[0m run-2"]
    assert any("\u2800" < each < "\u28ff" for line in coloured for each in line)


def test_what_is_not_finite_breaks_the_line() -> None:
    curve = PlottedCurve("x", [(0, 0.0), (1, 1.0), (2, math.nan), (3, math.inf), (4, 1.0)])
    lines = plot("x", [curve], Screen(60, blocks=False))
    drawn = lines[1].partition("|")[2]
    assert (drawn[0], drawn[-1], set(drawn[20:-1])) == (" ", "*", {" "})
    assert plot("x", [PlottedCurve("x", [(0, math.nan)])], Screen(60)) == ["x: no numbers to plot"]
    assert plot("x", [PlottedCurve("x", [])], Screen(60)) == ["x: no numbers to plot"]


@pytest.mark.parametrize(
    "points",
    [
        [(5, 7.0)],
        [(5, 7.0), (5, 8.0)],
        [(0, 7.0), (1, 7.0)],
        [(0, -1.7e308), (1, 1.7e308)],
        [(0, 5e-324), (2**62, 1e-300)],
    ],
)
def test_extremes_can_be_drawn(points: list[tuple[float, float]]) -> None:
    lines = plot("x", [PlottedCurve("x", points)], Screen(60))
    assert max(map(width, lines)) <= 60
    assert any("\u2800" < each < "\u28ff" for line in lines for each in line)


def test_names_control_no_terminal() -> None:
    bad = [PlottedCurve("\x1b[2J", RISING.points), PlottedCurve("好" * 100, RISING.points)]
    lines = plot("\x1b]0;x\x07", bad, Screen(60))
    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert max(map(width, lines)) <= 60
