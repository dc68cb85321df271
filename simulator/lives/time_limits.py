"""Jobs with a time limit: which have one, and whether it is kept."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from scheduler.core import time_limit
from scheduler.core.model import Launch, Outcome, RunPhase, View
from scheduler.core.runs import has_epoch_to_stop_at
from simulator.lives.checkers import Checker, changed_jobs
from simulator.lives.workload import TrueJob

LIVES, JOBS = 0.3, 0.4  # how many lives have such jobs, and how many of their jobs


def with_time_limits(jobs: Iterable[TrueJob], rng: random.Random) -> tuple[TrueJob, ...]:
    """Gives limits to some of the jobs: from less than one epoch to more than any of them needs."""
    if rng.random() >= LIVES:
        return tuple(jobs)
    return tuple(
        replace(
            job,
            spec=replace(job.spec, time_limit_seconds=job.epoch_seconds * rng.uniform(0.5, 12.0)),
        )
        if rng.random() < JOBS
        else job
        for job in jobs
    )


class TimeLimits(Checker):
    """A job is stopped for its time limit only if it has no time for another epoch, and then it is;
    afterwards it never starts again."""

    def on_launch(self, launch: Launch) -> None:
        job = self.world.stored[launch.job_id]
        limit = job.spec.time_limit_seconds
        self.require(not limit or job.ran_seconds < limit, job, "has no time left")

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            ended = job.outcome is Outcome.FAILED and not old.outcome
            if ended and job.reason.startswith(time_limit.reason(job)):
                self.require(job.spec.time_limit_seconds > 0, job, "has no time limit")
            asked = job.run and not (old.run and old.run.stop_reason)
            if asked and job.run and time_limit.is_reason(job, job.run):
                spent = job.ran_seconds + after.at - job.run.started_at
                # The epoch that it is in, and another one.
                spent += 2 * time_limit.epoch_seconds(job)
                self.require(spent >= job.spec.time_limit_seconds, job, "was stopped too early")
        if after.observed_at == before.observed_at:
            return
        for job in after.jobs.values():
            limit, run = job.spec.time_limit_seconds, job.run
            if limit and run and run.phase is not RunPhase.STOPPING:
                spent = job.ran_seconds + after.at - run.started_at
                if run.heard_at is not None and has_epoch_to_stop_at(run):
                    spent += time_limit.epoch_seconds(job)
                self.require(spent <= limit, job, "runs beyond its time limit")
