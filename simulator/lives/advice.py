"""What people are told would let a waiting job start is done, and it starts: a checker.

Some are asked at times, or all at every plan (`--advice all`), which takes longer. What was told of
a job and is still true is not asked for anew then, and who asks for the same plan has the same.
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

SOME_EVERY = 10  # steps: one job, as many plans are made for one answer


class RemedyChecker(RuleChecker):
    """There is something that would let a waiting job start, and what is told of it is true."""

    def __init__(self, world: World, policy: Policy, rules: Rules, of_all: bool) -> None:
        super().__init__(world, rules)
        self.policy, self.of_all = policy, of_all
        self.last_true: dict[tuple[JobId, int], Remedy] = {}  # (job, attempts): what was true last

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
        if not startable(job, view.at):  # what is told then is what keeps it: so that goes first
            job = replace(job, held=False, eligible_at=min(job.eligible_at, view.at))
            view = replace(view, jobs={**view.jobs, job.id: job})
            why = policy(view, view.at).why.get(job.id)
            kept = why is not None and why.kind in (Waiting.HELD, Waiting.BACKOFF)
            self.require(not kept, job, "is not kept any more, but waits for", why)
        told = self.last_true.get((job.id, job.attempts), NO_REMEDY)
        if told == NO_REMEDY or self._untruth(told, job, view, policy):
            self.last_true[job.id, job.attempts] = self._find_remedy(job, view, policy)

    def _find_remedy(self, job: Job, view: View, policy: Policy) -> Remedy:
        """One thing that was told, and is true."""
        told = remedy(job, view, view.at, policy, self.rules, ())
        wrong = self._untruth(told, job, view, policy)
        self.require(not wrong, job, wrong, told)
        if told.until or told.ahead:
            return replace(told, instead="")
        if not self._starts(job, view, policy):
            alone = without(view, view.jobs, job.id)
            never = not self._starts(job, alone, policy)
            self.require(never, job, "is told nothing, but", view.why)
        return told

    def _untruth(self, told: Remedy, job: Job, view: View, policy: Policy) -> str:
        """What of it is not true."""
        gone = told.until + told.ahead
        if gone and not self._starts(job, without(view, gone, job.id), policy):
            return "waits, but for"
        if told.instead:
            wished = wishing(view, job, apply_advice(job.spec, told.instead))
            if not self._starts(job, wished, policy):
                return "waits, though it asked otherwise, as in"
        return ""

    def _starts(self, job: Job, view: View, policy: Policy) -> bool:
        return starts(job.id, view, view.at, policy, self.rules)


class CachingPolicy:
    """A policy that is asked once for each of the views that differ from one only in who is there
    and in what they ask for."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._plans: dict[
            Hashable, tuple[View, Plan]
        ] = {}  # with the view, so that no id comes again

    def __call__(self, view: View, now: Time) -> Plan:
        jobs = frozenset(map(id, view.jobs.values()))
        runs = frozenset(run for holders in view.held.values() for run in holders)
        key = jobs, runs, frozenset(view.pods)
        if key not in self._plans:
            self._plans[key] = view, self.policy(view, now)
        return self._plans[key][1]


def apply_advice(spec: JobSpec, advice: str) -> JobSpec:
    """As its owner would have it who follows that advice."""
    match advice.split():
        case ["without", "--disable_gpu_sharing"]:
            return replace(spec, shareable=True)
        case ["with", "--num_gpus", count]:
            return replace(spec, gpus_min=int(count), gpus_max=int(count))
        case ["with", "--min_gpus", count]:
            return replace(spec, gpus_min=int(count))
        case ["with", "--estimated_memory", mib]:
            return replace(spec, memory_mib=int(mib))
    raise ValueError(f"nobody can follow this: {advice}")
