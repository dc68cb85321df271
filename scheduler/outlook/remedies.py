"""What would let a waiting job start: asks the policy again, without some of the other jobs. Pure.

So the answer is what the policy would really do, and policies need not know about remedies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from scheduler.core.adopt import adopt
from scheduler.core.memory import fits_empty, free_mib, takes_whole_gpu, usable_gpus
from scheduler.core.model import Job, JobId, JobSpec, Rules, Time, View, Waiting
from scheduler.core.ports import Policy
from scheduler.core.runs import awaits_old_pods, waiting_in_order
from scheduler.outlook.prospect import NO_REMEDY, Remedy

# The number of plans for one answer, with few live jobs and with many.
PLANS_MAX, FEW = 40, 40
PLANS_MAX_OF_MANY = 12
LESS_MEMORY_MIN = 0.5  # of the requested memory: with less it would be another job
MIB_STEP = 100


def remedy(
    job: Job, view: View, now: Time, policy: Policy, rules: Rules, leaving: Iterable[JobId]
) -> Remedy:
    """`leaving`: the jobs that hold GPUs, in the order in which they are expected to leave them."""
    if job.id not in view.jobs or not startable(job, now):
        return NO_REMEDY
    plans = PLANS_MAX if len(view.jobs) <= FEW else PLANS_MAX_OF_MANY
    trial = _Trial(job, now, policy, rules, plans)
    if trial.starts(view):
        return NO_REMEDY

    def starts_without(ids: Sequence[JobId]) -> bool:
        return trial.starts(without(view, ids, job.id))

    named = _named(job, view)
    if named and starts_without(named):
        gone = _least(named, starts_without)
    else:
        # The reason says that the job waits for these: what is told here does not contradict it.
        fixed = named if named and view.why[job.id].kind is not Waiting.TURN else []
        blocks = chain([fixed], _in_the_way(job, view, now, rules, leaving))
        enough = _enough(blocks, starts_without)
        rest = [id for id in enough if id not in fixed]
        gone = [*fixed, *_least(rest, lambda ids: starts_without([*fixed, *ids]))] if enough else []
    wishes = _wishes(job, view, rules)
    changes = (flag for flag, spec in wishes if trial.starts(wishing(view, job, spec)))
    instead = next(changes, "")
    holders = {job.id, *(run[0] for on in view.held.values() for run in on)}
    return Remedy(
        until=tuple(id for id in gone if id in holders),
        ahead=tuple(id for id in gone if id not in holders),
        instead=instead,
    )


def startable(job: Job, now: Time) -> bool:
    """Whether the job waits only for GPUs."""
    kept = job.held or job.cancelled or job.awaits or job.eligible_at > now
    return job.waiting and not kept


def starts(job_id: JobId, view: View, now: Time, policy: Policy, rules: Rules) -> bool:
    """Whether a plan for this view would start the job."""
    plan = policy(view, now)
    if job_id not in plan.placements:
        return False
    return adopt(view, plan, now, rules).view.jobs[job_id].run is not None


def without(view: View, gone: Iterable[JobId], but: JobId) -> View:
    """Returns the view without these jobs. Of `but`, only the remains of its last run are
    removed."""
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
    """Returns the view in which the job has this specification."""
    learned = job.memory_mib if spec.memory_mib == job.spec.memory_mib else spec.memory_mib
    changed = replace(job, spec=spec, memory_mib=learned)
    return replace(view, jobs={**view.jobs, job.id: changed})


class _Trial:
    def __init__(self, job: Job, now: Time, policy: Policy, rules: Rules, plans: int) -> None:
        self.job, self.now, self.policy, self.rules = job, now, policy, rules
        self.plans_left = plans

    def starts(self, view: View) -> bool:
        if not self.plans_left:
            return False
        self.plans_left -= 1
        return starts(self.job.id, view, self.now, self.policy, self.rules)


def _named(job: Job, view: View) -> list[JobId]:
    """The jobs for which the job waits according to the reason that the plan gave."""
    why = view.why.get(job.id)
    if why is None or why.kind not in (Waiting.STOPPING, Waiting.MEMORY, Waiting.TURN):
        return []
    names = {*why.asked, *why.gone, *why.ends, *why.jobs}
    held = {run[0] for on in view.held.values() for run in on}
    among = view.jobs if why.kind is Waiting.TURN else held
    return sorted(id for id in among if id != job.id and _name(id, view) in names)


def _name(job_id: JobId, view: View) -> str:
    return view.jobs[job_id].spec.name if job_id in view.jobs else job_id


def _in_the_way(
    job: Job, view: View, now: Time, rules: Rules, leaving: Iterable[JobId]
) -> Iterator[list[JobId]]:
    """Yields jobs that may be in the way, the likeliest first: the remains of the job's own last
    run, the jobs on the GPUs that are the first to become free, the waiting jobs that are served
    first, the jobs on other GPUs, and all others."""
    own = [[job.id]] if awaits_old_pods(job, view.pods) else []
    holders = list(_holders(job, view, rules, leaving))
    queue = [other.id for other in waiting_in_order(view)]
    ahead = [id for id in queue[: queue.index(job.id)] if startable(view.jobs[id], now)]
    others = [id for id in dict.fromkeys((*queue, *view.jobs)) if id != job.id]
    first = max(1, job.spec.gpus_min)
    seen = set[JobId]()
    for block in (own, holders[:first], [ahead], *_doubling(holders[first:]), [others]):
        new = [id for ids in block for id in ids if id not in seen]
        seen.update(new)
        yield list(dict.fromkeys(new))


def _holders(job: Job, view: View, rules: Rules, leaving: Iterable[JobId]) -> Iterator[list[JobId]]:
    """Yields the jobs on each GPU that is large enough, the first to become free first. Jobs of
    which only pods are left come before all others."""
    order = {job_id: number for number, job_id in enumerate(leaving)}
    found = []
    for key, gpu in usable_gpus(view.nodes).items():
        runs = view.held.get(key, {})
        if runs and fits_empty(job, gpu, rules):
            live = [run[0] for run in runs if (at := view.jobs.get(run[0])) and at.run]
            last = max((order.get(id, len(order)) for id in live), default=-1)
            found.append((last, key, sorted({run[0] for run in runs})))
    yield from (ids for _, _, ids in sorted(found))


def _doubling(found: Sequence[list[JobId]]) -> Iterator[Sequence[list[JobId]]]:
    size = 1
    while found:
        yield found[:size]
        found, size = found[size:], 2 * size


def _enough(
    blocks: Iterable[list[JobId]], starts_without: Callable[[Sequence[JobId]], bool]
) -> Sequence[JobId]:
    """Returns the first jobs, up to the point at which the job starts without them; none if it does
    not start at all."""
    gone: list[JobId] = []
    for block in blocks:
        if block:
            gone += block
            if starts_without(gone):
                return gone
    return ()


def _least(
    ids: Sequence[JobId], starts_without: Callable[[Sequence[JobId]], bool]
) -> Sequence[JobId]:
    """Removes jobs that are not in the way, the last ones first, as far as the remaining plans
    allow."""
    kept = list(ids)
    size = len(kept)
    while size > 1:
        size = (size + 1) // 2
        for at in reversed(range(0, len(kept), size)):
            fewer = kept[:at] + kept[at + size :]
            if fewer and starts_without(fewer):
                kept = fewer
    return kept


def _wishes(job: Job, view: View, rules: Rules) -> Iterator[tuple[str, JobSpec]]:
    """Yields other specifications and the flags that request them, the smallest change first."""
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
        if mib > 0 and (takes_whole_gpu(job) or job.memory_mib * LESS_MEMORY_MIN <= mib):
            yield f"with --estimated_memory {mib}", replace(spec, memory_mib=mib)
