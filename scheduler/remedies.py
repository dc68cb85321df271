"""What would let a waiting job start: found by asking the policy again, with less in the way. Pure.

So what is told is what would be done, whatever the policy; and a policy need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from scheduler.adopt import adopt
from scheduler.model import Job, JobId, JobSpec, Rules, Time, View
from scheduler.packing import free_mib, takes_whole_card
from scheduler.ports import Policy
from scheduler.prospect import NO_REMEDY, Remedy

PLANS_MAX = 40  # are made for one answer
LESS_MEMORY_MIN = 0.5  # of what was asked for: with less than that it would be another job
MIB_STEP = 100


def remedy(
    job: Job, view: View, now: Time, policy: Policy, rules: Rules, leaving: Iterable[JobId]
) -> Remedy:
    """`leaving`: who holds GPUs, in the order in which they are expected to let go of them."""
    if not startable(job, now):
        return NO_REMEDY
    trial = _Trial(job, now, policy, rules)
    if trial.starts(view):
        return NO_REMEDY
    wishes = _wishes(job, view, rules)
    instead = (said for said, spec in wishes if trial.starts(wishing(view, job, spec)))
    said = next(instead, "")
    holders = list(_holders(view, leaving))
    waiting = [other for other in _served(view) if other != job.id]
    gone = set(_least([*holders, *waiting], lambda ids: trial.starts(without(view, ids, job.id))))
    return Remedy(
        until=tuple(id for id in holders if id in gone),
        ahead=tuple(id for id in waiting if id in gone),
        instead=said,
    )


def startable(job: Job, now: Time) -> bool:
    """Whether it is for want of GPUs that it waits."""
    return job.waiting and not (job.held or job.cancelled or job.eligible_at > now)


def starts(job_id: JobId, view: View, now: Time, policy: Policy, rules: Rules) -> bool:
    """Whether it would, were a plan made of this."""
    plan = policy(view, now)
    if job_id not in plan.placements:
        return False
    return adopt(view, plan, now, rules).view.jobs[job_id].run is not None


def without(view: View, gone: Iterable[JobId], but: JobId) -> View:
    """As if these had never been; of `but` only what is left of its last run goes."""
    ids = frozenset(gone)
    return replace(
        view,
        jobs={id: job for id, job in view.jobs.items() if id not in ids or id == but},
        pods={run: pods for run, pods in view.pods.items() if run[0] not in ids},
        held={
            key: {run: mib for run, mib in holders.items() if run[0] not in ids}
            for key, holders in view.held.items()
        },
        stopping=view.stopping - ids,
    )


def wishing(view: View, job: Job, spec: JobSpec) -> View:
    """As if this had been asked for."""
    learned = job.memory_mib if spec.memory_mib == job.spec.memory_mib else spec.memory_mib
    changed = replace(job, spec=spec, memory_mib=learned)
    return replace(view, jobs={**view.jobs, job.id: changed})


class _Trial:
    def __init__(self, job: Job, now: Time, policy: Policy, rules: Rules) -> None:
        self.job, self.now, self.policy, self.rules = job, now, policy, rules
        self.plans_left = PLANS_MAX

    def starts(self, view: View) -> bool:
        if not self.plans_left:
            return False
        self.plans_left -= 1
        return starts(self.job.id, view, self.now, self.policy, self.rules)


def _holders(view: View, leaving: Iterable[JobId]) -> Iterator[JobId]:
    """Those of whom only pods are left go first."""
    held = {run[0] for holders in view.held.values() for run in holders}
    running = {id for id in held if (job := view.jobs.get(id)) and job.run}
    yield from sorted(held - running)
    yield from dict.fromkeys((*(id for id in leaving if id in running), *sorted(running)))


def _served(view: View) -> Iterator[JobId]:
    """Who waits, in the order of the newest plan."""
    for job_id in dict.fromkeys((*view.why, *view.jobs)):
        if job_id in view.jobs and view.jobs[job_id].waiting:
            yield job_id


def _least(ids: Sequence[JobId], starts: Callable[[Sequence[JobId]], bool]) -> Sequence[JobId]:
    """The first so many of these without whom it starts, and of those only whom it must be without.
    Nobody, if it would not start without any of them either."""
    if not starts(ids):
        return ()
    few, many = 0, len(ids)  # without the first few it does not start, without so many it does
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if starts(ids[:middle]) else (middle, many)
    kept = list(ids[:many])
    size = max(1, len(kept) // 2)
    while True:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if fewer and starts(fewer):
                kept = fewer
            else:
                at += size
        if size == 1:
            return kept
        size //= 2


def _wishes(job: Job, view: View, rules: Rules) -> Iterator[tuple[str, JobSpec]]:
    """What else might have been asked for, and how that is said; the smallest change first."""
    spec, count = job.spec, job.spec.gpus_min
    if not spec.shareable and job.memory_mib:
        yield "without --disable_gpu_sharing", replace(spec, shareable=True)
    while count > 1:
        count //= 2
        if spec.gpus_min == spec.gpus_max:
            yield f"with --num_gpus {count}", replace(spec, gpus_min=count, gpus_max=count)
        else:
            yield f"with --min_gpus {count}", replace(spec, gpus_min=count)
    free = sorted(free_mib(view).values(), reverse=True)
    if spec.shareable and not job.attempts and len(free) >= spec.gpus_min > 0:
        mib = (free[spec.gpus_min - 1] - rules.memory_margin_mib) // MIB_STEP * MIB_STEP
        if mib > 0 and (takes_whole_card(job) or job.memory_mib * LESS_MEMORY_MIN <= mib):
            yield f"with --estimated_memory {mib}", replace(spec, memory_mib=mib)
