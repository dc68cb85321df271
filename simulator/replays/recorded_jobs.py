"""Makes a trace of the jobs in a daemon's database, with the speeds that the scheduler learned.

The trace begins with the oldest start that the journal keeps. Jobs that had begun before have only
their remaining epochs to do. Where a job has no measurement, the scheduler's estimate is used. All
times of a job are scaled by the ratio of its real epoch times, in total, to the estimated ones.
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from scheduler.core.errors import ConfigError
from scheduler.core.memory import usable_gpus
from scheduler.core.model import (
    GpuKey,
    Job,
    JobFamily,
    Node,
    Observed,
    Outcome,
    Placement,
    Time,
    View,
)
from scheduler.estimates.interference import Interference
from scheduler.estimates.speed import Speeds
from scheduler.store import rows
from scheduler.store.journal import Decider
from simulator.replays.replay import RecordedStart, open_journal, read_starts, read_steps
from simulator.replays.reported_times import ReportedTimes, RunConditions, read_reported_times
from simulator.traces.behaviour import TraceJob, Truth

_JOBS = f"""
    select {", ".join(rows.JOB)} from jobs where outcome is null or ended_at > ? order by seq
"""
_ENDED_RUNS = """
    select json_extract(data, '$.seconds'), at from facts
    where kind = 'run_ended' and at > ? and json_extract(data, '$.seconds') > 0.0
