"""How fast jobs are where they run now, alone and beside their neighbours: measured, or else
expected. Pure. This is for users; plans use speed.py and interference.py directly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler.core.model import Job, JobId, Placement, Run, View
from scheduler.core.runs import neighbours
from scheduler.estimates.arrays import Floats
from scheduler.estimates.interference import Interference
from scheduler.estimates.speed import Speeds

# Standard deviations, relative.
DOUBT_MEASURED, DOUBT_SAID = 0.02, 0.7
DOUBT_MAX = 1.0  # above it, nothing like this job has been measured
SECONDS_UNKNOWN, DOUBT_UNKNOWN = 600.0, 1.2


@dataclass(frozen=True, slots=True)
class CurrentSpeed:
    """The speed of a run, in seconds per epoch."""

    seconds: float  # as it runs now
    alone: float  # if it were alone on its GPUs
    beside: tuple[JobId, ...]  # the jobs that also train on its GPUs
    measured: bool  # `seconds` is a measurement of exactly this situation; else it is expected
    doubt: float  # relative standard deviation of `seconds`

    @property
    def speed(self) -> float:
        """Relative to being alone, and never above 1: noise makes no job faster."""
        return min(1.0, self.alone / self.seconds)


class CurrentSpeeds:
    """The speeds of all live jobs, computed on demand."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.jobs = [job for job in view.jobs.values() if job.outcome is None]
        self.row = {job.id: row for row, job in enumerate(self.jobs)}
        self.speeds = Speeds(self.jobs, view.kinds)
        self._slowed: dict[str, Interference] = {}  # by type
        self._expected: dict[Placement, tuple[Floats, Floats]] = {}
        self._expect(job.run.placement for job in self.jobs if job.run)

    def _expect(self, placements: Iterable[str]) -> None:
        places = dict.fromkeys(place for place in map(Placement.parse, placements) if place)
        configs = list(places)
        seconds, doubt = self.speeds.estimate(configs), self.speeds.uncertainty(configs)
        for column, config in enumerate(configs):
            self._expected[config] = seconds[:, column], doubt[:, column]

    def of(self, job: Job, run: Run) -> CurrentSpeed:
        here = {m.beside: m.seconds for m in job.measured if m.placement == run.placement}
        alone, doubt = self.alone(job, run.placement)
        alone = here.get((), alone)
        beside = neighbours(job.id, run, self.view.held, self.view.jobs)
        if beside in here:
            return CurrentSpeed(here[beside], alone, beside, True, DOUBT_MEASURED)
        seconds = alone
        for other in beside:
            seconds /= self.speed_beside(job, other, run)
        return CurrentSpeed(seconds, alone, beside, False, doubt)

    def speed_beside(self, job: Job, other: JobId, run: Run) -> float:
        """Returns the expected speed of the job beside another one, relative to alone."""
        place = Placement.parse(run.placement)
        if place is None or other not in self.row:
            return 1.0
        type = place.type
        if type not in self._slowed:
            self._slowed[type] = Interference(self.jobs, self.view.kinds, type, self.speeds)
        pair = np.array([self.row[job.id]]), np.array([self.row[other]])
        return float(self._slowed[type].speeds(*pair)[0, 0])

    def alone(self, job: Job, placement: str) -> tuple[float, float]:
        """Returns the seconds per epoch, and their relative standard deviation."""
        if place := Placement.parse(placement):
            if place not in self._expected:
                self._expect([placement])
            seconds, doubt = self._expected[place]
            return float(seconds[self.row[job.id]]), float(doubt[self.row[job.id]])
        # Without GPUs, or with GPUs of several types, there is no model: only the owner's estimate.
        if job.spec.hours_estimate:
            return job.spec.hours_estimate * 3600 / max(1, job.max_epochs), DOUBT_SAID
        return SECONDS_UNKNOWN, DOUBT_UNKNOWN
