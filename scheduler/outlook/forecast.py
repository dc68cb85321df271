"""When jobs will probably start and end: for users who ask, never for a plan. Pure.

Runs are assumed to continue as they are, except those that are about to get their fair number of
GPUs. Waiting jobs start in the order in which the policy serves them, each as soon as earlier ends
leave enough GPUs and, in a sweep with a limit, as soon as it is its turn. Reality differs: runs are
moved, and other jobs come and end. calibration.py knows how wrong such guesses have been.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush

from scheduler.core.memory import fewest_nodes
from scheduler.core.model import Job, JobId, Placement, Rules, Run, RunPhase, Time
from scheduler.core.runs import waiting_in_order
from scheduler.core.sweeps import count_runs, is_full, sweep_of
from scheduler.outlook.current_speeds import DOUBT_MAX, CurrentSpeed, CurrentSpeeds
from scheduler.outlook.list_scheduling import ListSchedule, PlannedStart
from scheduler.planning.turns import later_jobs

FAIR_ENOUGH = 0.75  # of its fair number of GPUs: a run with this share is not expected to get more
NEXT = 5  # waiting jobs are soon served


class ForecastCase(StrEnum):
    """The situation of a guess: guesses in different situations have different errors."""

    SETTLED = "settled"  # it runs, and this has been measured
    NEW = "new"  # it runs, but has not been measured in this situation
    MOVES = "moves"  # it runs, and is about to run elsewhere
    ROOM = "room"  # it waits, and enough GPUs are free
    NEXT = "next"
    QUEUED = "queued"


@dataclass(frozen=True, slots=True)
class Guess:
    """What is unknown is None: nothing like this job, or like one before it, has been measured."""

    situation: ForecastCase
    starts_at: Time | None = None  # of the next run, if the job waits
    ends_at: Time | None = None
    leaves_at: Time | None = None  # when it leaves its GPUs, if it has some
    epoch_seconds: float | None = None  # the assumption behind this guess


def guesses(
    paces: CurrentSpeeds, now: Time, rules: Rules, by_memory: bool = False
) -> Mapping[JobId, Guess]:
    """`by_memory`: whether the policy adds jobs to a GPU for as long as it has memory."""
    making = _ForecastBuilder(paces, now, rules, ListSchedule(paces.view, now, rules, by_memory))
    making.let_runs_end()
    making.let_the_others_start()
    return making.made


class _ForecastBuilder:
    def __init__(
        self, paces: CurrentSpeeds, now: Time, rules: Rules, queueing: ListSchedule
    ) -> None:
        self.view, self.now, self.rules, self.paces = paces.view, now, rules, paces
        self.queueing = queueing
        self.made: dict[JobId, Guess] = {}
        self.waiting = [job for job in waiting_in_order(self.view) if not job.held]
        running = [job for job in paces.jobs if job.run]
        later = later_jobs(self.view, now)
        self.ready = [job for job in self.waiting if not job.awaits and job.id not in later]
        self.turns = defaultdict[str, list[Job]](list)  # of each sweep: whose turn comes later
        for job_id in later:
            self.turns[sweep_of(self.view.jobs[job_id].spec)].append(self.view.jobs[job_id])
        self.running = count_runs(running)  # of each sweep, as time goes on
        level = _level([*running, *self.ready], len(queueing.capacity))
        self.fair = {job.id: _clamped(level, job) for job in (*running, *self.waiting)}
        self.column: dict[tuple[str, int], int] = {}
        configs: list[Placement] = []
        counts = {n for job in self.waiting for n in (job.spec.gpus_min, self.fair[job.id]) if n}
        counts |= {self.fair[job.id] for job in running if self.fair[job.id]}
        for type in queueing.types:
            for count in sorted(counts):
                self.column[type, count] = len(configs)
                nodes = max(1, fewest_nodes(queueing.node_sizes[type], count))
                configs.append(Placement(type, count, nodes))
        self.seconds = paces.speeds.estimate(configs)
        self.doubt = paces.speeds.uncertainty(configs)

    # --- runs -------------------------------------------------------------------------------

    def let_runs_end(self) -> None:
        leaves: dict[JobId, tuple[Time, bool]] = {}
        for job in self.paces.jobs:
            if job.run:
                leaves[job.id] = self._run(job, job.run)
        self.queueing.hold(leaves)

    def _run(self, job: Job, run: Run) -> tuple[Time, bool]:
        """Returns when the run leaves its GPUs, and whether this is known."""
        if job.cancelled:
            return self.now, True
        pace = self.paces.of(job, run)
        known = pace.doubt < DOUBT_MAX
        into = 0.0 if run.epoch_at is None else min(self.now - run.epoch_at, pace.seconds)
        if run.phase is RunPhase.STARTING:
            into -= max(0.0, self._restart(job) - (self.now - run.started_at))
        epochs = max(0, job.max_epochs - job.epochs_done)
        left = epochs * pace.seconds - into
        leaves = self.now + left
        situation = ForecastCase.SETTLED if pace.measured else ForecastCase.NEW
        if run.phase is RunPhase.STOPPING:
            leaves = self.now + pace.seconds - into
        if (later := self._elsewhere(job, run, pace)) is not None:
            situation = ForecastCase.MOVES
            left = pace.seconds - into + self._restart(job) + max(0, epochs - 1) * later
        ends = self.now + max(0.0, left) if known else None
        self.made[job.id] = Guess(situation, None, ends, leaves, pace.seconds if known else None)
        return leaves, known or run.phase is RunPhase.STOPPING

    def _elsewhere(self, job: Job, run: Run, pace: CurrentSpeed) -> float | None:
        """Returns the seconds of an epoch on the GPUs that the job will have after this run; None:
        it keeps these."""
        fair = self.fair[job.id]
        short = not self.queueing.by_memory and len(run.shares) < FAIR_ENOUGH * fair
        if run.phase is not RunPhase.STOPPING and not short:
            return None
        columns = [self.column[type, fair] for type in self.queueing.types if fair]
        there = min((self.seconds[self.paces.row[job.id], at] for at in columns), default=None)
        return pace.seconds if there is None else float(there)

    def _restart(self, job: Job) -> float:
        return job.restart_seconds or self.rules.restart_seconds

    # --- the others -------------------------------------------------------------------------

    def let_the_others_start(self) -> None:
        for place, job in enumerate(self.ready):
            first = ForecastCase.NEXT if place < NEXT else ForecastCase.QUEUED
            self._let_start(job, first, ForecastCase.ROOM)
        self._let_time_pass()

    def _let_time_pass(self) -> None:
        """The jobs that await others start when these are expected to have ended, and those of a
        sweep with a limit when others of it have; nothing is told of them if that is not known."""
        order = {job.id: place for place, job in enumerate(self.waiting)}
        left = {job.id: {after.job_id for after in job.awaits} for job in self.waiting}
        if not (self.turns or any(left.values())):
            return
        ends = [(self._ends_at(job), job.id) for job in self.view.jobs.values()]
        heap = [(at, job_id) for at, job_id in ends if at is not None]
        heapify(heap)
        while heap:
            now, ready = heap[0][0], list[Job]()
            while heap and heap[0][0] <= now:
                ready += self._follow(heappop(heap)[1], left)
            self.queueing.advance(now)
            for job in sorted(ready, key=lambda job: order[job.id]):
                self._let_start(job, ForecastCase.QUEUED, ForecastCase.QUEUED)
                if (at := self._ends_at(job)) is not None:
                    heappush(heap, (at, job.id))

    def _ends_at(self, job: Job) -> Time | None:
        """When the job is expected to have ended: a cancelled one at once."""
        if job.cancelled and job.run:
            return self.now
        return self.made[job.id].ends_at if job.id in self.made else None

    def _follow(self, ended: JobId, left: Mapping[JobId, set[JobId]]) -> Iterator[Job]:
        """Yields the jobs that may start when this one has ended."""
        job = self.view.jobs[ended]
        for job_id in () if job.cancelled else self.view.behind.get(ended, ()):
            if job_id in left and ended in left[job_id]:
                left[job_id].discard(ended)
                if not left[job_id]:
                    yield self.view.jobs[job_id]
        sweep = sweep_of(job.spec)
        self.running[sweep] -= 1
        if self.turns[sweep]:
            yield self.turns[sweep].pop(0)

    def _let_start(self, job: Job, case: ForecastCase, at_once: ForecastCase) -> None:
        sweep = sweep_of(job.spec)
        if is_full(job, self.running):
            self.turns[sweep].append(job)
            return
        if job.spec.gpus_min == 0:
            self.running[sweep] += 1  # nothing is told of its end
        elif start := self._start(job):
            self.running[sweep] += 1
            room = start.at <= self.now and job.eligible_at <= self.now
            self._wait(job, start, at_once if room else case)

    def _start(self, job: Job) -> PlannedStart | None:
        row, least, fair = self.paces.row[job.id], job.spec.gpus_min, self.fair[job.id]
        types = self.queueing.types
        best_first = sorted(types, key=lambda type: self.seconds[row, self.column[type, least]])
        return self.queueing.start(job, least, fair, best_first)

    def _wait(self, job: Job, start: PlannedStart, situation: ForecastCase) -> None:
        at = self.paces.row[job.id], self.column[start.type, len(start.places)]
        seconds, known = float(self.seconds[at]), bool(self.doubt[at] < DOUBT_MAX)
        left = self._restart(job) + max(0, job.max_epochs - job.epochs_done) * seconds
        self.queueing.take(start.places, start.mib, start.at + left, known)
        starts = max(start.at, job.eligible_at)
        self.made[job.id] = Guess(
            situation,
            starts if start.known else None,
            starts + left if start.known and known else None,
            None,
            seconds if known else None,
        )


def _level(jobs: Sequence[Job], gpus: int) -> int:
    """Returns the fair number of GPUs for each job: the highest number for which all jobs, within
    their own limits, together need no more GPUs than there are."""

    def too_many(level: int) -> bool:
        return sum(_clamped(level, job) for job in jobs) > gpus

    return max(0, bisect_left(range(gpus + 1), True, key=too_many) - 1)


def _clamped(level: int, job: Job) -> int:
    return max(job.spec.gpus_min, min(job.spec.gpus_max, level))
