"""Tables and plots are made from figures, and the documents contain those of the published ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import document
from benchmarks.figures import ROOT, Left, interval, published
from benchmarks.policies import CASES, FIGURES, Case, Run, tabled
from benchmarks.wanted import Figure


def figures(**changed: float) -> dict[str, float]:
    aside = "unfinished", "refused", "cpu_seconds", "alone_h", "seeds"
    return dict.fromkeys((*FIGURES, *aside), 1.0) | changed


def run(**row: dict[str, float]) -> dict[str, object]:
    return {"figures": {"policies": {"sia-1-t4": row}}, "seconds": {}, "finished": False}


def table(name: str, of: dict[str, object]) -> str:
    text = document.filled(f"before\n<!-- table {name} -->\nFORMER\n<!-- end -->\nafter\n", of)
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "FORMER" not in text
    return text


@pytest.mark.parametrize(
    ("path", "text"),
    document.written(published()).items(),
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_what_is_published_is_what_was_measured(path: Path, text: str) -> None:
    assert path.read_text() == text, (
        "run `python -m benchmarks --output docs/figures/bench.json --publish`"
    )


def test_every_plot_that_there_is_is_shown() -> None:
    shown = (ROOT / "docs" / "simulator.md").read_text()
    assert all(f"plots/{path.name}" in shown for path in ROOT.glob("docs/plots/*"))


def test_the_best_of_a_row_is_bold_and_ours_comes_first() -> None:
    made = table("mean_h", run(fifo=figures(mean_h=3.0), gpu_sharing=figures(mean_h=1.5)))
    assert "| trace | *alone* | gpu_sharing | fifo |" in made
    assert "| sia-1-t4 | 1.00 | **1.50** | 3.00 |" in made


def test_more_use_of_gpus_is_the_better_one() -> None:
    made = table("utilisation", run(fifo=figures(utilisation=0.9), las=figures(utilisation=0.5)))
    assert "| **0.90** | 0.50 |" in made


def test_a_goal_that_is_missed_is_bold_and_says_by_how_much() -> None:
    ours, elastic = figures(mean_h=0.9, p99_h=0.9), figures(p99_h=1.0, makespan_h=0.9)
    made = table("goals", run(gpu_sharing=ours, elastic=elastic))
    assert "| 0.80 / **0.90** elastic | 1.05 / 0.90 elastic | 1.05 / **1.11** elastic |" in made
    assert "Met: 1 of 3." in made
    assert (
        "- sia-1-t4, mean relative to elastic: 0.10\n- sia-1-t4, makespan relative to elastic: 0.06"
        in made
    )


def test_a_goal_without_the_policy_that_it_is_about_is_not_measured() -> None:
    assert "| not measured |" in table("goals", run(gpu_sharing=figures(), las=figures()))


def test_philly_has_two_goals_for_the_mean() -> None:
    aims = document.aims("philly-vc", ["fifo", "srtf", "las", "packing"])
    assert [goal for key, _, goal in aims if key == "mean_h"] == [0.80, 0.75]


def test_jobs_that_are_in_no_figure_are_named() -> None:
    assert "3 refused on sia-1-t4 under las" in table("left_out", run(las=figures(refused=3.0)))


@pytest.mark.parametrize(
    ("least", "most", "value", "wanted", "met"),
    [
        (0.7, 0.9, 0.8, "0.70 to 0.90", True),
        (0.7, 0.9, 0.91, "0.70 to 0.90", False),
        (3.0, None, 2.0, "at least 3.00", False),
        (None, 0.0, 0.0, "at most 0.00", True),
        (None, None, 7.0, "", True),
    ],
)
def test_what_a_figure_should_be(
    least: float | None, most: float | None, value: float, wanted: str, met: bool
) -> None:
    figure = Figure("eta", "inside", "it", "{:.2f}", least, most)
    assert figure.wanted() == wanted
    assert figure.met(value) is met


def test_a_figure_that_was_not_measured_is_said_to_be_so() -> None:
    assert "| not measured |" in table("daemon", run())


def test_how_fast_the_machine_was_is_told_by_an_empty_call() -> None:
    figures = {"measure": {"ns": 120.0, "ratio": 4.0}}
    made = {"figures": figures, "seconds": {}, "finished": True, "at": "", "cores": 2, "python": ""}
    assert "An empty method call took 30 ns." in table("made", made)


def test_an_interval_is_told_with_its_figure() -> None:
    found = {"overhead": {"slow": 0.4, "slow_low": 0.3, "slow_high": 0.6}}
    assert Figure("overhead", "slow", "it", "{:.2f} %").told(found) == "0.40 % (0.30 % to 0.60 %)"
    assert Figure("overhead", "fast", "it").told(found) == "not measured"


@pytest.mark.parametrize(("count", "left_out"), [(5, 0), (6, 0), (12, 2), (100, 39)])
def test_an_interval_leaves_out_as_many_at_either_end_as_a_coin_allows(
    count: int, left_out: int
) -> None:
    # Tables of the sign test: 6 values have the median between them in 97 of 100 cases.
    assert interval(range(count)) == (left_out, count - 1 - left_out)


def test_a_table_has_the_mean_over_the_draws() -> None:
    runs = [Run(Case("t", "t.csv", "1x1x1:t4"), "las", seed) for seed in (1, 2)]
    found = {"t/las/1": figures(mean_h=1.0), "t/las/2": figures(mean_h=2.0)}
    row = tabled(runs, found)["t"]["las"]
    assert row["mean_h"] == 1.5
    assert row["seeds"] == 2


def test_every_trace_has_a_name_of_its_own_goals() -> None:
    assert all(name.startswith(("sia", "gavel", "shockwave", "philly")) for name in CASES)


def test_what_is_left_goes_by_what_it_took_before_and_how_it_goes_now() -> None:
    now = 0.0
    left = Left({"a": 10.0, "b": 50.0}, clock=lambda: now)
    assert left.words() == "0 of 2, 1:00 left"
    now = 20.0
    left.ended("a")
    assert left.words() == "1 of 2, 1:40 left"
    left.ended("b")
    assert left.words() == "2 of 2"


def test_nothing_is_said_of_what_was_never_done() -> None:
    assert Left({"a": None, "b": None}).words() == "0 of 2"


def test_regrets_above_the_goal_are_bold() -> None:
    row = dict.fromkeys(("hours", "gpu_hours", "restarts_per_job"), 2.0)
    row |= {f"true_{key}": 1.0 for key in row}
    worlds = {
        "cliff": {**row, "regret": 0.2, "by_elastic": 0.9, "by_srtf": 0.5, "regret_seeds": [0.2]},
        "cache": {**row, "regret": 0.1, "by_elastic": 1.2, "by_srtf": 0.5, "regret_seeds": [0.1]},
    }
    made = table("regret", {"figures": {"regret": {"worlds": worlds}}})
    assert "| cliff | **+20.0%** | +20% | 0.90 | 0.50 | 2.00, 1.00 | 2, 1 | 2.0, 1.0 |" in made
    assert "| cache | +10.0% | +10% | **1.20** |" in made
