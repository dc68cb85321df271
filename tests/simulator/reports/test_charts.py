"""Axes begin at zero and have round figures; lines and blocks are where they belong."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.charts import (
    Axis,
    Block,
    Frame,
    comparison_chart,
    gantt_chart,
    line_chart,
    step_corners,
)


@given(st.floats(1e-3, 1e7), st.integers(3, 10))
def test_ticks_begin_at_zero_and_are_round_and_few(most: float, count: int) -> None:
    ticks = Axis("", most).ticks(count)
    assert ticks[0] == 0.0
    assert 2 <= len(ticks) <= count + 1
    assert ticks[-1] <= most * (1 + 1e-9)
    assert f"{ticks[1]:e}"[0] in "125"


def test_an_axis_of_nothing_has_a_zero() -> None:
    assert Axis("", 0.0).ticks(5) == [0.0]


def test_figures_are_written_as_people_do() -> None:
    assert [Axis("", 2000.0).label(value) for value in (0.0, 0.5, 2000.0)] == ["0", "0.5", "2,000"]
    assert Axis("", 1.0, percent=True).label(0.25) == "25%"


def test_zero_is_in_the_corner_and_the_most_at_the_other_end() -> None:
    frame = Frame(Axis("x", 10.0), Axis("y", 5.0), 600.0, 320.0)
    (left, bottom), (right, top) = frame.at(0.0, 0.0), frame.at(10.0, 5.0)
    assert 0.0 < left < right < 600.0
    assert 0.0 < top < bottom < 320.0
    drawn = line_chart(frame, {"a": [(0.0, 0.0), (10.0, 5.0)]}, "label")
    assert f'd="M{left:g} {bottom:g}L{right:g} {top:g}"' in drawn


def test_steps_stay_until_the_next_and_end_with_the_axis() -> None:
    assert step_corners([(0.0, 1.0), (2.0, 3.0)], 5.0) == [
        (0.0, 1.0),
        (2.0, 1.0),
        (2.0, 3.0),
        (5.0, 3.0),
    ]
    assert step_corners([(0.0, 1.0), (2.0, 3.0)], 1.0) == [(0.0, 1.0), (1.0, 1.0)]
    assert step_corners([], 1.0) == []


def blocks(*spans: tuple[float, float], shade: str = "g1") -> list[Block]:
    return [Block(0, 0.0, 1.0, shade, left, right) for left, right in spans]


def pieces(drawn: str) -> int:
    return sum(path.count("z") for path in re.findall(r'class="g[^"]*" d="([^"]*)"', drawn))


def test_blocks_with_an_invisible_gap_are_merged() -> None:
    x = Axis("hours", 100.0)
    apart = gantt_chart(x, 1, {0: "n0"}, blocks((0.0, 10.0), (20.0, 30.0)), 1200.0, "")
    together = gantt_chart(x, 1, {0: "n0"}, blocks((0.0, 10.0), (10.001, 30.0)), 1200.0, "")
    other = blocks((0.0, 10.0)) + blocks((10.0, 30.0), shade="g2")
    assert (pieces(apart), pieces(together)) == (2, 1)
    assert pieces(gantt_chart(x, 1, {0: "n0"}, other, 1200.0, "")) == 2


def test_names_of_parts_do_not_overlap() -> None:
    names = {row: f"n{row}" for row in range(0, 400, 2)}
    drawn = gantt_chart(Axis("hours", 10.0), 400, names, [], 1200.0, "")
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="end">n', drawn)]
    assert len(heights) > 10
    assert all(after - before >= 11.9 for before, after in pairwise(heights))


def test_names_are_written_whole_or_cut_but_never_clipped() -> None:
    for name, written in (("n0", "n0"), ("v100-000", "v100-000"), ("m" * 40, f"{'m' * 12}..")):
        drawn = gantt_chart(Axis("hours", 10.0), 1, {0: name}, [], 350.0, "")
        ends = {words: float(x) for x, words in re.findall(r'x="([\d.]+)"[^>]*>([^<]*)<', drawn)}
        assert ends[written] >= 7.0 * len(written)


TABLE = {
    "one & two": {"gpu_sharing": 2.0, "fifo": 7.0},
    "three": {"gpu_sharing": 4.0, "fifo": 4.0},
}


def test_a_plot_has_a_bar_from_zero_for_each_figure_by_the_first() -> None:
    drawing = ElementTree.fromstring(comparison_chart(TABLE, "a < b"))
    bars = [rect for rect in drawing.findall(".//{*}rect") if rect.attrib["class"] != "paper"]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert [round(width / widths[0], 1) for width in widths] == [1.0, 3.5, 1.0, 1.0]
    assert len({bar.attrib["x"] for bar in bars}) == 1
    said = [text.text for text in drawing.findall(".//{*}text")]
    assert said[:6] == ["a < b", "one & two", "gpu_sharing", "1.00", "fifo", "3.50"]


def test_a_plot_needs_nothing_else_and_nothing_in_it_is_clipped() -> None:
    said = comparison_chart(TABLE, "plot")
    assert not re.search(r"url\(|@import|href|<script", said)
    texts = ElementTree.fromstring(said).findall(".//{*}text")
    assert len(texts) == 1 + 2 * 5
    for text in texts:
        x, reach = float(text.attrib["x"]), 7.0 * len(text.text or "")
        begins = x - reach if text.attrib["text-anchor"] == "end" else x
        assert begins >= 0.0
        assert begins + reach <= 290.0, "the width of a panel"
