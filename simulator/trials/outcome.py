"""The result of a trace under a policy: the times of each job, and the use of the GPUs.

Times are from the simulated world, in seconds since the trace began: a job ends when its last
process exits, not when the scheduler hears of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from scheduler.core.model import JobId, JobSpec, Launch, Outcome, Time

HOUR = 3600.0
SLICES = 240  # of time, in a series

_Change = tuple[Time, int, int]  # a moment, and how many jobs wait and GPUs are busy from then on
_Span = tuple[Time, float, int, int]  # the same with its duration


@dataclass(slots=True)
class JobTimes:
    """The times of one job."""

    id: JobId
    name: str
    user: str
    gpus: int  # the most that it can use
    submitted_at: Time
    started_at: Time | None = None  # its first launch
    ended_at: Time | None = None
    outcome: Outcome | None = None  # None: it did not end
    launches: int = 0
    preemptions: int = 0  # how often it was preempted
    held_seconds: float = 0.0  # from launch to end, over all of its runs
    # From submission to end, if it had its best placement at once and alone.
    alone_seconds: float = math.nan

    @property
    def restarts(self) -> int:
        return max(0, self.launches - 1)

    @property
    def seconds(self) -> float:
        """From submission to end: the completion time for the user."""
        return math.nan if self.ended_at is None else self.ended_at - self.submitted_at

    @property
    def queued_seconds(self) -> float:
        """The time that it waited, before its first run and between runs."""
        return self.seconds - self.held_seconds

    @property
    def slowdown(self) -> float:
        """How many times as long it took as alone."""
        return _ratio(self.seconds, self.alone_seconds)


@dataclass(frozen=True, slots=True)
class GanttBar:
    """The time in which a run held a GPU: one bar of a Gantt chart."""

    node: str
    gpu: str
    job: JobId
    attempt: int
    from_at: Time
    to_at: Time


@dataclass(frozen=True, slots=True)
class Sample:
    """Means over one slice of time, which begins at `at`."""

    at: Time
    queued: float  # jobs that wait
    busy: float  # GPUs on which a job trains


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one trace under one policy."""

    gpus: int
    jobs: tuple[JobTimes, ...]
    refused: tuple[str, ...]  # a line for each job that did not fit on the nodes
    busy_gpu_seconds: float  # with at least one job that trains
    effective_gpu_seconds: float  # the same, times the sum of the speeds of the jobs there
    series: tuple[Sample, ...]
    bars: tuple[GanttBar, ...]
    steps: int
    cpu_seconds: float = field(compare=False)

    @property
    def makespan_seconds(self) -> float:
        """From the first submission to the last end."""
        ends = [job.ended_at for job in self.jobs if job.ended_at is not None]
        return max(ends) - min(job.submitted_at for job in self.jobs) if ends else 0.0

    def completion_times(self) -> list[float]:
        """Completion times of the finished jobs in seconds, the shortest first."""
        return sorted(job.seconds for job in self.jobs if job.outcome is Outcome.SUCCEEDED)

    def slowdowns(self) -> list[float]:
        """Those of the finished jobs, the smallest first."""
        return sorted(job.slowdown for job in self.jobs if job.outcome is Outcome.SUCCEEDED)

    def summary(self) -> dict[str, float]:
        """The figures of a table. Times are those of finished jobs."""
        times = [seconds / HOUR for seconds in self.completion_times()]
        queued = [job.queued_seconds for job in self.jobs if job.outcome is Outcome.SUCCEEDED]
        slowdowns = self.slowdowns()
        restarts = sum(job.restarts for job in self.jobs)
        held_hours = sum(job.held_seconds for job in self.jobs) / HOUR
        there_were = self.gpus * self.makespan_seconds
        outcomes = [job.outcome for job in self.jobs]
        return {
            "mean_h": _ratio(math.fsum(times), len(times)),
            "median_h": quantile(times, 0.5),
            "p90_h": quantile(times, 0.9),
            "p99_h": quantile(times, 0.99),
            "queued_h": _ratio(math.fsum(queued) / HOUR, len(times)),
            "slowdown": _ratio(math.fsum(slowdowns), len(slowdowns)),
            "slowdown_p99": quantile(slowdowns, 0.99),
            "fairness": jain_index([1.0 / slowdown for slowdown in slowdowns]),
            "makespan_h": self.makespan_seconds / HOUR,
            "utilisation": _ratio(self.busy_gpu_seconds, there_were),
            "effective": _ratio(self.effective_gpu_seconds, there_were),
            "restarts_per_job": _ratio(restarts, len(self.jobs)),
            "restarts_per_job_hour": _ratio(restarts, held_hours),
            "preemptions_per_job": _ratio(sum(j.preemptions for j in self.jobs), len(self.jobs)),
            "finished": outcomes.count(Outcome.SUCCEEDED),
            "failed": outcomes.count(Outcome.FAILED),
            "unfinished": outcomes.count(None),
            "refused": len(self.refused),
            "steps": self.steps,
            "cpu_seconds": self.cpu_seconds,
        }


