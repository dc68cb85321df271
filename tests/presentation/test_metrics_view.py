from __future__ import annotations

from typing import Any

import pytest

from scheduler.presentation import metrics_view
from scheduler.presentation.render import Screen, width
from tests.cli.samples import NOW

NAMES = ("loss", "system.gpu.0.memory", "a/very/long/name/of/a/metric/in/a/deep/module", "acc")


def series(name: str, last: Any = 0.123456789) -> dict[str, Any]:
    spread = {"last": last, "min": 1e-9, "max": None}
    steps = {"last_step": 1_234_567, "min_step": None, "max_step": None}
    about = {"measurement": "metrics", "field": name, "kind": "float", "attempts": [1]}
    tags = {"host": "iccluster45", "user": "vogels"}
    return (
        {"name": name, "tags": tags, "last_at": NOW - 60, "points": 99_000} | spread | steps | about
    )


def jobs(count: int) -> list[dict[str, Any]]:
    return [
        {
            "job": f"0f3c0e8e-56d5-4a6a-9a3e-00000000000{number}",
            "job_name": "resnet50-imagenet" if number < 2 else f"run-{number}",
            "user": "bartholomew",
            "series": [series(name, "NaN" if number else 0.5) for name in NAMES],
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("chosen", [("last",), metrics_view.STATISTICS])
def test_a_summary_fits_the_screen(columns: int, count: int, chosen: tuple[str, ...]) -> None:
    lines = metrics_view.summary(jobs(count), chosen, NOW, Screen(columns))
    assert len(lines) == 1 + count * len(NAMES)
    assert max(map(width, lines)) <= columns


def test_metrics_of_the_machine_come_last_and_jobs_stand_together() -> None:
    order = [(each["name"], job["job"][-1]) for job, each in metrics_view.in_order(jobs(2))]
    assert order[:4] == [("acc", "0"), ("acc", "1"), ("loss", "0"), ("loss", "1")]
    assert order[-1] == ("system.gpu.0.memory", "1")


def test_jobs_of_one_name_are_told_apart() -> None:
    assert list(metrics_view.job_names(jobs(3)).values()) == [
        "resnet50-imagenet 00000000",
        "resnet50-imagenet 00000001",
        "run-2",
    ]


def test_curves_of_jobs_that_began_at_different_times_begin_together() -> None:
    curves: list[Any] = [
        {
            "job": job["job"],
            "name": "x",
            "steps": None,
            "times": [at, at + 60],
            "values": [1, 2],
        }
        for job, at in zip(jobs(2), (1_000.0, 5_000.0), strict=True)
    ]
    lines = metrics_view.plots(jobs(2), curves, Screen(60))
    assert lines[0] == "x by time"
    assert lines[-3].split() == ["0.0", "s", "60", "s"]


def test_truths_are_plotted_and_texts_are_not() -> None:
    told = {"job": jobs(1)[0]["job"], "name": "x", "steps": [1, 2], "times": [1.0, 2.0]}
    assert "1 │" in "\n".join(
        metrics_view.plots(jobs(1), [{**told, "values": [True, False]}], Screen(60))
    )
    lines = metrics_view.plots(jobs(1), [{**told, "values": ["a", "b"]}], Screen(60))
    assert lines == ["x by step: no numbers to plot"]
