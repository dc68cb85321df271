from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from scheduler.core.model import Job, JobId, JobSpec, Run, RunPhase, Share, View
from scheduler.store.day_usage import DAY_MAX, DAY_SECONDS, DAYS_MAX, DayUsage, ended, of_run, total

GPUS = (Share("n", "gpu0", 1000), Share("n", "gpu1", 1000))


def run(began: float, attempt: int = 1) -> Run:
    return Run(attempt, GPUS, RunPhase.RUNNING, began, began, 5)


def used(began: float, until: float) -> list[tuple[object, ...]]:
    return [astuple(part) for part in of_run(run(began), "ada", "vision", until)]


def test_a_run_within_a_day_counts_for_each_of_its_gpus() -> None:
    assert used(100.0, 150.0) == [(0, "ada", "vision", 100.0, 50.0, 1)]


def test_a_run_over_midnight_is_split() -> None:
    assert used(DAY_SECONDS - 10.0, 2 * DAY_SECONDS + 5.0) == [
        (0, "ada", "vision", 20.0, 10.0, 1),
        (1, "ada", "vision", 2.0 * DAY_SECONDS, float(DAY_SECONDS), 0),
        (2, "ada", "vision", 10.0, 5.0, 0),
    ]


def test_a_clock_that_was_set_makes_neither_time_nor_endless_rows() -> None:
    assert used(100.0, 50.0) == [(0, "ada", "vision", 0.0, 0.0, 1)]
    assert len(used(0.0, 1e10)) == DAYS_MAX


@pytest.mark.parametrize("after", [None, run(200.0, attempt=2)])
def test_a_run_counts_when_it_has_ended(after: Run | None) -> None:
    job = Job(JobId("a"), JobSpec("a", "ada", project="vision"), 0.0, run=run(100.0))
    before = View(jobs={job.id: job})
    now = View(jobs={job.id: replace(job, run=after)})
    (part,) = ended(before, now, [job.id], 150.0)
    assert part.run_seconds == 50.0
    resized = View(jobs={job.id: replace(job, run=replace(run(100.0), shares=GPUS[:1]))})
    assert list(ended(before, resized, [job.id], 150.0)) == []


def test_a_total_has_one_row_for_each_key_the_newest_day_first() -> None:
    parts = [DayUsage(day, user, "", 2.0, 1.0, 1) for day in (1, 2, 1) for user in ("b", "a")]
    assert [astuple(row) for row in total(parts)] == [
        (2, "a", "", 2.0, 1.0, 1),
        (2, "b", "", 2.0, 1.0, 1),
        (1, "a", "", 4.0, 2.0, 2),
        (1, "b", "", 4.0, 2.0, 2),
    ]


def test_a_clock_that_is_beyond_every_calendar_makes_a_day_that_can_be_stored() -> None:
    assert {day for day, *_ in used(began=1e300, until=2e300)} == {DAY_MAX}
    assert {day for day, *_ in used(began=-1e300, until=0.0)} == {0}
