"""The figures about a trace are correct."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model import JobId, JobSpec, Launch, Outcome, Share
from simulator.trials.outcome import Result, Tally, quantile

A, B = JobId("a"), JobId("b")
HOUR = 3600.0


def launch(job_id: JobId, attempt: int = 1, gpus: int = 1) -> Launch:
    shares = tuple(Share("n0", f"gpu{n}", 1000) for n in range(gpus))
    return Launch(job_id, attempt, JobSpec(job_id, "ann"), shares, 0, 1, "")


def two_jobs() -> Result:
    """a waits an hour, trains for two on both GPUs, waits one and trains for two again. b comes
    with it and never runs."""
    tally = Tally()
    tally.record_submission(A, JobSpec("a", "ann"), 0.0)
    tally.record_submission(B, JobSpec("b", "ann"), 0.0)
    for attempt, since, until in ((1, 1.0, 3.0), (2, 4.0, 6.0)):
        run = launch(A, attempt, gpus=2)
        tally.record_launch(run, since * HOUR)
        tally.add_busy_gpus(2, since * HOUR)
        tally.add_busy_gpus(-2, until * HOUR)
        last = attempt == 2
        tally.record_run_end(run, since * HOUR, until * HOUR, finished=last, preempted=not last)
    tally.effective_gpu_seconds = 6 * HOUR
    tally.record_outcome(A, Outcome.SUCCEEDED, 6 * HOUR + 5.0)
    return tally.build_result(
        gpus=4,
        refused=["job 3: too large"],
        steps=7,
        cpu_seconds=0.5,
        alone_seconds={A: 3 * HOUR, B: 0.0},
    )


def test_the_summary_of_two_jobs_by_hand() -> None:
    assert two_jobs().summary() == {
        "mean_h": 6.0,
        "median_h": 6.0,
        "p90_h": 6.0,
        "p99_h": 6.0,
        "queued_h": 2.0,
        "slowdown": 2.0,
        "slowdown_p99": 2.0,
        "fairness": 1.0,
        "makespan_h": 6.0,
        "utilisation": 8 / 24,
        "effective": 6 / 24,
        "restarts_per_job": 0.5,
        "restarts_per_job_hour": 1 / 4,
        "preemptions_per_job": 0.5,
        "finished": 1,
        "failed": 0,
        "unfinished": 1,
        "refused": 1,
        "steps": 7,
        "cpu_seconds": 0.5,
    }


def test_a_job_ends_when_its_last_run_does_and_not_when_that_is_heard() -> None:
    a, b = two_jobs().jobs
    assert (a.started_at, a.ended_at) == (HOUR, 6 * HOUR)
    assert (b.started_at, b.ended_at, b.outcome) == (None, None, None)
    assert math.isnan(b.seconds)


def test_there_is_a_bar_for_each_run_on_each_gpu() -> None:
    bars = [(bar.gpu, bar.attempt, bar.from_at, bar.to_at) for bar in two_jobs().bars]
    assert bars == [
        (gpu, attempt, since * HOUR, until * HOUR)
        for gpu in ("gpu0", "gpu1")
        for attempt, since, until in ((1, 1.0, 3.0), (2, 4.0, 6.0))
    ]


def test_the_series_is_of_means_that_add_up() -> None:
    series = two_jobs().series
    # The trace ends with the last event, and b waits all the time.
    width = (6 * HOUR + 5.0) / len(series)
    assert [sample.at for sample in series] == pytest.approx([n * width for n in range(240)])
    assert sum(sample.busy for sample in series) * width == pytest.approx(8 * HOUR)
    assert sum(sample.queued - 1.0 for sample in series) * width == pytest.approx(2 * HOUR)


def test_a_job_that_failed_waits_no_more() -> None:
    tally = Tally()
    tally.record_submission(A, JobSpec("a", "ann"), 0.0)
    tally.record_launch(launch(A), 0.0)
    tally.record_run_end(launch(A), 0.0, 10.0, finished=False, preempted=False)
    tally.record_outcome(A, Outcome.FAILED, 10.0)
    tally.add_busy_gpus(0, 20.0)
    result = tally.build_result(
        gpus=1, refused=(), steps=1, cpu_seconds=0.0, alone_seconds={A: 9.0}
    )
    assert {sample.queued for sample in result.series} == {0.0}
    summary = result.summary()
    assert (summary["failed"], summary["finished"]) == (1, 0)
    assert math.isnan(summary["mean_h"])


@given(st.lists(st.floats(0, 1e6), min_size=2), st.integers(1, 99))
def test_quantiles_are_those_of_the_standard_library(values: list[float], percent: int) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert quantile(sorted(values), percent / 100) == pytest.approx(expected)


def test_quantiles_of_little() -> None:
    assert quantile([3.0], 0.99) == 3.0
    assert math.isnan(quantile([], 0.5))
