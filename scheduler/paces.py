"""How fast jobs are where they run now, alone and beside their neighbours: as measured, or else as
expected. Pure. For what people are told; plans ask speed.py and interference.py themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.interference import Interference
from scheduler.measurements import parse
from scheduler.model import Job, JobId, Run, RunPhase, View
from scheduler.speed import SD_HOURS, SD_MEASURED, SD_UNKNOWN, SECONDS_UNKNOWN, Config, Speeds

DOUBT_MAX = 1.0  # relative; beyond it nobody has seen the like of a job


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a run, in seconds per epoch."""

    seconds: float  # as it runs now
    alone: float  # were it alone where it is
    beside: tuple[JobId, ...]  # who trains on its GPUs too
    measured: bool  # `seconds` is a measurement of just this; else what is expected
    doubt: float  # relative standard deviation of `seconds`

    @property
    def speed(self) -> float:
        """Relative to being alone; noise makes nobody faster."""
        return min(1.0, self.alone / self.seconds)


class Paces:
    """What is known of all jobs that live, looked at as somebody asks."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.jobs = [job for job in view.jobs.values() if job.outcome is None]
        self.row = {job.id: row for row, job in enumerate(self.jobs)}
        self.speeds = Speeds(self.jobs, view.kinds)
        self._slowed: dict[str, Interference] = {}  # by type
        runs = dict.fromkeys(job.run.placement for job in self.jobs if job.run)
        places = [place for place in map(parse, runs) if place]
        self._column = {place: column for column, place in enumerate(places)}
        configs = [Config(*place) for place in places]
        self._seconds = self.speeds.estimate(configs)
        self._doubt = self.speeds.uncertainty(configs)

    def of(self, job: Job, run: Run) -> Pace:
        here = {m.beside: m.seconds for m in job.measured if m.placement == run.placement}
        alone, doubt = self._alone(job, run)
        alone = here.get((), alone)
        beside = neighbours(job, run, self.view)
        if beside in here:
            return Pace(here[beside], alone, beside, True, SD_MEASURED)
        seconds = alone
        for other in beside:
            seconds /= self.speed_beside(job, other, run)
        return Pace(seconds, alone, beside, False, doubt)

    def speed_beside(self, job: Job, other: JobId, run: Run) -> float:
        """How fast the job is expected to be beside another one, relative to alone."""
        place = parse(run.placement)
        if place is None or other not in self.row:
            return 1.0
        type = place[0]
        if type not in self._slowed:
            self._slowed[type] = Interference(self.jobs, self.view.kinds, type)
        pair = np.array([self.row[job.id]]), np.array([self.row[other]])
        return float(self._slowed[type].speeds(*pair)[0, 0])

    def _alone(self, job: Job, run: Run) -> tuple[float, float]:
        """Seconds, and the doubt about them."""
        place = parse(run.placement)
        if place:
            at = self.row[job.id], self._column[place]
            return float(self._seconds[at]), float(self._doubt[at])
        # Without GPUs, or with those of several types, there is no law: only its owner's word.
        if job.spec.hours_estimate:
            return job.spec.hours_estimate * 3600 / max(1, job.max_epochs), SD_HOURS
        return SECONDS_UNKNOWN, SD_UNKNOWN


def neighbours(job: Job, run: Run, view: View) -> tuple[JobId, ...]:
    """Who trains on the same GPUs, and does not only hold memory there."""
    others = {other for share in run.shares for other, _ in view.held.get(share.key, ())}
    return tuple(sorted(other for other in others - {job.id} if _trains(view.jobs.get(other))))


def _trains(job: Job | None) -> bool:
    return bool(job and job.run and job.run.phase is not RunPhase.STARTING)
