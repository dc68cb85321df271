"""Reads from the reports of runs what the scheduler does not learn: pauses and restart times.

It uses only runs that have ended and have plausible reports.
"""

from __future__ import annotations

import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from scheduler.core.model import JobId, Time

_HELD = "json_extract(f.data, '$.seconds')"
_RUNS = f"""
    select p.job_id, count(*), sum(p.epoch_seconds), max(p.at) - min(p.at - p.epoch_seconds),
        {_HELD}
    from profiles p join facts f using (job_id, attempt)
    where p.rank = 0 and f.kind = 'run_ended' and f.at > ?
    group by job_id, attempt having max(p.epoch) - min(p.epoch) + 1 = count(*)
"""
_SITUATIONS = f"""
    select p.job_id, p.placement, p.beside, count(*), sum(p.epoch_seconds)
    from profiles p join facts f using (job_id, attempt)
    where p.rank = 0 and f.kind = 'run_ended' and f.at > ?
        and p.epoch_seconds > 0.0 and p.epoch_seconds <= {_HELD}
    group by job_id, placement, beside
"""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run that reported all of its epochs."""

    job_id: JobId
    epochs: int
    epoch_seconds: float  # of all its epochs
    span_seconds: float  # from the beginning of the first to the report of the last
    held_seconds: float  # from its launch until an observation did not show it

    @property
    def plausible(self) -> bool:
        return self.epoch_seconds > 0.0 and self.span_seconds <= self.held_seconds


@dataclass(frozen=True, slots=True)
class RunConditions:
    """A job's epochs on one placement beside the same jobs."""

    placement: str
    beside: tuple[JobId, ...]
    epochs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReportedTimes:
    pauses: Mapping[JobId, float]  # seconds between two epochs
    besides_epochs: float | None  # seconds of a run before its first and after its last epoch
    situations: Mapping[JobId, Sequence[RunConditions]]


def read_reported_times(db: sqlite3.Connection, since: Time) -> ReportedTimes:
    runs = [run for row in db.execute(_RUNS, (since,)) if (run := ReportedRun(*row)).plausible]
    besides = [run.held_seconds - run.span_seconds for run in runs]
    situations: dict[JobId, list[RunConditions]] = {}
    for job_id, placement, beside, epochs, seconds in db.execute(_SITUATIONS, (since,)):
        others = msgspec.json.decode(beside, type=tuple[JobId, ...])
        situations.setdefault(job_id, []).append(RunConditions(placement, others, epochs, seconds))
    return ReportedTimes(_pauses(runs), statistics.fmean(besides) if besides else None, situations)


def _pauses(runs: Sequence[ReportedRun]) -> dict[JobId, float]:
    seconds: defaultdict[JobId, float] = defaultdict(float)
    count: defaultdict[JobId, int] = defaultdict(int)
    for run in runs:
        seconds[run.job_id] += run.span_seconds - run.epoch_seconds
        count[run.job_id] += run.epochs - 1
    return {job_id: max(0.0, seconds[job_id]) / n for job_id, n in count.items() if n}