"""
_LEARNED = f"select {', '.join(rows.LEARNED)} from learned order by about, name"


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """The nodes and jobs of a recorded cluster."""

    since: Time
    decider: Decider  # the policy and rules now
    nodes: tuple[Node, ...]  # on which runs trained longest
    gpu_counts: tuple[int, ...]  # all numbers of usable GPUs that runs had, from the smallest
    jobs: tuple[Job, ...]  # as they are now
    trace: tuple[TraceJob, ...]  # of the same jobs, named by their ids
    kinds: Mapping[str, JobFamily]  # known when the trace began
    restart_seconds: float  # of a run, besides its epochs


def read_recorded_cluster(path: Path, from_start: int | None = None) -> RecordedCluster:
    """Raises ConfigError if the journal has too little to make a trace."""
    with open_journal(path) as db:
        recorded_starts = list(read_starts(db, from_start or 1))
        first, now = recorded_starts[0], recorded_starts[-1]
        jobs = [rows.job(row) for row in db.execute(_JOBS, (first.at,))]
        nodes, gpu_counts = _nodes_of_runs(db, recorded_starts, jobs)
        kinds, *_ = rows.read_learned(db.execute(_LEARNED).fetchall())
        reported = read_reported_times(db, first.at)
    wishes = [(job, left) for job in jobs if (left := _epochs_left(job, first.view)) > 0]
    if not wishes:
        raise ConfigError(f"{path}: no job has run or waits since the journal begins")
    kept = tuple(job for job, _ in wishes)
    truths = RecordedJobs(kept, kinds).truths(reported)
    trace = [
        _trace_job(job, left, first.at, truth)
        for (job, left), truth in zip(wishes, truths, strict=True)
    ]
    usual = reported.besides_epochs
    if usual is None:
        usual = now.decider.rules.restart_seconds
    return RecordedCluster(
        first.at, now.decider, nodes, gpu_counts, kept, tuple(trace), first.view.kinds, usual
    )


def _nodes_of_runs(
    db: sqlite3.Connection, recorded_starts: Sequence[RecordedStart], jobs: Sequence[Job]
) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """The nodes with the GPUs that were there for most of the time of all runs, and all numbers of
    GPUs that were there during a run. Without runs: the newest nodes."""
    seen = [event for event in _observations(db, recorded_starts) if event.nodes]
    seen.sort(key=lambda event: event.at)  # clocks may be set back
    if not seen:
        raise ConfigError("no node was observed since the journal begins")
    begins = [event.at for event in seen]
    nodes = {frozenset(usable_gpus(event.nodes)): event.nodes for event in seen}
    seconds: defaultdict[frozenset[GpuKey], float] = defaultdict(float)
    for run_begins, run_ends in _spans_of_runs(db, jobs, begins[0], begins[-1]):
        first = max(0, bisect_right(begins, run_begins) - 1)
        for place in range(first, bisect_left(begins, run_ends)):
            until = begins[place + 1] if place + 1 < len(begins) else run_ends
            held = min(until, run_ends) - max(begins[place], run_begins)
            seconds[frozenset(usable_gpus(seen[place].nodes))] += held
    had = {gpus: held for gpus, held in seconds.items() if gpus and held > 0.0}
    if not had:
        return seen[-1].nodes, ()
    return nodes[max(had, key=lambda gpus: had[gpus])], tuple(sorted({len(gpus) for gpus in had}))


def _spans_of_runs(
    db: sqlite3.Connection, jobs: Sequence[Job], since: Time, now: Time
) -> Iterator[tuple[Time, Time]]:
    """From launch to end, or to `now`."""
    for held, ended_at in db.execute(_ENDED_RUNS, (since,)):
        yield ended_at - held, ended_at
    for job in jobs:
        if job.run is not None:
            yield job.run.started_at, now


def _observations(
    db: sqlite3.Connection, recorded_starts: Sequence[RecordedStart]
) -> Iterator[Observed]:
    for start in recorded_starts:
        for step in read_steps(db, start):
            yield from (event for event in step.events if isinstance(event, Observed))


def _epochs_left(job: Job, then: View) -> int:
    """The epochs of a job from `then` on; only those done if it has ended, is held or cancelled."""
    before = then.jobs[job.id].epochs_done if job.id in then.jobs else 0
    if job.outcome or job.cancelled or (job.held and job.run is None):
        return job.epochs_done - before
    return job.max_epochs - before


def _trace_job(job: Job, epochs: int, since: Time, truth: Truth) -> TraceJob:
    spec = replace(
        job.spec, name=job.id, max_epochs=epochs, priority=job.priority, held=False, retries=0
    )
    return TraceJob(max(0.0, job.submitted_at - since), spec, truth)


def recorded_seconds(job: Job, since: Time) -> float | None:
    """The time from submission to end of a job that succeeded and was submitted after `since`."""
    if job.outcome is not Outcome.SUCCEEDED or job.ended_at is None or job.submitted_at < since:
        return None
    return job.ended_at - job.submitted_at


class RecordedJobs:
    """The times of each job according to all measurements. Answers are computed one at a time and
    cached."""

    def __init__(self, jobs: Sequence[Job], kinds: Mapping[str, JobFamily]) -> None:
        self.jobs, self.kinds = jobs, kinds
        self._number = {job.id: number for number, job in enumerate(jobs)}
        self._seconds: dict[Placement, list[float]] = {}
        self._beside: dict[str, Interference] = {}
        self._speeds: dict[tuple[str, int, int], float] = {}

    @cached_property
    def _learned_speeds(self) -> Speeds:
        return Speeds(self.jobs, self.kinds)

    def truths(self, reported: ReportedTimes) -> list[LearnedTruth]:
        return [
            LearnedTruth(
                self,
                number,
                job.memory_mib,
                job.gpu_util,
                self._pace(number, reported.situations.get(job.id, ())),
                reported.pauses.get(job.id, 0.0),
            )
            for number, job in enumerate(self.jobs)
        ]

    def _pace(self, number: int, situations: Sequence[RunConditions]) -> float:
        taken = expected = 0.0
        for situation in situations:
            if config := Placement.parse(situation.placement):
                others = [
                    self._number[other] for other in situation.beside if other in self._number
                ]
                speeds = [self.speed(number, other, config.type) for other in others]
                # The record does not say which of a gang's GPUs a neighbour shares: assume all.
                speed = math.prod(speeds) if config.gpus == 1 else min(speeds, default=1.0)
                taken += situation.seconds
                expected += situation.epochs * self.seconds(number, config) / speed
        return taken / expected if expected else 1.0

    def seconds(self, number: int, config: Placement) -> float:
        if config not in self._seconds:
            self._seconds[config] = self._learned_speeds.estimate([config])[:, 0].tolist()
        return self._seconds[config][number]

    def speed(self, number: int, beside: int, type: str) -> float:
        key = type, number, beside
        if key not in self._speeds:
            if type not in self._beside:
                self._beside[type] = Interference(self.jobs, self.kinds, type, self._learned_speeds)
            pair = np.array([number]), np.array([beside])
            self._speeds[key] = float(self._beside[type].speeds(*pair)[0, 0])
        return self._speeds[key]


@dataclass(frozen=True, slots=True)
class LearnedTruth:
    """A job with its measured speeds."""

    learned: RecordedJobs
    number: int  # among the jobs
    memory_mib: int
    gpu_util: float
    pace: float  # the ratio of its real epoch times to the learned ones
    pause_seconds: float  # after each epoch

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        config = Placement(type, count, nodes) if count else Placement("cpu", 0)
        return self.pace * self.learned.seconds(self.number, config) + self.pause_seconds

    def speed_beside(self, other: Truth, type: str) -> float:
        if not isinstance(other, LearnedTruth):
            return 1.0
        return self.learned.speed(self.number, other.number, type)
