"""How long runs had GPUs, by day, user and project. Values only: no SQL is run here.

A run is written when it ends, in the transaction that ends it. Of a run that goes on, its row of
the job says since when it has its GPUs. So each run is counted once, whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from scheduler.core.model import JobId, Run, Time, View

DAY_SECONDS = 86_400
DAYS_MAX = 1_100  # of one run; if a clock was set by decades, the rest is not counted
DAY_MAX = 2_932_896  # the last day of the year 9999: a run on a later day has a wrong clock

KEYS = ("day", "user", "project")
COLUMNS = (*KEYS, "gpu_seconds", "run_seconds", "runs")


@dataclass(frozen=True, slots=True)
class DayUsage:
    """`day` counts from 1970-01-01 in UTC."""

    day: int
    user: str
    project: str
    gpu_seconds: float  # of each GPU that a run had, shared or not
    run_seconds: float
    runs: int  # that began on this day


def of_run(run: Run, user: str, project: str, until: Time) -> Iterator[DayUsage]:
    """What a run has used up to this moment; at least one day."""
    latest = DAY_MAX * DAY_SECONDS
    began, until = min(max(run.started_at, 0.0), latest), min(until, latest)
    gpus = len(run.shares)
    first, last = int(began // DAY_SECONDS), int(max(began, until) // DAY_SECONDS)
    for day in range(max(first, last - DAYS_MAX + 1), last + 1):
        begins, ends = max(began, day * DAY_SECONDS), min(until, (day + 1) * DAY_SECONDS)
        seconds = max(0.0, ends - begins)
        yield DayUsage(day, user, project, seconds * gpus, seconds, int(day == first))


def ended(before: View, after: View, touched: Sequence[JobId], at: Time) -> Iterator[DayUsage]:
    """Of the runs that have ended between the two views."""
    for job_id in touched:
        old, new = before.jobs.get(job_id), after.jobs.get(job_id)
        if old is None or old.run is None or old is new:
            continue
        if not (new and new.run and new.run.attempt == old.run.attempt):
            yield from of_run(old.run, old.spec.user, old.spec.project, at)


def total(parts: Sequence[DayUsage], by: Collection[str] = KEYS) -> list[DayUsage]:
    """One for each of `by`, the newest day first. The other keys are 0 and empty."""
    days, users, projects = (key in by for key in KEYS)
    sums: dict[tuple[int, str, str], tuple[float, float, int]] = {}
    for part in parts:
        key = -part.day * days, part.user * users, part.project * projects
        gpu_seconds, run_seconds, runs = sums.get(key, (0.0, 0.0, 0))
        sums[key] = (
            gpu_seconds + part.gpu_seconds,
            run_seconds + part.run_seconds,
            runs + part.runs,
        )
    return [
        DayUsage(-day, user, project, *sums[day, user, project])
        for day, user, project in sorted(sums)
    ]
