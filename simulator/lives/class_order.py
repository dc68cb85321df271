"""Checkers for `gpu_sharing` only: which job comes first, and what a move is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scheduler.core.memory import fits_empty, need_mib, usable_gpus
from scheduler.core.model import (
    Gpu,
    GpuCounts,
    GpuKey,
    Job,
    JobId,
    Placement,
    Reason,
    Rules,
    Run,
    RunPhase,
    Time,
    View,
    Waiting,
)
from scheduler.core.runs import awaits_old_pods, current_job, may_stop
from scheduler.estimates.speed import Speeds
from scheduler.estimates.trials import seconds_with_return
from simulator.lives.checkers import Checker, RuleChecker, changed_jobs
from simulator.lives.estimate_checkers import SETTLED_SECONDS
from simulator.lives.fairness import can_start_now, has_new_plan
from simulator.lives.world import World

PATIENCE = 28  # times `ageing_seconds`: waiting for this long raises a job by one class


def class_order_checkers(world: World, rules: Rules) -> list[Checker]:
    return [
        ReasonTexts(world, rules),
        PriorityClasses(world, rules),
        Moves(world, rules),
        MemoryRoom(world, rules),
        Starvation(world, rules),
    ]


class ReasonTexts(RuleChecker):
    """The reason for waiting is true, including names and numbers. (A job's name is its id.)"""

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after):
            return
        gpus = usable_gpus(after.nodes)
        for job in after.jobs.values():
            if job.waiting and (why := after.why.get(job.id)):
                held = why.kind is Waiting.HELD
                true = job.held == held and self._is_true(job, why, after, gpus)
                self.require(true, job, "has a wrong reason:", why)

    def _is_true(self, job: Job, why: Reason, view: View, gpus: dict[GpuKey, Gpu]) -> bool:
        large = [key for key, gpu in gpus.items() if fits_empty(job, gpu, self.rules)]
        match why.kind:
            case Waiting.TURN:
                named = [view.jobs.get(id) for id in _ids(why.jobs)]
                return bool(named) and all(other and not other.outcome for other in named)
            case Waiting.STOPPING:
                asked, gone = _ids(why.asked), _ids(why.gone)
                left = bool(asked or gone) or awaits_old_pods(job, view.pods)
                return (
                    left and asked <= view.stopping and all(_is_vanishing(id, view) for id in gone)
                )
            case Waiting.GPUS if why.there is not None:
                return len(large) == _count(why.there) < job.spec.gpus_min
            case Waiting.GPUS if why.free is not None:
                free = [key for key in large if not view.held.get(key)]
                beside = not why.jobs or any(self._is_beside(why, key, view) for key in large)
                return beside and len(free) == _count(why.free) < job.spec.gpus_min
            case Waiting.MEMORY:
                there = {key for id in _ids(why.jobs) for key in _gpu_keys(view.jobs.get(id))}
                fits = sum(self._fits(job, key, view, gpus) for key in there or gpus)
                return fits < max(1, job.spec.gpus_min)
        return True

    def _is_beside(self, why: Reason, key: GpuKey, view: View) -> bool:
        """Whether the named jobs, and no others, leave so much memory of this GPU."""
        held = view.held.get(key, {})
        named = {run[0] for run in held}
        left = usable_gpus(view.nodes)[key].capacity_mib - sum(held.values())
        all_named = _ids(why.jobs) <= named and len(named) == len(why.jobs) + why.jobs_more
        return all_named and left == why.free_mib

    def _need(self, job: Job, gpu: Gpu) -> int:
        return need_mib(job, gpu, self.rules)

    def _fits(self, job: Job, key: GpuKey, view: View, gpus: dict[GpuKey, Gpu]) -> bool:
        gpu = gpus.get(key)
        held = sum(view.held.get(key, {}).values())
        return gpu is not None and self._need(job, gpu) <= gpu.capacity_mib - held


def _ids(names: Iterable[str]) -> set[JobId]:
    return set(map(JobId, names))


def _count(counts: GpuCounts) -> int:
    return sum(count for _, count in counts)


def _gpu_keys(job: Job | None) -> set[GpuKey]:
    return {share.key for share in job.run.shares} if job and job.run else set()


def _is_vanishing(job_id: JobId, view: View) -> bool:
    """Whether its leftovers on GPUs are about to end."""
    job = view.jobs.get(job_id)
    if job is None or job.cancelled:
        return True
    runs = {run for held in view.held.values() for run in held if run[0] == job_id}
    return any(not (job.run and job.run.attempt == attempt) for _, attempt in runs)


