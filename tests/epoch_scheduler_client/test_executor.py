"""Functions as jobs."""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path

import pytest

from epoch_scheduler_client import Client, JobExecutor, JobFailed, JobSpec
from tests.support import eventually

SPEC = JobSpec("call", num_gpus=0)


def test_functions_run_as_jobs_and_return_their_results(client: Client, tmp_path: Path) -> None:
    with JobExecutor(client, SPEC, tmp_path / "calls") as executor:
        futures = [executor.submit(pow, 2, number) for number in range(3)]
        assert [future.result(60) for future in futures] == [1, 2, 4]
    assert [job.record()["name"] for job in reversed(client.jobs())] == [
        "call-0",
        "call-1",
        "call-2",
    ]
    assert list((tmp_path / "calls").iterdir()) == []
    found = client.map(operator.mul, [1, 2], [3, 4], spec=SPEC, folder=tmp_path)
    assert found == [3, 8]


def test_an_exception_of_the_function_is_raised_here(client: Client, tmp_path: Path) -> None:
    with JobExecutor(client, SPEC, tmp_path) as executor:
        future = executor.submit(math.sqrt, -1.0)
        assert isinstance(future.exception(60), ValueError)
    assert "ValueError" in client.jobs()[0].logs()


def test_a_job_that_ends_without_a_result_says_how(client: Client, tmp_path: Path) -> None:
    with JobExecutor(client, SPEC, tmp_path) as executor:
        future = executor.submit(os._exit, 7)
        with pytest.raises(JobFailed, match="is FAILED: exit code 7") as told:
            future.result(60)
    assert told.value.state == "FAILED"


def test_a_future_that_is_cancelled_cancels_its_job(client: Client, tmp_path: Path) -> None:
    held = JobSpec("call", num_gpus=0, held=True)
    with JobExecutor(client, held, tmp_path) as executor:
        future = executor.submit(pow, 2, 2)
        assert future.cancel()
        (job,) = client.jobs()
        eventually(lambda: job.state() == "CANCELED")
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 2)


def test_a_result_that_cannot_be_pickled_is_an_error(client: Client, tmp_path: Path) -> None:
    with JobExecutor(client, SPEC, tmp_path) as executor:
        error = executor.submit(open, os.devnull).exception(60)
    assert isinstance(error, TypeError)
    assert "cannot be pickled" in str(error)
