"""Curves as SVG within an HTML page, with axes; their colours are classes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from scheduler.presentation.html_page import html_text

WIDTH, HEIGHT = 560, 260
_TOP, _RIGHT, _BOTTOM, _LEFT = 8, 10, 24, 56
_ALIKE = 1e-9  # relative: what differs by less is one value on an axis
_UNITS = (1.0, 2.0, 2.5, 5.0, 10.0)
Span = tuple[float, float]


class DrawnCurve(NamedTuple):
    """`look`: a class of CSS, which has a colour. `dash`: as in SVG."""

    name: str
    look: str
    xs: Sequence[float]  # in order
    ys: Sequence[float]  # what is not finite is a gap
    dash: str = ""
    faint: bool = False


class Axes(NamedTuple):
    log_x: bool = False
    log_y: bool = False
    x_text: Callable[[float], str] | None = None
    opacity: float = 1.0


def svg_curves(
    label: str, curves: Sequence[DrawnCurve], axes: Axes, among: Sequence[DrawnCurve] = ()
) -> str:
    """`among`: those that have the same axes."""
    spans = _spans(among or curves, axes)
    if spans is None:
        return '<p class="muted">nothing to draw</p>'
    (least_x, most_x), (least_y, most_y) = spans
    x = _scale(least_x, most_x, axes.log_x, _LEFT, WIDTH - _RIGHT)
    y = _scale(*_wider(least_y, most_y, axes.log_y), axes.log_y, HEIGHT - _BOTTOM, _TOP)
    marks = (powers_between if axes.log_y else ticks_between)(least_y, most_y, 6)
    parts = [
        f'<path class="axis" d="M{_LEFT} {y(mark):.1f}H{WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{short(mark)}</text>'
        for mark in marks
    ]
    parts += _x_marks(x, (least_x, most_x), axes)
    for curve in curves:
        dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
        faint = axes.opacity * (0.3 if curve.faint else 1)
        parts.append(
            f'<path class="curve {curve.look}" opacity="{faint:g}"{dash}'
            f' d="{"".join(_path(curve, x, y))}"><title>{html_text(curve.name)}</title></path>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html_text(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _x_marks(x: Callable[[float], float], span: Span, axes: Axes) -> Iterator[str]:
    text = axes.x_text or short
    for mark in (powers_between if axes.log_x else ticks_between)(*span, 5):
        at = min(x(mark), WIDTH - 18)
        yield (
            f'<text x="{at:.1f}" y="{HEIGHT - 7}" text-anchor="middle">'
            f"{html_text(text(mark))}</text>"
        )


def _path(
    curve: DrawnCurve, x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[str]:
    joined = False
    for at, value in zip(curve.xs, curve.ys, strict=True):
        px, py = x(at), y(value)
        if not (math.isfinite(px) and math.isfinite(py)):
            joined = False
            continue
        yield f"{'L' if joined else 'M'}{px:.1f} {py:.1f}{'' if joined else 'h.1'}"
        joined = True


# --- scales -------------------------------------------------------------------------------------


def _spans(curves: Sequence[DrawnCurve], axes: Axes) -> tuple[Span, Span] | None:
    """Of x and of y; None: there is nothing to draw."""
    there = [
        (x, y)
        for curve in curves
        for x, y in zip(curve.xs, curve.ys, strict=True)
        if _drawable(x, axes.log_x) and _drawable(y, axes.log_y)
    ]
    if not there:
        return None
    xs, ys = [x for x, _ in there], [y for _, y in there]
    return _span(min(xs), max(xs), axes.log_x), _span(min(ys), max(ys), axes.log_y)


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and not (log and value <= 0)


def _span(least: float, most: float, log: bool) -> Span:
    if most - least > _ALIKE * max(abs(least), abs(most)):
        return least, most
    if log:
        return least / 2, most * 2
    room = (abs(least) or 1) / 10
    return least - room, most + room


def _wider(least: float, most: float, log: bool) -> Span:
    if log:
        part = (most / least) ** 0.04
        return least / part, most * part
    room = (most - least) * 0.04
    return least - room, most + room


def _scale(
    least: float, most: float, log: bool, begin: float, end: float
) -> Callable[[float], float]:
    low, high = (math.log10(least), math.log10(most)) if log else (least, most)

    def at(value: float) -> float:
        if log:
            value = math.log10(value) if value > 0 else math.nan
        return begin + (value - low) * (end - begin) / (high - low)

    return at


def ticks_between(least: float, most: float, count: int) -> list[float]:
    """Round numbers."""
    raw = (most - least) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(each * unit for each in _UNITS if each * unit >= raw * 0.999)
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def powers_between(least: float, most: float, count: int) -> list[float]:
    """Powers of ten, or what is between them if there are few."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    every = max(1, math.ceil((high - low) / count))
    marks = (1,) if high - low > 2 else (1, 3) if high - low > 1 else (1, 2, 5)
    found = [
        float(f"{mark * 10.0**power:.12g}")
        for power in range(low, high + 1, every)
        for mark in marks
    ]
    within = [each for each in found if least * 0.999 <= each <= most * 1.001]
    return within if len(within) > 1 else ticks_between(least, most, count)


def short(value: float) -> str:
    """About four digits: `12k`, `0.0031`, `1e-7`. As on the pages."""
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        digits, _, power = f"{value:.1e}".partition("e")
        return f"{digits.removesuffix('.0')}e{int(power)}"
    for limit, unit, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            return f"{_plain(value / unit)}{letter}"
    return _plain(value)


def _plain(value: float) -> str:
    text = f"{value:.4g}"
    return f"{float(text):.0f}" if "e" in text and abs(value) >= 1 else text
