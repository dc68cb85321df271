"""What is asked of `gpu_sharing`, and of nobody else: who comes first, and what a move is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

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
from scheduler.estimates.speed import estimate
from simulator.lives.checkers import Checker, RuleChecker
from simulator.lives.estimate_checkers import SETTLED_SECONDS
from simulator.lives.fairness import can_start_now, has_new_plan
from simulator.lives.world import World

PATIENCE = 28  # times `ageing_seconds`: waiting so long is worth a class


def class_order_checkers(world: World, rules: Rules) -> list[Checker]:
    return [
        ReasonTexts(world, rules),
        PriorityClasses(world, rules),
        Moves(world, rules),
        MemoryRoom(world, rules),
        Starvation(world, rules),
    ]


class ReasonTexts(RuleChecker):
    """Why a job waits is true to the letter, names and numbers. (A job is named as its id.)"""

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after):
            return
        gpus = usable_gpus(after.nodes)
        for job in after.jobs.values():
            if job.waiting and (why := after.why.get(job.id)):
                held = why.kind is Waiting.HELD
                true = job.held == held and self._is_true(job, why, after, gpus)
                self.require(true, job, "is told:", why)

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
                return len(free) == _count(why.free) < job.spec.gpus_min
            case Waiting.MEMORY:
                there = {key for id in _ids(why.jobs) for key in _gpu_keys(view.jobs.get(id))}
                return not any(self._fits(job, key, view, gpus) for key in there or gpus)
        return True

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
    """Whether what is left of it on cards is about to go."""
    job = view.jobs.get(job_id)
    if job is None or job.cancelled:
        return True
    runs = {run for held in view.held.values() for run in held if run[0] == job_id}
    return any(not (job.run and job.run.attempt == attempt) for _, attempt in runs)


class PriorityClasses(RuleChecker):
    """A class has all that it can use before the next has anything."""

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
        """Cards on which only lower classes run, who have just begun or could be asked to leave."""
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
    """Whether the newest plan could have left it without what it has."""
    run = job.run
    if run is None or run.phase is RunPhase.STOPPING:
        return False
    return run.started_at == view.at or can_be_asked_to_stop(run, view)


def can_be_asked_to_stop(run: Run, view: View) -> bool:
    """To stop at the end of an epoch, without loss. What is on a node out of reach, if only in
    part, may never hear of it: it would be killed in the end, and the epoch be lost."""
    reached = {node.name for node in view.nodes if node.ready}
    return may_stop(run) and all(share.node in reached for share in run.shares)


class Moves(RuleChecker):
    """No move follows another without a finished epoch in between, and each pays for itself."""

    def on_step(self, before: View, after: View) -> None:
        for job_id in sorted(after.stopping - before.stopping):
            job = after.jobs[job_id]
            run = job.run
            if run is None or job.cancelled:
                continue
            why = after.stops.get(job_id)  # None: it was not the plan that stopped it
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
                self.require(wanted, job, "leaves for nobody")

    def _require_gain(self, job: Job, run: Run, here: int, there: int, view: View) -> None:
        """By what is believed of it, and that it is believed of others."""
        if there < here:
            wanted = any(other is not job and _wants_gpus(other, view) for other in _jobs(view))
            self.require(wanted, job, "is to have less for nobody")
            return
        gpus = usable_gpus(view.nodes)
        gpu = gpus.get(run.shares[0].key)
        if gpu is not None:
            sizes = Counter(node for node, _ in gpus)
            nodes = -(-there // max(sizes.values()))
            place = Placement.parse(run.placement)
            configs = [place] if place else []
            configs += [Placement(gpu.type, there, nodes)]
            jobs = [other for other in _jobs(view) if other.outcome is None]
            seconds = estimate(jobs, view.kinds, configs)[jobs.index(job)]
            saved = (job.max_epochs - job.epochs_done) * float(seconds[0] - seconds[-1])
            costs = job.restart_seconds or self.rules.restart_seconds
            self.require(saved > costs, job, "is to gain", saved, "s by a restart of", costs)


def _jobs(view: View) -> Iterator[Job]:
    yield from view.jobs.values()


def _share_gpu(job: Job, other: Job) -> bool:
    """Whether they run on a card together: one may be faster without the other."""
    return not _gpu_keys(job).isdisjoint(_gpu_keys(other))


def _wants_gpus(job: Job, view: View) -> bool:
    """Whether it could do with cards that others leave."""
    if job.outcome or job.cancelled or job.held:
        return False
    begins = job.run is not None and job.run.started_at == view.at
    return job.waiting or begins or job.id in view.stopping


class MemoryRoom(RuleChecker):
    """Where those on a card were measured to need more than it has, somebody is asked to leave."""

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


class Starvation(RuleChecker):
    """A job waits only for those that may come before it: who had been submitted, the time that
    they ran apart, before it or within (the difference in priority + 1) x PATIENCE x
    `ageing_seconds` after it. As long as none of them is on the cards that it needs, and whoever is
    can be asked to leave, it starts within one notice."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world, rules)
        self.since: dict[JobId, Time] = {}  # it was last kept waiting by one of those

    def on_step(self, before: View, after: View) -> None:
        healed_at = self.world.healed_at
        if healed_at is None or self.world.time < healed_at + SETTLED_SECONDS:
            return
        gpus = usable_gpus(after.nodes)
        waiting = [job for job in after.jobs.values() if can_start_now(job, after)]
        since = {job.id: self.since.get(job.id, after.at) for job in waiting}
        for job in waiting:
            if self._is_kept_waiting(job, after, gpus):
                since[job.id] = after.at
            most = self.rules.stop_grace_seconds + SETTLED_SECONDS
            late = after.at - since[job.id]
            self.require(late <= most, job, "starves for", late, "s,", after.why.get(job.id))
        self.since = since

    def _is_kept_waiting(self, job: Job, view: View, gpus: dict[GpuKey, Gpu]) -> bool:
        """By those before it, by those that cannot be asked, or because it can never have what it
        needs."""
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
            return False  # its pods are about to go
        asked = other.run.phase is RunPhase.STOPPING or can_be_asked_to_stop(other.run, view)
        return self.may_precede(other, job) or not asked

    def may_precede(self, other: Job, job: Job) -> bool:
        """Whether it may ever be in a higher class, or in the same."""
        step = PATIENCE * self.rules.ageing_seconds
        later = (other.submitted_at + other.ran_seconds) - (job.submitted_at + job.ran_seconds)
        return later < (other.priority - job.priority + 1) * step
