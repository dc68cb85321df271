"""Jobs compared on a terminal. All of it, at three widths: in the golden files of the commands."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.presentation.comparison_view import (
    NO_DIFFERENCES,
    ONLY_OF_MACHINES,
    Sections,
    comparison,
    value_text,
)
from scheduler.presentation.render import Screen, width
from tests.cli.samples import came_to, compared

WHOLE = Screen(None)


def identical() -> dict[str, Any]:
    record = compared()
    losses = {job["id"]: came_to(0.5, 7) for job in record["jobs"]}
    metrics = [{"name": "loss", "rises": False, "values": losses}]
    config = [each for each in record["config"] if not each["differs"]]
    return record | {"config": [], "metrics": metrics, "equal": 1 + len(config)}


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 140])
def test_lines_fit_and_each_job_has_its_column_once(columns: int) -> None:
    lines = comparison(compared(9), Sections(), Screen(columns))
    room = max(columns, 40 + 2 + 8)  # a key and one job, each cut as far as it makes sense
    assert max(map(width, lines)) <= room
    ids = [word for line in lines if line.startswith("  id") for word in line.split()[1:]]
    assert ids == [f"{number:08}" for number in range(9)]


def test_a_pipe_gets_one_table_with_nothing_cut() -> None:
    lines = comparison(compared(9), Sections(), WHOLE)
    assert sum(line.startswith("  id") for line in lines) == 1
    assert "…" not in "".join(lines)


def test_the_best_job_of_a_metric_is_coloured() -> None:
    lines = comparison(compared(), Sections(), Screen(200, colour=True))
    (best,) = [line for line in lines if "val_acc max (best)" in line]
    assert "\x1b[32m0.6 at 1\x1b[0m" in best
    assert best.count("\x1b[32m") == 1


def test_metrics_that_are_the_same_are_shown_on_request() -> None:
    assert comparison(identical(), Sections(), WHOLE) == ["no differences"]
    everything = comparison(identical(), Sections(everything=True), WHOLE)
    assert "  loss last" in "\n".join(everything)
    only = comparison(identical(), Sections(metrics=False, code=False), WHOLE)
    assert only == ["no differences in config"]


def test_runs_that_were_not_equally_fast_are_not_different() -> None:
    record = identical()
    metric, ids = record["metrics"][0], [job["id"] for job in record["jobs"]]
    metric["name"], metric["rises"] = "scheduler_profile.step_seconds", None
    metric["values"] = {job: {**metric["values"][job], "last": at} for at, job in enumerate(ids)}
    assert comparison(record, Sections(), WHOLE) == [NO_DIFFERENCES, ONLY_OF_MACHINES]
    asked = comparison(record, Sections(config=False, code=False), WHOLE)
    assert "scheduler_profile.step_seconds last" in "\n".join(asked)


def test_a_name_cannot_control_the_terminal() -> None:
    record = compared()
    record["jobs"][0]["name"] = "evil\x1b[2J"
    record["config"][1]["values"][record["jobs"][0]["id"]] = "\x1b[2J"
    record["metrics"][0]["name"] = "loss\x1b[2J"
    assert "\x1b" not in "".join(comparison(record, Sections(), WHOLE))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1 / 3, "0.333333"),
        (12345678, "12345678"),
        (True, "true"),
        (None, "null"),
        ("adam", "adam"),
        ("1", '"1"'),
        ("true", '"true"'),
        ("", '""'),
        (" x", '" x"'),
        ("NaN", "NaN"),
        ([1, "a"], '[1, "a"]'),
        ({}, "{}"),
    ],
)
def test_a_text_is_in_quotes_if_it_looks_like_something_else(value: object, text: str) -> None:
    assert value_text(value) == text
