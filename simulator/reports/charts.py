"""Charts as SVG for one width in pixels: axes from zero, lines, bars, and Gantt charts.

Colours are classes of a style sheet, so that a chart fits a light and a dark page. The style sheet
is that of the page or, for a chart in a file of its own, inside the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from simulator.reports.style import LINES, PLOT_STYLE

Points = Sequence[tuple[float, float]]

FONT = 12  # pixels; a chart is shown at about the size at which it is drawn
NAME_MAX = 14  # letters of a node's name
ROWS_HEIGHT, ROW_MIN, ROW_MAX = 420.0, 1.2, 12.0  # of a Gantt chart
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 16.0, 24.0, 38.0  # margins, for figures and titles
_LETTER = 7.5  # pixels, of a wide letter
_ALONE = ' xmlns="http://www.w3.org/2000/svg"'  # needed in a file of its own
BAR, PANELS_ACROSS, PANEL_WIDTH = 16.0, 3, 290.0  # of `compared`: pixels a row, and of its panels


@dataclass(frozen=True, slots=True)
class Axis:
    """From zero to `most`, in the unit that the title names."""

    title: str
    most: float
    percent: bool = False

    def ticks(self, count: int) -> list[float]:
        """Zero and at most `count` more, at round numbers."""
        if self.most <= 0.0:
            return [0.0]
        rough = self.most / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * (1 - 1e-9))
        return [step * n for n in range(int(self.most / step * (1 + 1e-9)) + 1)]

    def label(self, value: float) -> str:
        return f"{value:.0%}" if self.percent else f"{value:,.10g}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The position of a chart's values on the canvas."""

    x: Axis
    y: Axis
    width: float
    height: float
    left: float = _LEFT  # the margin for the labels of the axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (self.width - self.left - _RIGHT) * (x / self.x.most if self.x.most else 0.0)
        up = (self.height - _TOP - _BOTTOM) * (y / self.y.most if self.y.most else 0.0)
        return self.left + across, self.height - _BOTTOM - up

    def draw(self) -> Iterator[str]:
        """Grid, figures and titles."""
        right, top = self.at(self.x.most, self.y.most)
        bottom = self.height - _BOTTOM
        for value in self.y.ticks(5):
            _, y = self.at(0.0, value)
            yield f'<path class="grid" d="M{_n(self.left)} {_n(y)}H{_n(right)}"/>'
            yield _text(self.left - 6, y + FONT / 3, self.y.label(value), "end")
        for value in self.x.ticks(5 if self.width < 500 else 8):
            x, _ = self.at(value, 0.0)
            yield f'<path class="grid" d="M{_n(x)} {_n(bottom)}V{_n(bottom + 4)}"/>'
            yield _text(x, bottom + FONT + 6, self.x.label(value), "middle")
        yield f'<path class="axis" d="M{_n(self.left)} {_n(top)}V{_n(bottom)}H{_n(right)}"/>'
        yield _text(4, FONT, self.y.title, "start")
        yield _text(right, self.height - 4, self.x.title, "end")


def line_chart(frame: Frame, series: Mapping[str, Points], label: str) -> str:
    """One line for each series, coloured and dashed by its order, cut at the axis's right end."""
    parts = list(frame.draw())
    for number, points in enumerate(series.values()):
        path = "L".join(f"{_n(x)} {_n(y)}" for x, y in (frame.at(*p) for p in points))
        parts.append(f'<path class="line c{number % LINES}" d="M{path}"/>')
    return _svg(frame.width, frame.height, label, parts)


