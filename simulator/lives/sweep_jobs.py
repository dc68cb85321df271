"""Jobs of sweeps: which have limits and rules, and whether these are kept."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace

from scheduler.core import sweeps
from scheduler.core.model import JobId, Outcome, Rules, View
from simulator.lives.checkers import RuleChecker, changed_jobs
from simulator.lives.workload import TrueJob
from simulator.lives.world import World

LIVES, JOBS = 0.3, 0.7  # how many lives have sweeps, and how many of their jobs are in one
LABELS = ((sweeps.LABEL, "grid"),)


def with_sweeps(jobs: Iterable[TrueJob], rng: random.Random) -> tuple[TrueJob, ...]:
    """Puts some of the jobs into a sweep of their user."""
    if rng.random() >= LIVES:
        return tuple(jobs)
    parallel, maximize = rng.choice([0, 1, 1, 2, 3]), rng.random() < 0.5
    rule = rng.choice(["", sweeps.ASHA, sweeps.ASHA, sweeps.MEDIAN])
    after = rng.choice([0, 2])
    return tuple(
        replace(
            job,
            spec=replace(
                job.spec,
                labels=LABELS,
                parallel=parallel,
                metric="loss",
                maximize=maximize,
                prune=rule,
                prune_after=after,
            ),
            quality=rng.choice([math.inf, *(rng.gauss(0.0, 1.0) for _ in range(20))]),
        )
        if rng.random() < JOBS
        else job
        for job in jobs
    )


class Sweeps(RuleChecker):
    """No more jobs of a sweep run than may, the best of its jobs is never pruned, and what is known
    of them is true, also after a crash."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world, rules)
        self.known: dict[str, sweeps.Scores] = {}

    def on_step(self, before: View, after: View) -> None:
        self.known = dict(after.scores)
        for job, old in changed_jobs(before, after):
            if job.run and job.attempts > old.attempts and job.spec.parallel:
                rivals = (other for other in after.jobs.values() if other.spec.labels == LABELS)
                running = sum(o.run is not None and o.spec.user == job.spec.user for o in rivals)
                self.require(running <= job.spec.parallel, job, "starts as one of", running)
            if job.outcome is Outcome.CANCELLED and not old.outcome and was_pruned(job.reason):
                self._check_pruned(job.id, int(job.reason.split()[3].rstrip(":")), after)

    def _check_pruned(self, job_id: JobId, epoch: int, view: View) -> None:
        truth = self.world.truths[job_id]
        scores = view.scores[sweeps.sweep_of(truth.spec)][epoch]
        for other, score in scores.items():
            true = self.world.truths[other].score(epoch)
            self.require(score == true, other, epoch, "has the score", score, "but truly", true)
        mine = truth.score(epoch)
        best = max(scores.values()) if truth.spec.maximize else min(scores.values())
        self.require(mine == math.inf or mine != best, job_id, "was pruned as the best of", scores)

    def on_restart(self, loaded: View) -> None:
        """The step in which the daemon crashed may have been committed: then there is more. What
        jobs reported that are over is known, too: others of their sweep may come."""
        specs = [truth.spec for truth in self.world.truths.values()]
        for sweep in {sweeps.sweep_of(spec) for spec in specs if spec.prune}:
            there = loaded.scores.get(sweep, {})
            for epoch, scores in self.known.get(sweep, {}).items():
                kept = scores.items() <= there.get(epoch, {}).items()
                self.require(kept, sweep, epoch, "had", scores, "and has", there)


def was_pruned(reason: str) -> bool:
    return reason.startswith(sweeps.PRUNED)