class PriorityClasses(RuleChecker):
    """A class gets all that it can use before the next one gets anything."""

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after):
            return
        gpus = usable_gpus(after.nodes)
        for job in after.jobs.values():
            why = after.why.get(job.id)
            if why and why.kind in (Waiting.GPUS, Waiting.TURN) and can_start_now(job, after):
                below = list(self._gpus_of_lower_classes(job, after, gpus))
                enough = len(below) >= job.spec.gpus_min
                self.require(not enough, job, why, "though lower classes have", below)

    def _gpus_of_lower_classes(
        self, job: Job, view: View, gpus: dict[GpuKey, Gpu]
    ) -> Iterator[GpuKey]:
        """GPUs with runs of lower classes only, which have just begun or could be preempted."""
        own = self.class_number(job, view.at)
        for key, gpu in gpus.items():
            runs = view.held.get(key, {})
            if runs and fits_empty(job, gpu, self.rules):
                holders = [view.jobs.get(id) for id, _ in runs]
                if all(
                    other
                    and self.class_number(other, view.at) < own
                    and _could_lose_gpus(other, view)
                    for other in holders
                ):
                    yield key

    def class_number(self, job: Job, now: Time) -> float:
        waited = now - job.submitted_at - job.ran_seconds
        if job.run:
            waited -= now - job.run.started_at
        return job.priority + waited // (PATIENCE * self.rules.ageing_seconds)


def _could_lose_gpus(job: Job, view: View) -> bool:
    """Whether the newest plan could have taken its GPUs away."""
    run = job.run
    if run is None or run.phase is RunPhase.STOPPING:
        return False
    return run.started_at == view.at or can_be_asked_to_stop(run, view)


def can_be_asked_to_stop(run: Run, view: View) -> bool:
    """Whether it could stop at the end of an epoch, without loss. A run that is on an unreachable
    node, even in part, may never get the message: it would be killed and lose the epoch."""
    reached = {node.name for node in view.nodes if node.ready}
    return may_stop(run) and all(share.node in reached for share in run.shares)


class Moves(RuleChecker):
    """Between two moves of a job is a finished epoch, and each move saves more than it costs."""

    def on_step(self, before: View, after: View) -> None:
        for job_id in sorted(after.stopping - before.stopping):
            job = after.jobs[job_id]
            run = job.run
            if run is None or job.cancelled:
                continue
            why = after.stops.get(job_id)  # None: the plan did not stop it
            if why and why.kind is Waiting.MOVED:
                self.require(job.epochs_done > run.epochs_before, job, "has finished no epoch")
                match why.before, why.after:
                    case (("", here),), (("", there),):
                        self._require_gain(job, run, here, there, after)
            if why and why.kind is Waiting.PREEMPTED:
                others = [other for other in _jobs(after) if other is not job]
                wanted = any(
                    _wants_gpus(other, after) or _share_gpu(job, other) for other in others
                )
                self.require(wanted, job, "is preempted for no other job")

    def _require_gain(self, job: Job, run: Run, here: int, there: int, view: View) -> None:
        """Requires a gain according to the estimates of this job and of others."""
        others = [other for other in _jobs(view) if other is not job]
        if there < here and any(_wants_gpus(o, view) or _share_gpu(job, o) for o in others):
            return  # fewer GPUs for the sake of others
        gpus = usable_gpus(view.nodes)
        gpu = gpus.get(run.shares[0].key)
        if gpu is not None:
            sizes = Counter(node for node, _ in gpus)
            nodes = -(-there // max(sizes.values()))
            target = Placement(gpu.type, there, nodes)
            jobs = [other for other in _jobs(view) if other.outcome is None]
            costs = job.restart_seconds or self.rules.restart_seconds
            saved = _saved_by(job, run, target, costs, jobs, view)
            self.require(saved > costs, job, "saves", saved, "s by a restart of", costs)


def _saved_by(
    job: Job, run: Run, target: Placement, costs: float, jobs: Sequence[Job], view: View
) -> float:
    """The seconds that a move saves as expected, or as hoped where the kind was never measured:
    then it may be a try."""
    known, row, left = Speeds(jobs, view.kinds), jobs.index(job), job.max_epochs - job.epochs_done
    alone = [run.placement, *(one.placement for one in job.measured if not one.beside)]
    been = [place for place in map(Placement.parse, dict.fromkeys(alone)) if place]
    configs = [*(been or [target]), target]
    seconds, doubt = known.estimate(configs)[row], known.uncertainty(configs)[row, -1]
    saved = left * float(seconds[0] - seconds[-1])
    if known.shown(configs)[known.measured.kind[row], -1]:
        return saved
    best = np.asarray(seconds[:-1].min())
    hoped = seconds_with_return(
        best, seconds[-1], doubt, np.zeros(()), np.array(float(left)), np.array(costs)
    )
    return max(saved, left * float(seconds[0] - hoped))


def _jobs(view: View) -> Iterator[Job]:
    yield from view.jobs.values()


def _share_gpu(job: Job, other: Job) -> bool:
    """Whether they run on a GPU together: one may be faster without the other."""
    return not _gpu_keys(job).isdisjoint(_gpu_keys(other))


def _wants_gpus(job: Job, view: View) -> bool:
    """Whether it could use GPUs that other jobs give up."""
    if job.outcome or job.cancelled or job.held or job.awaits:
        return False
    begins = job.run is not None and job.run.started_at == view.at
    return job.waiting or begins or job.id in view.stopping


class MemoryRoom(RuleChecker):
    """If the jobs on a GPU were measured to need more than it has, one of them is preempted."""

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after):
            return
        for key, gpu in usable_gpus(after.nodes).items():
            holders = [
                job for run in after.held.get(key, {}) if (job := current_job(run, after.jobs))
            ]
            needs = sum(need_mib(job, gpu, self.rules) for job in holders)
            if needs > gpu.capacity_mib:
                leaves = any(job.id in after.stopping for job in holders)
                asked = [job for job in holders if job.run and can_be_asked_to_stop(job.run, after)]
                self.require(leaves or not asked, key, needs, "of", gpu.capacity_mib, *holders)