def step_corners(points: Points, most: float) -> list[tuple[float, float]]:
    """The corners of a step line, which is constant between points and ends at `most`."""
    corners: list[tuple[float, float]] = []
    for x, y in points:
        if x > most:
            break
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    if corners and corners[-1][0] < most:
        corners.append((most, corners[-1][1]))
    return corners


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a row of a Gantt chart: from `left` to `right`, and from `low` to `high` of the
    row's height (0 to 1), in one of the page's shades."""

    row: int
    low: float
    high: float
    shade: str
    left: float
    right: float


def gantt_chart(
    x: Axis, count: int, names: Mapping[int, str], blocks: Iterable[Block], width: float, label: str
) -> str:
    """A Gantt chart with the first row on top; `names` has the row where each part begins."""
    each = max(ROW_MIN, min(ROW_MAX, ROWS_HEIGHT / max(1, count)))
    height = _TOP + each * count + _BOTTOM
    names = {row: _cut(name) for row, name in names.items()}
    longest = max((len(name) for name in names.values()), default=0)
    frame = Frame(x, Axis("", 1.0), width, height, max(_LEFT, longest * _LETTER + 6.0))
    parts = [*_draw_row_names(frame, names, each)]
    filled = each * 0.85 if each >= 4.0 else each
    paths: dict[str, list[str]] = {}
    for block in _merge(blocks, least=0.3 * x.most / width):
        left, _ = frame.at(block.left, 0.0)
        right, _ = frame.at(block.right, 0.0)
        top = _TOP + each * block.row + filled * (1.0 - block.high)
        high, wide = filled * (block.high - block.low), max(right - left, 0.2)
        piece = f"M{_n(left)} {_n(top)}h{_n(wide)}v{_n(high)}h{_n(-wide)}z"
        paths.setdefault(block.shade, []).append(piece)
    parts += [f'<path class="{shade}" d="{"".join(p)}"/>' for shade, p in sorted(paths.items())]
    return _svg(width, height, label, parts)


def _draw_row_names(frame: Frame, names: Mapping[int, str], each: float) -> Iterator[str]:
    """The time axis and, on the left, as many names of parts as are legible."""
    bottom, lowest = frame.height - _BOTTOM, -math.inf
    right, _ = frame.at(frame.x.most, 0.0)
    for value in frame.x.ticks(5 if frame.width < 500 else 8):
        x, _ = frame.at(value, 0.0)
        yield f'<path class="grid" d="M{_n(x)} {_n(_TOP)}V{_n(bottom + 4)}"/>'
        yield _text(x, bottom + FONT + 6, frame.x.label(value), "middle")
    for row, name in names.items():
        top = _TOP + each * row
        yield f'<path class="grid" d="M{_n(frame.left)} {_n(top)}H{_n(right)}"/>'
        if top - lowest >= FONT:
            lowest = top
            yield _text(frame.left - 4, top + FONT * 0.8, name, "end")
    yield f'<path class="axis" d="M{_n(frame.left)} {_n(_TOP)}V{_n(bottom)}H{_n(right)}"/>'
    yield _text(right, frame.height - 4, frame.x.title, "end")


def _cut(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 2]}.."


def _merge(blocks: Iterable[Block], least: float) -> Iterator[Block]:
    """Merges neighbours of one shade with a gap of at most `least`, which would not be visible."""
    open_at: dict[tuple[int, float, float, str], Block] = {}
    for block in sorted(blocks, key=lambda b: (b.row, b.low, b.high, b.shade, b.left)):
        key = block.row, block.low, block.high, block.shade
        before = open_at.get(key)
        if before and block.left - before.right <= least:
            open_at[key] = replace(before, right=max(before.right, block.right))
            continue
        if before:
            yield before
        open_at[key] = block
    yield from open_at.values()


def comparison_chart(table: Mapping[str, Mapping[str, float]], title: str) -> str:
    """A chart for its own file: a panel for each trace, and a bar for each policy, relative to the
    first policy.

    `table` has a figure for each trace and policy; less is better. All panels have the same axis
    from zero, so that bars can be compared between them; a line marks one.
    """
    relative = {
        trace: {policy: figure / next(iter(row.values())) for policy, figure in row.items()}
        for trace, row in table.items()
    }
    policies = {policy: None for row in relative.values() for policy in row}
    most = max(ratio for row in relative.values() for ratio in row.values())
    left = max(map(len, policies)) * _LETTER + 6.0
    unit = (
        PANEL_WIDTH - left - 5 * _LETTER
    ) / most  # leaves room for the figure of the longest bar
    each = 2 * BAR + BAR * len(policies) + BAR / 2
    down = math.ceil(len(relative) / PANELS_ACROSS)
    parts = [f"<style>{PLOT_STYLE}</style>", f"<title>{escape(title)}</title>"]
    parts += ['<rect class="paper" width="100%" height="100%"/>', _text(8, 20, title, "start")]
    for number, (trace, row) in enumerate(relative.items()):
        x, y = number % PANELS_ACROSS * PANEL_WIDTH, 32 + number // PANELS_ACROSS * each
        panel = "".join(_panel(trace, row, left, unit))
        parts.append(f'<g transform="translate({_n(x)} {_n(y)})">{panel}</g>')
    return _svg(PANELS_ACROSS * PANEL_WIDTH, 32 + down * each, title, parts, _ALONE)


def _panel(name: str, row: Mapping[str, float], left: float, unit: float) -> Iterator[str]:
    for place, ratio in enumerate(row.values()):
        shade = "other" if place else "first"
        size = f'width="{_n(ratio * unit)}" height="{_n(BAR * 0.75)}"'
        y = (place + 1.5) * BAR + BAR / 8
        yield f'<rect class="{shade}" x="{_n(left)}" y="{_n(y)}" {size}/>'
    bottom = (len(row) + 1.5) * BAR
    yield f'<path class="axis" d="M{_n(left)} {_n(1.5 * BAR)}V{_n(bottom)}"/>'
    yield f'<path class="one" d="M{_n(left + unit)} {_n(1.5 * BAR)}V{_n(bottom)}"/>'
    yield f'<g class="name">{_text(left, BAR, name, "start")}</g>'
    for place, (policy, ratio) in enumerate(row.items()):
        y = (place + 2.25) * BAR
        yield _text(left - 5, y, policy, "end")
        yield _text(left + ratio * unit + 4, y, f"{ratio:.2f}", "start")  # over the line at one


# --- SVG ----------------------------------------------------------------------------------------


def _svg(
    width: float, height: float, label: str, parts: Iterable[str], attributes: str = ""
) -> str:
    size = f'viewBox="0 0 {_n(width)} {_n(height)}"'
    return f'<svg{attributes} {size} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(words)}</text>'


def _n(value: float) -> str:
    """Rounds to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
