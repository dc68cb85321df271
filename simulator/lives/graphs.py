"""Jobs that start after others: which do, and whether each condition is kept."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.core.model import After, Job, JobId, Launch, Outcome, View, Waiting, When
from simulator.lives.checkers import Checker
from simulator.lives.fairness import has_new_plan
from simulator.lives.workload import TrueJob

LIVES, JOBS = 0.4, 0.5  # how many lives have graphs, and how many of their jobs are behind others
WEIGHTS = {
    When.SUCCEEDED: 5,
    When.FINISHED: 3,
    When.SKIPPED_OR_SUCCEEDED: 2,
    When.FAILED: 1,
}


def with_graphs(jobs: Sequence[TrueJob], rng: random.Random) -> tuple[TrueJob, ...]:
    """Lets some of the jobs start after one to three of those before them."""
    if rng.random() >= LIVES:
        return tuple(jobs)
    return tuple(_behind(job, jobs[:place], rng) for place, job in enumerate(jobs))


def _behind(job: TrueJob, before: Sequence[TrueJob], rng: random.Random) -> TrueJob:
    if not before or rng.random() >= JOBS:
        return job
    others = rng.sample(before, min(len(before), rng.choice([1, 1, 2, 3])))
    whens = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=len(others))
    after = tuple(After(other.job_id, when) for other, when in zip(others, whens, strict=True))
    return replace(job, spec=replace(job.spec, after=after))


class Graphs(Checker):
    """No job starts before its conditions hold, none is skipped while they may, and one whose
    conditions cannot hold is skipped at once. A job waits for others only while one of them lives.
    (That every job ends is required of each life.)"""

    def on_launch(self, launch: Launch) -> None:
        job = self.world.stored[launch.job_id]
        for after in job.spec.after:
            holds = _holds(after, self._outcome(after.job_id))
            self.require(holds is True, launch, "was started before", after)

    def on_step(self, before: View, after: View) -> None:
        if before.jobs is not after.jobs:
            for job in after.jobs.values():
                if job.spec.after and job is not before.jobs.get(job.id):
                    self._check_skipped(job)
        # An unreliable policy may give an old plan, with old reasons.
        if has_new_plan(before, after) and self.world.faults.honest:
            for job_id, why in after.why.items():
                if why.kind is Waiting.AFTER:
                    self._check_waits(after.jobs[job_id], after.jobs)

    def on_end(self) -> None:
        for job in self.world.stored.values():
            self._check_skipped(job)

    def _check_skipped(self, job: Job) -> None:
        held = [_holds(each, self._outcome(each.job_id)) for each in job.spec.after]
        if job.outcome is Outcome.SKIPPED:
            self.require(False in held, job, "was skipped, although", job.spec.after)
            self.require(job.attempts == 0, job, "was skipped after it ran")
        elif job.outcome is None:
            self.require(False not in held, job, "can never start:", job.spec.after)

    def _check_waits(self, job: Job, jobs: Mapping[JobId, Job]) -> None:
        lives = [id for each in job.spec.after if not self._outcome(id := each.job_id)]
        named = {jobs[id].spec.name for id in lives if id in jobs}
        self.require(bool(named), job, "waits for jobs that have ended:", job.spec.after)

    def _outcome(self, job_id: JobId) -> Outcome | None:
        job = self.world.stored.get(job_id)
        return job.outcome if job else None


def _holds(after: After, outcome: Outcome | None) -> bool | None:
    """None: it is not decided. Written again here, so that a wrong table is seen."""
    if outcome is None:
        return None
    match after.when:
        case When.SUCCEEDED:
            return outcome is Outcome.SUCCEEDED
        case When.FAILED:
            return outcome is Outcome.FAILED
        case When.FINISHED:
            return outcome is not Outcome.SKIPPED
        case When.SKIPPED_OR_SUCCEEDED:
            return outcome in (Outcome.SKIPPED, Outcome.SUCCEEDED)
        case When.ENDED:
            return True
