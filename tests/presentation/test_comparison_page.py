"""Jobs compared, as one page: complete, harmless, and in need of nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler.presentation.comparison_page import ReportChoices, columns, comparison_page, smoothed
from tests.cli.samples import NOW, compared

EVIL = '</style><script>alert("x")</script>\u202egnp'


def record(jobs: int = 4) -> dict[str, Any]:
    made = compared(jobs)
    for job in made["jobs"]:
        job["started_at"] = NOW
    return {**made, "remarks": []}


def curve(job: str, name: str = "loss", points: int = 10) -> dict[str, Any]:
    return {
        "job": job,
        "name": name,
        "times": [NOW + 60 * at for at in range(points)],
        "steps": list(range(points)),
        "values": [1 / (at + 1) for at in range(points)],
    }


def page(found: dict[str, Any], **choices: Any) -> str:
    curves = [curve(job["id"], name) for name in ("loss", "epoch") for job in found["jobs"]]
    return comparison_page(found, curves, ReportChoices(**choices), NOW, "gpu1:7071")


def test_it_has_curves_what_differs_and_what_it_came_to() -> None:
    made = page(record())
    assert made.count('<path class="curve') == 2 * 4
    for text in ("param.lr", "0.001", "loss min (best)", "0.2333", "at 42", "gpu1:7071", "adam"):
        assert text in made
    assert "1,031 more are the same in all" not in made, "they are shown"
    assert "option.max_epochs" in made


def test_it_loads_nothing_and_has_no_script() -> None:
    made = page(record())
    assert not re.search(r"src=|href=|url\(|@import|https?:|<script|\son\w+=", made)


def test_what_users_wrote_is_text() -> None:
    found = record()
    found["jobs"][0]["name"] = EVIL
    found["config"][1]["key"] = EVIL
    found["config"][2]["values"][found["jobs"][0]["id"]] = EVIL
    found["metrics"][0]["name"] = EVIL
    found["remarks"] = [EVIL]
    curves = [curve(found["jobs"][0]["id"], EVIL)]
    choices = ReportChoices(hue=EVIL, cols=EVIL, pattern=EVIL)
    made = comparison_page(found, curves, choices, NOW, EVIL)
    assert "<script" not in made
    assert made.count("</style>") == 1
    assert "\u202e" not in made


@pytest.mark.parametrize(
    ("choices", "plots", "curves"),
    [
        ({}, 2, 8),
        ({"cols": "param.optimizer"}, 2 * 3, 8),
        ({"x": "epoch"}, 1, 4),
        ({"x": "time", "log_y": True}, 2, 8),
        ({"smooth": 0.5}, 2, 2 * 8),
        ({"hide": ["0f3c0e8e-56d5-4a6a-9a3e-000000000000"]}, 2, 6),
        ({"hue": "nothing", "pattern": "nothing", "cols": "nothing"}, 2, 8),
    ],
)
def test_choices_are_those_of_the_page(choices: dict[str, Any], plots: int, curves: int) -> None:
    made = page(record(), **choices)
    assert (made.count("<svg"), made.count('<path class="curve')) == (plots, curves)


def test_jobs_of_one_value_have_one_colour_and_one_dash() -> None:
    found = record()
    jobs = [job["id"] for job in found["jobs"]]
    found["config"][1]["values"] = dict(zip(jobs, [2, 10, 2, 10], strict=True))
    made = page(found, hue="param.lr", pattern="param.lr")
    assert re.findall(r'<li class="(h\d)"', made) == ["h0", "h1", "h0", "h1"]
    assert made.count('stroke-dasharray="7 4"') == 2 * 2


def test_points_are_in_the_order_of_x() -> None:
    back = curve("a", points=3) | {"steps": [5, None, 0], "values": [1, 2, "NaN"]}
    xs, ys = columns(back, "step", 0, None)
    assert xs == [0, 5]
    assert ys[1] == 1
    assert columns(back, "time", NOW, None)[0] == [0, 60, 120]
    epochs = {"times": [NOW, NOW + 120], "values": [0, 1]}
    assert columns(back, "epoch", 0, epochs)[0] == [0, 0.5, 1]
    assert columns(back, "epoch", 0, None) == ([], [])


def test_smoothing_keeps_what_is_constant() -> None:
    assert smoothed([0, 1, 2], [3.0, 3.0, 3.0], 0.9) == pytest.approx([3.0] * 3)
    assert smoothed([0, 1], [1.0, 2.0], 0) == [1.0, 2.0]


def test_without_curves_there_are_tables() -> None:
    made = comparison_page(record(), [], ReportChoices(), NOW, "gpu1")
    assert "<svg" not in made
    assert "What was set" in made
