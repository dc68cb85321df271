"""A checker that applies each remedy for a waiting job and requires that the job starts.

It checks some jobs at times, or all jobs at every plan (`--advice all`), which takes longer: then a
remedy that is still true is not computed again, and equal views get the same plan.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from scheduler.core.model import Job, JobId, JobSpec, Plan, Rules, Time, View, Waiting
from scheduler.core.ports import Policy
from scheduler.outlook.prospect import NO_REMEDY, Remedy
from scheduler.outlook.remedies import remedy, startable, starts, wishing, without
from simulator.lives.checkers import RuleChecker
from simulator.lives.fairness import has_new_plan
from simulator.lives.world import World

SOME_EVERY = 10  # steps for one job, because one answer needs many plans


class RemedyChecker(RuleChecker):
    """Each waiting job has a remedy, and the remedy is true."""

    def __init__(self, world: World, policy: Policy, rules: Rules, of_all: bool) -> None:
        super().__init__(world, rules)
        self.policy, self.of_all = policy, of_all
        self.last_true: dict[
            tuple[JobId, int], Remedy
        ] = {}  # (job, attempts): the remedy that was true last

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after):
            return
        policy = CachingPolicy(self.policy)
        waiting = [job for job in after.jobs.values() if startable(job, after.at)]
        if waiting and after.number % SOME_EVERY == 0:
            some = waiting[after.number // SOME_EVERY % len(waiting)]
            self.last_true[some.id, some.attempts] = self._find_remedy(some, after, policy)
        for job in after.jobs.values() if self.of_all else ():
            if job.waiting and not job.cancelled:
                self._try(job, after, policy)

    def _try(self, job: Job, view: View, policy: Policy) -> None:
        if not startable(job, view.at):  # not for lack of GPUs: remove that first
            job = replace(job, held=False, eligible_at=min(job.eligible_at, view.at), awaits=())
            view = replace(view, jobs={**view.jobs, job.id: job})
            why = policy(view, view.at).why.get(job.id)
            kept = why is not None and why.kind in (Waiting.HELD, Waiting.AFTER, Waiting.BACKOFF)
            self.require(not kept, job, "is no longer held back, but waits for", why)
        told = self.last_true.get((job.id, job.attempts), NO_REMEDY)
        if told == NO_REMEDY or self._untruth(told, job, view, policy):
            self.last_true[job.id, job.attempts] = self._find_remedy(job, view, policy)

    def _find_remedy(self, job: Job, view: View, policy: Policy) -> Remedy:
        """Computes a remedy, requires that it is true, and returns it."""
        told = remedy(job, view, view.at, policy, self.rules, ())
        wrong = self._untruth(told, job, view, policy)
        self.require(not wrong, job, wrong, told)
        why, said = view.why.get(job.id), set(told.until + told.ahead)
        if why and said and why.kind in (Waiting.STOPPING, Waiting.MEMORY):
            named = {*why.asked, *why.gone, *why.ends, *why.jobs}
            self.require(not named or bool(said & named), job, f"waits for {named}, but", told)
        if told.until or told.ahead:
            return replace(told, instead="")
        if not self._starts(job, view, policy):
            alone = without(view, view.jobs, job.id)
            never = not self._starts(job, alone, policy)
            self.require(never, job, "has no remedy, but", view.why)
        return told

    def _untruth(self, told: Remedy, job: Job, view: View, policy: Policy) -> str:
        """What is not true in a remedy, or an empty string."""
        gone = told.until + told.ahead
        if gone and not self._starts(job, without(view, gone, job.id), policy):
            return "still waits without the jobs in"
        if told.instead:
            wished = wishing(view, job, apply_advice(job.spec, told.instead))
            if not self._starts(job, wished, policy):
                return "still waits with the changed request in"
        return ""

    def _starts(self, job: Job, view: View, policy: Policy) -> bool:
        return starts(job.id, view, view.at, policy, self.rules)


class CachingPolicy:
    """A policy that caches plans. The views must be variants of one view that differ only in their
    jobs and in what the jobs ask for."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._plans: dict[
            Hashable, tuple[View, Plan]
        ] = {}  # with the view, so that no id is reused

    def __call__(self, view: View, now: Time) -> Plan:
        jobs = frozenset(map(id, view.jobs.values()))
        runs = frozenset(run for holders in view.held.values() for run in holders)
        key = jobs, runs, frozenset(view.pods)
        if key not in self._plans:
            self._plans[key] = view, self.policy(view, now)
        return self._plans[key][1]


def apply_advice(spec: JobSpec, advice: str) -> JobSpec:
    """The specification after its owner has followed the advice."""
    match advice.split():
        case ["without", "--disable_gpu_sharing"]:
            return replace(spec, shareable=True)
        case ["with", "--num_gpus", count]:
            return replace(spec, gpus_min=int(count), gpus_max=int(count))
        case ["with", "--min_gpus", count]:
            return replace(spec, gpus_min=int(count))
        case ["with", "--estimated_memory", mib]:
            return replace(spec, memory_mib=int(mib))
    raise ValueError(f"unknown advice: {advice}")
