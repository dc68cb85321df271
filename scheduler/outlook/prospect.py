"""What people are told of a job's future: the values. How they are found out: outlook.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scheduler.core.model import Job, JobId, Reason, Time, View


@dataclass(frozen=True, slots=True)
class Interval:
    """Of moments. In four of five cases it is between low and high, in half before the middle."""

    low: Time
    middle: Time
    high: Time


@dataclass(frozen=True, slots=True)
class Forecast:
    """What cannot be said is None."""

    starts_at: Interval | None = None  # its next run, if it waits
    ends_at: Interval | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """The job would start now if all these were gone; or else with another wish."""

    until: tuple[JobId, ...] = ()  # they hold GPUs
    ahead: tuple[JobId, ...] = ()  # they wait, and come first
    instead: str = ""  # "with --num_gpus 1"


NO_REMEDY = Remedy()


@dataclass(frozen=True, slots=True)
class SpeedOn:
    """Seconds of an epoch, alone; None: not measured, or nothing to predict from."""

    gpus: str  # the key of a placement
    measured: float | None
    predicted: float | None


@dataclass(frozen=True, slots=True)
class SpeedBeside:
    jobs: tuple[JobId, ...]
    gpus: str
    speed: float  # relative to alone
    measured: bool  # else it is expected


@dataclass(frozen=True, slots=True)
class Prospect:
    """Of one job."""

    forecast: Forecast | None = None
    remedy: Remedy = NO_REMEDY
    slowed: Reason | None = None
    speeds: tuple[SpeedOn, ...] = ()
    beside: tuple[SpeedBeside, ...] = ()


class Foresight(Protocol):
    def of(self, job: Job, view: View, now: Time) -> Prospect:
        """Takes a while; may be called from any thread."""
