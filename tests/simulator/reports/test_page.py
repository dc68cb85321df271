"""The page is self-contained, shows everything, and cuts nothing off."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from simulator.reports.charts import Axis, Frame
from simulator.reports.page import WIDE, page
from simulator.reports.report import Study
from simulator.trials.study import Task, run_study
from tests.simulator.little import job, nodes
from tests.simulator.reports.test_report import RULES, study

VOID = {"meta", "br", "link", "img"}


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [f"{n}={v}" for n, v in attrs if n in {"src", "href", "srcset", "style"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_page_is_whole_and_needs_nothing_else(seeds: int) -> None:
    said = page(study(seeds))
    parser = Balanced()
    parser.feed(said)
    assert parser.open == []
    assert parser.addresses == []
    assert not parser.seen & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"url\(|@import|https?:", said)


def test_names_are_escaped() -> None:
    assert "two &amp; two.csv" in page(study())
    assert "two & two" not in page(study())


def test_nothing_is_drawn_outside_its_canvas() -> None:
    charts = re.findall(r"<svg.*?</svg>", page(study()), re.S)
    assert len([chart for chart in charts if "aria-label" in chart]) == 2 * (4 + 2)
    for chart in charts:
        drawing = ElementTree.fromstring(chart)
        _, _, width, height = map(float, drawing.attrib["viewBox"].split())
        for path in drawing.iter("path"):
            for x, y in corners(path.attrib["d"]):
                assert -0.1 <= x <= width + 0.1, path.attrib["d"]
                assert -0.1 <= y <= height + 0.1, path.attrib["d"]
        for text in drawing.iter("text"):
            reach = 7.0 * len(text.text or "")
            x = float(text.attrib["x"])
            shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]]
            assert x - shift * reach >= -1.0, text.text
            assert x + (1.0 - shift) * reach <= width + 1.0, text.text


def corners(path: str) -> list[tuple[float, float]]:
    """The points of a path: M, L, H and V are absolute, h and v relative."""
    found: list[tuple[float, float]] = []
    x = y = 0.0
    for letter, numbers in re.findall(r"([MLHVhvz])([-\d. ]*)", path):
        values = [float(number) for number in numbers.split()]
        match letter:
            case "M" | "L":
                x, y = values
            case "H":
                x = values[0]
            case "V":
                y = values[0]
            case "h":
                x += values[0]
            case "v":
                y += values[0]
        found.append((x, y))
    return found


def test_each_policy_has_a_row_a_line_and_a_gantt() -> None:
    said = page(study(2))
    for policy in ("fifo_sharing", "fifo"):
        assert f"<td>{policy}</td>" in said
        assert f"<h2>GPUs under {policy}</h2>" in said
    assert said.count('class="line c1"') == 4 * 3  # wide, narrow, and in the legend
    assert "Seeds 0, 1: means" in said


def test_a_policy_that_is_done_first_uses_no_gpus_from_then_on() -> None:
    ends = [entry.result.makespan_seconds for entry in study().entries]
    first, last = sorted(range(2), key=ends.__getitem__)
    assert ends[first] < ends[last]
    chart = re.findall(r'<svg[^>]*aria-label="GPUs in use".*?</svg>', page(study()), re.S)[0]
    frame = Frame(Axis("", ends[last]), Axis("", 3.0), *WIDE)
    (path,) = re.findall(rf'class="line c{first}" d="M([^"]*)"', chart)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    assert points[-2:] == [
        pytest.approx(frame.at(ends[first], 0.0), abs=0.2),
        pytest.approx(frame.at(ends[last], 0.0), abs=0.2),
    ]


def test_the_least_of_a_column_is_bold() -> None:
    said = page(study())
    means = [entry.result.summary()["mean_h"] for entry in study().entries]
    assert f"<strong>{min(means):.3f}</strong>" in said
    assert f"<strong>{max(means):.3f}</strong>" not in said


def test_a_study_in_which_nothing_ran_has_a_page() -> None:
    nobody = Task("fifo", 0, [job("wide", gpus=5)], nodes(1), RULES, 20.0)
    entries = run_study([nobody], 1, lambda number, share: None)
    assert "1 jobs were refused" in page(Study("t", nodes(1), 60.0, 20.0, entries))
