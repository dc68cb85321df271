"""Trials of traces: finished trials are not repeated, and unknown names are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import ROOT, sources


def policies(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.policies", "--json", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policies", "fifo,nonsense"), "policies: unknown: nonsense; known: gpu_sharing"),
        (("--only", "nonsense"), "policies: no trace matches nonsense; known: sia-1-t4"),
        (("--only", "sia-1-t4", "--policies", "fifo", "--data", "/nowhere"), "policies: /nowhere/"),
    ],
)
def test_what_there_is_not_is_refused_in_one_line(words: tuple[str, ...], said: str) -> None:
    done = policies(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("same", [True, False])
def test_a_trial_of_the_same_programs_is_not_run_again(tmp_path: Path, same: bool) -> None:
    kept = dict.fromkeys(
        (
            *("mean_h", "median_h", "p99_h", "makespan_h", "utilisation", "restarts_per_job"),
            *("unfinished", "refused", "cpu_seconds", "alone_h"),
        ),
        7.0,
    )
    path = tmp_path / "trials.json"
    digest = sources() if same else "of another version"
    path.write_text(json.dumps({"sources": digest, "trials": {"sia-1-t4/fifo/1": kept}}))
    asked = "--only", "sia-1-t4", "--policies", "fifo", "--output", path, "--data", "/nowhere"
    done = policies(*asked)
    if same:
        assert json.loads(done.stdout) == {"sia-1-t4": {"fifo": {**kept, "seeds": 1}}}
    else:
        assert done.returncode == 2, "it was to be run"
