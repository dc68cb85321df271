"""Where gpu_sharing has its speeds from: what was learned here, or any other source.

A source is called at each plan with the jobs that have not ended, and returns what is known of
them. Whoever knows speeds otherwise (a profiler, a simulator, a table) gives functions of one job
to `given_speeds`, or writes a source that answers for all jobs at once:

    policy = gpu_sharing(rules, given_speeds(lambda job, placement: 60.0 / placement.gpus))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from scheduler.core.model import Job, JobFamily, Placement
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.speed import Speeds
from scheduler.planning.optimizer.inventory import Stock


class PairSpeeds(Protocol):
    """How fast jobs are beside each other on GPUs of one type, relative to alone: up to 1."""

    @property
    def unseen(self) -> Bools:
        """[row] whether the effect of a neighbour is unknown until the job had an epoch alone."""

    def speeds(self, a: Ints, b: Ints) -> Floats:
        """[a, b] the speed of each job of `a` beside each of `b`. Both are rows."""

    def each(self, a: Ints, b: Ints) -> Floats:
        """The speed of each job of `a` beside the job of `b` at the same position."""


class JobSpeeds(Protocol):
    """What is known of the speeds of some jobs. Each has a row."""

    @property
    def speeds(self) -> Speeds | None:
        """If the speeds are learned, what they are learned from: jobs grow by doubling from where
        they were measured, and may try other GPUs. None: the speeds are believed everywhere."""

    @property
    def shared(self) -> Bools:
        """[row] whether it has had a neighbour for an epoch."""

    @property
    def slowed(self) -> Sequence[PairSpeeds]:
        """For each type of GPU, in the order of the stocks."""

    def rows(self, jobs: Sequence[Job]) -> Ints:
        """The rows of these jobs."""

    def seconds(self, configs: Sequence[Placement]) -> Floats:
        """[row, config] seconds per epoch, alone. Positive and finite."""

    def doubt(self, configs: Sequence[Placement]) -> Floats:
        """[row, config] the relative standard deviation of these. 0: certain."""


SpeedSource = Callable[[Sequence[Job], Mapping[str, JobFamily], Sequence[Stock]], JobSpeeds]
SecondsOf = Callable[[Job, Placement], float]  # per epoch, alone
DoubtOf = Callable[[Job, Placement], float]  # the relative standard deviation of these
BesideOf = Callable[[Job, Job, str], float]  # the speed of the first beside the second, on a type


def given_speeds(
    seconds: SecondsOf,
    doubt: DoubtOf = lambda job, placement: 0.0,
    beside: BesideOf = lambda job, other, type: 1.0,
) -> SpeedSource:
    """A source of speeds that functions of single jobs give. They are called at each plan."""

    def source(
        jobs: Sequence[Job], kinds: Mapping[str, JobFamily], stocks: Sequence[Stock]
    ) -> JobSpeeds:
        slowed = [_GivenPairs(beside, jobs, stock.type) for stock in stocks]
        return _GivenSpeeds(jobs, seconds, doubt, slowed)

    return source


class _GivenSpeeds:
    def __init__(
        self, jobs: Sequence[Job], seconds: SecondsOf, doubt: DoubtOf, slowed: Sequence[PairSpeeds]
    ) -> None:
        self._jobs, self._seconds, self._doubt, self.slowed = jobs, seconds, doubt, slowed
        self._row = {job.id: row for row, job in enumerate(jobs)}
        self.speeds = None
        self.shared = np.zeros(len(jobs), bool)

    def rows(self, jobs: Sequence[Job]) -> Ints:
        return np.array([self._row[job.id] for job in jobs], np.intp)

    def seconds(self, configs: Sequence[Placement]) -> Floats:
        return self._table(self._seconds, configs)

    def doubt(self, configs: Sequence[Placement]) -> Floats:
        return self._table(self._doubt, configs)

    def _table(self, of: SecondsOf, configs: Sequence[Placement]) -> Floats:
        rows = [[of(job, config) for config in configs] for job in self._jobs]
        return np.array(rows, float).reshape(len(self._jobs), len(configs))


class _GivenPairs:
    def __init__(self, beside: BesideOf, jobs: Sequence[Job], type: str) -> None:
        self._beside, self._jobs, self._type = beside, jobs, type
        self.unseen = np.zeros(len(jobs), bool)
        self._known: dict[tuple[int, int], float] = {}

    def speeds(self, a: Ints, b: Ints) -> Floats:
        table = [[self._speed(one, other) for other in b.tolist()] for one in a.tolist()]
        return np.array(table, float).reshape(len(a), len(b))

    def each(self, a: Ints, b: Ints) -> Floats:
        pairs = np.broadcast(a, b)
        return np.array([self._speed(int(one), int(other)) for one, other in pairs], float)

    def _speed(self, one: int, other: int) -> float:
        if (one, other) not in self._known:
            jobs = self._jobs
            self._known[one, other] = self._beside(jobs[one], jobs[other], self._type)
        return self._known[one, other]
