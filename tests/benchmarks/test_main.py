"""All benchmarks in one run, which continues after an interruption."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import ROOT


def benchmarks(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_what_failed_is_tried_again_and_what_is_there_is_not(tmp_path: Path) -> None:
    made = tmp_path / "bench.json"
    words = "measure", "policies", "--data", tmp_path, "--output", made
    done = benchmarks(*words)
    assert done.returncode == 1
    assert "=== measure; 0 of 2" in done.stderr
    assert "policies: " in done.stderr
    assert "failed: policies" in done.stderr
    run = json.loads(made.read_text())
    assert run["figures"]["measure"]["ns"] > 0.0
    assert run["seconds"].keys() == run["figures"].keys() == {"measure"}
    assert not run["finished"]

    again = benchmarks(*words)
    assert "=== measure" not in again.stderr
    assert "=== policies; 1 of 2" in again.stderr


def test_an_unknown_benchmark_is_refused() -> None:
    done = benchmarks("measure", "nonsense")
    assert done.returncode == 2
    assert done.stderr == "benchmarks: unknown benchmark: nonsense\n"


def test_nothing_is_published_that_was_not_measured(tmp_path: Path) -> None:
    done = benchmarks("--publish", "--output", tmp_path / "bench.json")
    assert done.returncode == 2
    assert "make bench" in done.stderr
