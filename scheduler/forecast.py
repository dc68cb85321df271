"""When jobs start and end, as far as one can tell: for people who ask, never for a plan. Pure.

Runs go on as they are. Waiting jobs start in the order in which the policy serves them, each as
soon as what ends before leaves it the fewest GPUs that it takes, and keep those. It will not come
like that: runs are moved, others come and go. So each moment is told with an interval in which four
of five such forecasts have come true (benchmarks/eta.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.model import Job, JobId, Rules, Run, RunPhase, Time
from scheduler.paces import DOUBT_MAX, Paces
from scheduler.queueing import Queueing, Start
from scheduler.speed import Config

# A span that was forecast comes out so many times as long, in one of ten cases, in half of them,
# and in nine of ten: of what is left of a run, and of what is left of a job that waits.
RUNS = (0.7, 1.0, 1.5)
WAITS = (0.4, 1.0, 2.5)


@dataclass(frozen=True, slots=True)
class Interval:
    """Of moments: in four of five cases it is one between low and high."""

    low: Time
    middle: Time
    high: Time


@dataclass(frozen=True, slots=True)
class Forecast:
    """What cannot be said is None: nobody has seen the like of the job, or of one before it."""

    starts_at: Interval | None = None  # its next run, if it waits
    ends_at: Interval | None = None
    leaves_at: Time | None = None  # its GPUs, if it has some
    epoch_seconds: float | None = None  # that this was made with


def forecast(
    paces: Paces, now: Time, rules: Rules, by_memory: bool = False
) -> Mapping[JobId, Forecast]:
    """`by_memory`: whether the policy puts jobs on a card for as long as there is memory."""
    making = _Making(paces, now, rules, Queueing(paces.view, now, rules, by_memory))
    making.let_runs_end()
    making.let_the_others_start()
    return making.made


class _Making:
    def __init__(self, paces: Paces, now: Time, rules: Rules, queueing: Queueing) -> None:
        self.view, self.now, self.rules, self.paces = paces.view, now, rules, paces
        self.queueing = queueing
        self.made: dict[JobId, Forecast] = {}

    def let_runs_end(self) -> None:
        leaves: dict[JobId, tuple[Time, bool]] = {}
        for job in self.paces.jobs:
            if job.run:
                leaves[job.id] = self._run(job, job.run)
        self.queueing.hold(leaves)

    def _run(self, job: Job, run: Run) -> tuple[Time, bool]:
        """When it leaves its GPUs, and whether we know."""
        pace = self.paces.of(job, run)
        known = pace.doubt < DOUBT_MAX
        into = 0.0 if run.epoch_at is None else min(self.now - run.epoch_at, pace.seconds)
        if run.phase is RunPhase.STARTING:
            into -= max(0.0, self._restart(job) - (self.now - run.started_at))
        left = max(0, job.max_epochs - job.epochs_done) * pace.seconds - into
        if job.cancelled:
            return self.now, True
        leaves = self.now + left
        if run.phase is RunPhase.STOPPING:
            leaves = self.now + pace.seconds - into
            left += self._restart(job)
        ends = _interval(self.now, left, RUNS) if known else None
        self.made[job.id] = Forecast(None, ends, leaves, pace.seconds if known else None)
        return leaves, known or run.phase is RunPhase.STOPPING

    def _restart(self, job: Job) -> float:
        return job.restart_seconds or self.rules.restart_seconds

    def let_the_others_start(self) -> None:
        waiting = [
            job
            for job_id in dict.fromkeys((*self.view.why, *self.paces.row))
            if (job := self.view.jobs.get(job_id)) and job.waiting and not job.held
        ]
        counts = sorted({job.spec.gpus_min for job in waiting if job.spec.gpus_min})
        configs = [
            Config(type, count, -(-count // self.queueing.node_size[type]))
            for type in self.queueing.types
            for count in counts
        ]
        column = {(config.type, config.count): at for at, config in enumerate(configs)}
        seconds = self.paces.speeds.estimate(configs)
        doubt = self.paces.speeds.uncertainty(configs)
        for job in waiting:
            row, count = self.paces.row[job.id], job.spec.gpus_min
            if count == 0:
                continue
            columns = {type: column[type, count] for type in self.queueing.types}
            best_first = sorted(columns, key=lambda type: seconds[row, columns[type]])
            start = self.queueing.start(job, best_first)
            if start:
                at = row, columns[start.type]
                self._wait(job, start, float(seconds[at]), bool(doubt[at] < DOUBT_MAX))

    def _wait(self, job: Job, start: Start, seconds: float, known: bool) -> None:
        left = self._restart(job) + max(0, job.max_epochs - job.epochs_done) * seconds
        self.queueing.take(start.places, start.mib, start.at + left, known)
        wait = max(0.0, max(start.at, job.eligible_at) - self.now)
        starts = _interval(self.now, wait, WAITS) if start.known else None
        ends = _interval(self.now, wait + left, WAITS) if start.known and known else None
        self.made[job.id] = Forecast(starts, ends, None, seconds if known else None)


def _interval(now: Time, seconds: float, spread: tuple[float, float, float]) -> Interval:
    low, middle, high = (now + max(0.0, seconds) * factor for factor in spread)
    return Interval(low, middle, high)