def _starts_again(job: Job, old: Job) -> bool:
    return job.run is not None and job.run.attempt > 1 and job.attempts > old.attempts


class Starvation(RuleChecker):
    """A job waits only for jobs that may precede it: they were submitted, with the time that they
    ran added, before it or at most (the difference in priority + 1) x PATIENCE x `ageing_seconds`
    after it. Once none of them is on the GPUs that it needs, and every run there can be preempted,
    it starts within one notice. GPUs are also kept for such a job while it stops in order to move
    onto them. That takes one notice at most, for each such job; the bound begins again where one of
    them has moved, because another may have been asked to in the meantime."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world, rules)
        self.since: dict[JobId, Time] = {}  # when such a job last kept it waiting

    def on_step(self, before: View, after: View) -> None:
        healed_at = self.world.healed_at
        if healed_at is None or self.world.time < healed_at + SETTLED_SECONDS:
            return
        gpus = usable_gpus(after.nodes)
        waiting = [job for job in after.jobs.values() if can_start_now(job, after)]
        since = {job.id: self.since.get(job.id, after.at) for job in waiting}
        moved = [job for job, old in changed_jobs(before, after) if _starts_again(job, old)]
        for job in waiting:
            overtaken = any(self.may_precede(other, job) for other in moved)
            if overtaken or self._is_kept_waiting(job, after, gpus):
                since[job.id] = after.at
            most = self.rules.stop_grace_seconds + SETTLED_SECONDS
            late = after.at - since[job.id]
            self.require(late <= most, job, "starves for", late, "s,", after.why.get(job.id))
        self.since = since

    def _is_kept_waiting(self, job: Job, view: View, gpus: dict[GpuKey, Gpu]) -> bool:
        """Whether it waits for jobs before it, for runs that cannot be preempted, or because the
        cluster does not have what it needs."""
        left = 0
        for key, gpu in gpus.items():
            if need_mib(job, gpu, self.rules) > gpu.capacity_mib:
                continue
            left += not any(
                self._is_in_the_way(view.jobs.get(id), job, view)
                for id, _ in view.held.get(key, {})
            )
        return left < max(1, job.spec.gpus_min)

    def _is_in_the_way(self, other: Job | None, job: Job, view: View) -> bool:
        if other is None or other.run is None:
            return False  # its pods are about to end
        asked = other.run.phase is RunPhase.STOPPING or can_be_asked_to_stop(other.run, view)
        return self.may_precede(other, job) or not asked

    def may_precede(self, other: Job, job: Job) -> bool:
        """Whether `other` may ever be in a higher class than `job`, or in the same."""
        step = PATIENCE * self.rules.ageing_seconds
        later = (other.submitted_at + other.ran_seconds) - (job.submitted_at + job.ran_seconds)
        return later < (other.priority - job.priority + 1) * step
