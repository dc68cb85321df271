"""A few kills with full logs and a disk at its reserve; `make bench LONG=--long` has a thousand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.figures import ROOT

MUST_BE_ZERO = (
    *("fell", "lost", "doubled", "repeated_else", "uncounted"),
    *("taken_when_low", "logs_wrong"),
)


@pytest.mark.slow
def test_kills_with_full_logs_and_disk_lose_nothing() -> None:
    words = [sys.executable, "-m", "benchmarks.kills", "--full", "--kills", "2", "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    if "not_measured" in figures:
        pytest.skip(figures["not_measured"])
    assert {key: figures[key] for key in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0)
