"""What users are told about a job's future: the values. service.py computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scheduler.core.model import Job, JobId, Reason, Time, View
from scheduler.estimates.next_try import NextTry


@dataclass(frozen=True, slots=True)
class Interval:
    """An event happens between low and high in four of five cases, before the middle in half."""

    low: Time
    middle: Time
    high: Time


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is unknown is None."""

    starts_at: Interval | None = None  # of the next run, if the job waits
    ends_at: Interval | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """The job would start now without all these jobs, or with other flags."""

    until: tuple[JobId, ...] = ()  # these hold GPUs
    ahead: tuple[JobId, ...] = ()  # these wait, and are served first
    instead: str = ""  # "with --num_gpus 1"


NO_REMEDY = Remedy()


@dataclass(frozen=True, slots=True)
class SpeedOn:
    """Seconds of an epoch, alone; None: not measured, or no data for a prediction."""

    gpus: str  # the key of a placement
    measured: float | None
    predicted: float | None
    doubt: float | None = None  # the relative standard deviation of the prediction


@dataclass(frozen=True, slots=True)
class SpeedBeside:
    jobs: tuple[JobId, ...]
    gpus: str
    speed: float  # relative to alone
    measured: bool  # else it is expected


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is expected of one job, and what was learned about it."""

    forecast: Forecast | None = None
    remedy: Remedy = NO_REMEDY
    slowed: Reason | None = None
    speeds: tuple[SpeedOn, ...] = ()
    beside: tuple[SpeedBeside, ...] = ()
    next_try: NextTry | None = None
    # When the runs of this job and of those in `remedy.until` are ended if they stay silent.
    deadlines: tuple[tuple[JobId, Time], ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedSubmission:
    """What the next plan would do with a job if it were submitted now."""

    view: View  # after that plan
    prospect: Prospect


class Foresight(Protocol):
    def of(self, job: Job, view: View, now: Time) -> Prospect:
        """Slow; may be called from any thread."""

    def trial(self, job: Job, view: View, now: Time) -> PlannedSubmission:
        """Of a job that is not in the view. Slow; may be called from any thread."""
