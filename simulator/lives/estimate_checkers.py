"""Checkers that compare with the truth what was learned: epoch times, and users' GPU time."""

from __future__ import annotations

import math

from scheduler.core.model import Job, Measured, Placement, Rules, Time, Used, View
from simulator.lives.checkers import Checker, changed_jobs
from simulator.lives.world import World

# Tolerance for an epoch: the scheduler hears late that a neighbour has begun or ended.
OFF, OFF_SECONDS = 0.1, 4.0
SETTLED_SECONDS = 60.0  # after the last fault; no older message is on its way then


class LearnedSpeedsMatch(Checker):
    """A measured epoch had the same neighbours throughout, and was not the first of its run."""

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            if job.measured is old.measured:
                continue
            known = {(m.placement, m.beside, m.where): m for m in old.measured}
            for measured in job.measured:
                was = known.get((measured.placement, measured.beside, measured.where))
                taught = was is None or measured.epochs != was.epochs
                if taught and (measured.newest or not measured.epochs):
                    self._check_measurement(job, measured)

    def _check_measurement(self, job: Job, now: Measured) -> None:
        seconds = now.newest[-1] if now.newest else now.seconds
        sane = math.isfinite(seconds) and 0.0 < seconds <= self.world.time
        self.require(sane, job, "is believed to take", seconds, "s for an epoch")
        healed_at = self.world.healed_at
        calm = healed_at is not None and self.world.time - seconds > healed_at + SETTLED_SECONDS
        if now.epochs and calm:
            truths = self.world.truths
            place = Placement.parse(now.placement)
            beside = [truths[other] for other in now.beside]
            truly = truths[job.id].seconds(place.gpus if place else 0, beside)
            near = abs(seconds - truly) <= OFF * truly + OFF_SECONDS
            self.require(near, job, "is believed to take", seconds, "s, but takes", truly, now)


class UsedTimeMatches(Checker):
    """Each user is charged the GPU time of ended runs, and this decays with the half-life."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world)
        self.half_life = rules.fairness_half_life_seconds
        self.expected: dict[str, tuple[float, Time]] = {}

    def on_step(self, before: View, after: View) -> None:
        users = set[str]()
        for job, old in changed_jobs(before, after):
            if old.run and not (job.run and job.run.attempt == old.run.attempt):
                seconds = (after.at - old.run.started_at) * len(old.run.shares)
                had = self._expected_seconds(job.spec.user, after.at)
                self.expected[job.spec.user] = (had + seconds, after.at)
                users.add(job.spec.user)
        for user in sorted(users):
            self._check_charge(user, after)

    def _check_charge(self, user: str, view: View) -> None:
        used, had = view.used.get(user, Used()), self._expected_seconds(user, view.at)
        charged = used.gpu_seconds * self._decay(view.at - used.at)
        same = math.isclose(charged, had, rel_tol=1e-6, abs_tol=1e-6)
        self.require(same, user, "is charged", charged, "GPU seconds, but used", had)

    def on_restart(self, loaded: View) -> None:
        # The witness may not have seen the last commit.
        self.expected |= {user: (used.gpu_seconds, used.at) for user, used in loaded.used.items()}

    def _expected_seconds(self, user: str, now: Time) -> float:
        seconds, at = self.expected.get(user, (0.0, now))
        return seconds * self._decay(now - at)

    def _decay(self, seconds: float) -> float:
        return math.exp2(-seconds / self.half_life)
