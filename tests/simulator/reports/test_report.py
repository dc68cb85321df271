"""The report of a study in text and JSON."""

from __future__ import annotations

import json
from functools import cache

import pytest

from scheduler.core.model import Rules
from simulator.reports import report
from simulator.reports.report import Study
from simulator.trials.study import Task, run_study
from tests.simulator.little import job, nodes

RULES = Rules(plan_every_seconds=60.0)


@cache
def study(seeds: int = 1, impossible: bool = False) -> Study:
    """Of two policies, on three GPUs."""
    jobs = [job(f"j<{n}>", at=50.0 * n, epochs=5, gpus=1 + n % 2) for n in range(9)]
    jobs += [job("wide", gpus=5)] * impossible
    tasks = [
        Task(policy, seed, jobs[seed:], nodes(2, 1), RULES, 20.0)
        for policy in ("fifo_sharing", "fifo")
        for seed in range(seeds)
    ]
    entries = run_study(tasks, 1, lambda number, share: None)
    return Study("two & two.csv", nodes(2, 1), 60.0, 20.0, tuple(entries))


def test_the_text_has_a_row_for_each_policy_under_its_headings() -> None:
    lines = report.text(study()).splitlines()
    assert lines[0] == (
        "two & two.csv on 1x2x16384:t4,1x1x16384:t4 (3 GPUs), a plan every 60 s,"
        " a restart costs 20 s"
    )
    heads, *rows = (line.split() for line in lines[2:5])
    assert heads[:4] == ["policy", "seed", "mean", "h"]
    assert [row[0] for row in rows] == ["fifo_sharing", "fifo"]
    summary = study().entries[1].result.summary()
    assert rows[1][2:4] == [f"{summary['mean_h']:.3f}", f"{summary['median_h']:.3f}"]


def test_of_several_seeds_the_mean_is_told_too() -> None:
    rows = [line.split() for line in report.text(study(2)).splitlines()[3:9]]
    assert [row[1] for row in rows] == ["0", "1", "mean"] * 2
    assert float(rows[2][2]) == pytest.approx((float(rows[0][2]) + float(rows[1][2])) / 2, abs=1e-3)


def test_refusals_are_told_where_there_are_some() -> None:
    said = report.text(study(1, True))
    assert (
        "refused: job 10 (wide): all nodes together do not have 5 GPUs; they have at most 3" in said
    )
    assert "refused" in said.splitlines()[2]
    assert "refused" not in report.text(study())


def test_json_says_all_and_nothing_that_differs_from_run_to_run() -> None:
    said = json.loads(report.as_json(study()))
    assert said["cluster"] == "1x2x16384:t4,1x1x16384:t4"
    assert [result["policy"] for result in said["results"]] == ["fifo_sharing", "fifo"]
    result = said["results"][0]
    assert len(result["jobs"]) == 9
    assert result["jobs"][0]["outcome"] == "succeeded"
    assert set(result["summary"]) == set(study().entries[0].result.summary()) - {"cpu_seconds"}
    assert (
        "cpu_seconds" in json.loads(report.as_json(study(), timing=True))["results"][0]["summary"]
    )


def test_what_there_is_no_figure_of_is_null_in_json() -> None:
    nobody = Task("fifo", 0, [job("wide", gpus=5)], nodes(1), RULES, 20.0)
    entries = run_study([nobody], 1, lambda number, share: None)
    said = json.loads(report.as_json(Study("t", nodes(1), 60.0, 20.0, entries)))
    assert said["results"][0]["summary"]["mean_h"] is None