class Tally:
    """Records what happens, and makes a Result of it at the end."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobTimes] = {}
        self.effective_gpu_seconds = 0.0
        self._bars: list[GanttBar] = []
        self._queued: set[JobId] = set()
        self._busy = 0
        self._changes: list[_Change] = []

    def record_submission(self, job_id: JobId, spec: JobSpec, at: Time) -> None:
        self.jobs[job_id] = JobTimes(job_id, spec.name, spec.user, spec.gpus_max, at)
        self._queued.add(job_id)
        self._note(at)

    def record_launch(self, launch: Launch, at: Time) -> None:
        job = self.jobs[launch.job_id]
        job.launches += 1
        if job.started_at is None:
            job.started_at = at
        self._queued.discard(launch.job_id)
        self._note(at)

    def record_run_end(
        self, launch: Launch, since: Time, at: Time, finished: bool, preempted: bool
    ) -> None:
        """Records that the run launched at `since` is over; its job waits again or has finished."""
        job = self.jobs[launch.job_id]
        job.held_seconds += at - since
        job.preemptions += preempted
        job.ended_at = at
        if not finished:
            self._queued.add(launch.job_id)
        self._note(at)
        for share in launch.shares:
            run = launch.job_id, launch.attempt
            self._bars.append(GanttBar(share.node, share.gpu, *run, since, at))

    def record_outcome(self, job_id: JobId, outcome: Outcome, at: Time) -> None:
        """Records the outcome. The job's end is the end of its last run, not this moment."""
        self.jobs[job_id].outcome = outcome
        self._queued.discard(job_id)
        self._note(at)

    def add_busy_gpus(self, gpus: int, at: Time) -> None:
        """Records that jobs train on `gpus` more GPUs, or fewer if it is negative."""
        self._busy += gpus
        self._note(at)

    def build_result(
        self,
        gpus: int,
        refused: Sequence[str],
        steps: int,
        cpu_seconds: float,
        alone_seconds: Mapping[JobId, float],
    ) -> Result:
        for job in self.jobs.values():
            job.alone_seconds = alone_seconds[job.id]
            if job.outcome is None:  # it waits again, or still runs
                job.ended_at = None
        return Result(
            gpus=gpus,
            jobs=tuple(self.jobs.values()),
            refused=tuple(refused),
            busy_gpu_seconds=math.fsum(seconds * busy for _, seconds, _, busy in self._spans()),
            effective_gpu_seconds=self.effective_gpu_seconds,
            series=tuple(_sample(list(self._spans()))),
            bars=tuple(sorted(self._bars, key=lambda bar: (bar.node, bar.gpu, bar.from_at))),
            steps=steps,
            cpu_seconds=cpu_seconds,
        )

    def _note(self, at: Time) -> None:
        if self._changes and self._changes[-1][0] == at:
            self._changes.pop()
        self._changes.append((at, len(self._queued), self._busy))

    def _spans(self) -> Iterator[_Span]:
        for (at, queued, busy), (until, _, _) in pairwise(self._changes):
            yield at, until - at, queued, busy


def _sample(spans: Sequence[_Span], slices: int = SLICES) -> Iterator[Sample]:
    """Means over slices of time of equal length."""
    if not spans:
        return
    begin, end = spans[0][0], spans[-1][0] + spans[-1][1]
    width = (end - begin) / slices
    queued, busy = [0.0] * slices, [0.0] * slices
    for at, seconds, jobs, gpus in spans:
        first = min(int((at - begin) / width), slices - 1)
        last = min(int((at + seconds - begin) / width), slices - 1)
        for index in range(first, last + 1):
            from_at, to_at = begin + index * width, begin + (index + 1) * width
            overlap = max(0.0, min(at + seconds, to_at) - max(at, from_at))
            queued[index] += jobs * overlap / width
            busy[index] += gpus * overlap / width
    for index in range(slices):
        yield Sample(begin + index * width, queued[index], busy[index])


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of sorted values, interpolated linearly (type 7 of Hyndman and Fan, 1996)."""
    if not values:
        return math.nan
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def jain_index(values: Sequence[float]) -> float:
    """From 1/n, if one of n has all, to 1, if all are equal (Jain, Chiu and Hawe, 1984)."""
    square_of_sum = math.fsum(values) ** 2
    return _ratio(square_of_sum, len(values) * math.fsum(value**2 for value in values))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
