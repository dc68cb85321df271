"""The benchmark of learning, in small."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.figures import ROOT
from benchmarks.regret import HONESTLY, LEARNED, TRUE, UNTRIED, Play, told

TRIED = ("tries", "tries_faster", "tried_gpu_hours")
FIGURES = (
    *TRIED,
    "hours",
    "lying_hours",
    "gpu_hours",
    "lying_gpu_hours",
    "honest_gpu_hours",
    "restarts_per_job",
    "unfinished",
    "cpu_seconds",
)


def regret(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.regret", "--json", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_few_jobs_of_one_world_give_all_keys() -> None:
    done = regret("--only", "liars", "--jobs", "8", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    row = figures["worlds"]["liars"]
    assert figures["worst"] == figures["mean"] == row["regret"] == row["regret_seeds"][0]
    assert figures["worst_by_elastic"] == figures["by_elastic"] == row["by_elastic"]
    assert row["regret"] == pytest.approx(row["hours"] / row["true_hours"] - 1.0, abs=1e-3)
    assert row["unfinished"] == 0
    assert 0 <= row["tries_faster"] <= row["tries"]
    assert row["by_untried_seeds"] == [row["by_untried"]]
    assert {"by_srtf", "gpu_hours", "true_gpu_hours", "restarts_per_job", "liars"} <= row.keys()


def test_a_world_that_there_is_not_is_refused_in_one_line() -> None:
    done = regret("--only", "nonsense")
    assert done.returncode == 2
    assert done.stderr.startswith("regret: no world matches nonsense; known: cliff")
    assert done.stderr.count("\n") == 1


def test_the_worst_world_counts_and_seeds_are_averaged() -> None:
    hours = {
        ("cliff", LEARNED): (1.0, 3.0),
        ("cliff", TRUE): (1.0, 2.0),
        ("cliff", "elastic"): (4.0, 4.0),
        ("liars", LEARNED): (1.0, 1.0),
        ("liars", TRUE): (1.0, 1.0),
        ("liars", "elastic"): (1.0, 1.0),
        ("liars", HONESTLY): (2.0, 2.0),
    }
    hours |= {(world, how): (5.0, 5.0) for world in ("cliff", "liars") for how in ("srtf", UNTRIED)}
    found = {
        Play(world, seed, how).name: dict.fromkeys(FIGURES, value)
        for (world, how), values in hours.items()
        for seed, value in enumerate(values, 1)
    }
    figures = told(["cliff", "liars"], [1, 2], found)
    assert (figures["worst"], figures["worst_by_elastic"]) == (0.3333, 1.0)
    worlds = figures["worlds"]
    assert isinstance(worlds, dict)
    assert worlds["cliff"]["regret_seeds"] == [0.0, 0.5]
    assert (worlds["cliff"]["saved_gpu_hours"], worlds["cliff"]["by_untried"]) == (3.0, 0.4)
    assert worlds["liars"]["liars"] == 0.5
    assert worlds["liars"]["liars_seeds"] == [0.5, 0.5]
    assert worlds["liars"]["by_honest"] == 0.5
    assert worlds["liars"]["liars_gpu_hours"] == worlds["liars"]["honest_gpu_hours"] == 0.5
    assert "liars" not in worlds["cliff"]
