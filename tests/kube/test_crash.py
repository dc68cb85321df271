"""A daemon on a real API server that is killed repeatedly, and loses its database once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.crash_kube import judged
from tests.kube.control import ControlPlane


@pytest.mark.usefixtures("controllers")
def test_no_kill_and_no_loss_of_the_database_loses_or_doubles_a_run(
    control: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    verdict = judged(control, namespace, tmp_path, kills=3, live_max=3, seed=7)
    assert verdict["went_on"]
    faults = ("lost", "doubled", "epochs_repeated", "interrupted", "overbooked", "leaked")
    assert {name: verdict[name] for name in faults} == dict.fromkeys(faults, 0)
