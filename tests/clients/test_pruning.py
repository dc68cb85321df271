"""The rules of scheduler/core/sweeps.py decide as the pruners of the real Optuna do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]


def test_each_decision_on_recorded_curves_is_optunas() -> None:
    words = [os.environ["CLIENTS"], str(Path(__file__).with_name("pruners.py")), "20"]
    paths = f"{ROOT}:{ROOT / 'kubernetesdlprofile'}"
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["different"] == []
    for rule in ("asha", "median"):
        pruned, asked = found["pruned"][rule], found["asked"][rule]
        assert 100 < pruned < asked - 100, rule
