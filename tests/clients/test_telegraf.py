"""Unmodified scripts for pytelegraf and for InfluxDB's clients, which speak to the relay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.tracked_job import ALL_STEPS, EPOCHS, TrackedJob, python_with, tracked_job
from tests.clients.trainings.epochs import STEPS

pytestmark = pytest.mark.clients
REPEATED = range(3 * STEPS, 4 * STEPS)  # by the attempt after the kill
LOGGED = sorted([*range(ALL_STEPS), *REPEATED])  # lines have no steps: each counts


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


def test_a_script_is_tracked_through_a_preemption_and_kills(job: TrackedJob) -> None:
    python = python_with("telegraf", "influxdb", "influxdb_client")
    begin = int(time.time()) - 1000
    job.submit(python, "with_telegraf.py", BEGIN=str(begin))
    job.train_through_hardship()
    assert job.output.count("version 1.8.10\npong True") == 3
    job.await_delivery()

    def logged(measurement: str, field: str, **tags: str) -> list[Any]:
        return sorted(job.values(measurement, field, **tags))

    # The document's own lines, at the beginning of each of three attempts.
    assert logged("test_metric", "value", server_name="") == [123] * 3
    assert logged("test_metric", "value", server_name="my-server") == [123] * 3
    assert logged("test_metric", "value_c") == [True] * 3
    assert logged("training_loss", "iteration", experiment_id="10", user="vogels") == LOGGED
    assert logged("training_loss", "value") == sorted(1 / (step + 1) for step in LOGGED)
    assert logged("odd", "value") == LOGGED
    assert logged("odd", "iteration") == LOGGED
    assert f'a "quoted" 5" step {ALL_STEPS - 1}' in logged("odd", "note")
    assert logged("by_http", "value", way="http") == LOGGED
    assert logged("by_client", "step", rank="0") == LOGGED
    assert logged("by_client", "text") == ['with "quotes"'] * len(LOGGED)
    assert logged("by_client_2", "step") == LOGGED
    assert logged("by_client_2", "epoch") == sorted([*range(EPOCHS), 3])
    assert job.points("by_lines", "step") == [
        ((begin + step) * 10**9, step) for step in range(ALL_STEPS)
    ]
    assert [each[:2] for each in job.troubles()] == [
        ("refused", "line protocol: no field at 'is no line'")
    ], job.said()
    assert job.metrics()["odd.loss"]["last"] == "NaN"
