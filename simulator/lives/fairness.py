"""Checkers for an honest policy: no needless stops, and true reasons for waiting. (Remedies are in
advice.py.)"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.core import time_limit
from scheduler.core.evolve import bad_gpu, lost_gpu
from scheduler.core.memory import fits_empty, need_mib, usable_gpus
from scheduler.core.model import Gpu, GpuKey, Job, Rules, Run, Time, View, Waiting
from scheduler.core.runs import awaits_old_pods, current_job
from scheduler.core.sweeps import sweep_of
from scheduler.outlook.remedies import startable
from simulator.lives.checkers import Checker, RuleChecker
from simulator.lives.observed_memory import OVER_SHARE
from simulator.lives.world import World


def fairness_checkers(world: World, policy: str, rules: Rules) -> list[Checker]:
    reasons = WaitingReasons(world, rules, by_memory=policy == "fifo_sharing")
    return [NeedlessStops(world, rules), reasons] if policy == "fifo_sharing" else [reasons]


class NeedlessStops(RuleChecker):
    """No run is stopped without need."""

    def on_step(self, before: View, after: View) -> None:
        for job_id in sorted(after.stopping - before.stopping):
            job = after.jobs[job_id]
            old = before.jobs.get(job_id)
            if job.cancelled or job.held or job.run is None or (old and old.run is None):
                continue
            if job.run.stop_reason.startswith(OVER_SHARE) or lost_gpu(job.run, after.nodes):
                continue  # see observed_memory.py
            if bad_gpu(job.run, after.nodes):
                continue
            if time_limit.is_reason(job, job.run):
                continue  # see time_limits.py
            why = self._is_needed(job, after) or self._has_outgrown_gpu(job.run, after)
            self.require(why, job, "was stopped without need")

    def _is_needed(self, job: Job, view: View) -> bool:
        """Whether a job of higher priority waits that cannot use the free memory: because it does
        not fit, or because the memory is kept for a job that needs more."""
        free = _free(view, self.rules)
        waiting = [other for other in view.jobs.values() if _can_start(other, view.at)]
        unfit = [other for other in waiting if not _fits(other, free, view, self.rules)]
        return bool(unfit) and any(other.priority > job.priority for other in waiting)

    def _has_outgrown_gpu(self, run: Run, view: View) -> bool:
        """Whether the jobs on one of its GPUs need more memory than it has."""
        gpus = usable_gpus(view.nodes)
        return any(
            sum(_needs(view, key, gpus[key], self.rules)) > gpus[key].capacity_mib
            for key in (share.key for share in run.shares)
            if key in gpus
        )


class WaitingReasons(RuleChecker):
    """Every waiting job has a reason, and the reason is true."""

    def __init__(self, world: World, rules: Rules, by_memory: bool) -> None:
        """`by_memory`: whether jobs share GPUs as long as there is memory; otherwise the policy may
        have reasons not to let them share."""
        super().__init__(world, rules)
        self.by_memory = by_memory

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after):
            return
        free = _free(after, self.rules)
        for job in after.jobs.values():
            if job.waiting:
                why = after.why.get(job.id)
                self.require(why is not None, job, "waits without a reason")
                if why is not None:
                    self.require(self._is_true(job, why.kind, free, after), job, "waits for", why)

    def _is_true(self, job: Job, kind: Waiting, free: Mapping[GpuKey, int], view: View) -> bool:
        if self.by_memory:
            fits = _fits(job, free, view, self.rules)
        else:
            fits = _fits_alone(job, view, self.rules)
        others = [other for other in view.jobs.values() if other is not job]
        match kind:
            case Waiting.HELD:
                return job.held
            case Waiting.AFTER:
                return bool(job.awaits)  # see graphs.py
            case Waiting.BACKOFF:
                return job.eligible_at > view.at
            case Waiting.NODES:
                return not any(node.ready for node in view.nodes)
            case Waiting.TURN:  # its GPUs may have gone to a job that delays no other
                given = any(other.run and other.run.started_at == view.at for other in others)
                return (fits or given) and any(
                    self._may_come_first(other, view.at) for other in others
                )
            case Waiting.MEMORY | Waiting.GPUS:
                return not fits
            case Waiting.PARALLEL:
                sweep = sweep_of(job.spec)
                rivals = (o for o in others if o.run or _can_start(o, view.at))
                return sum(sweep_of(o.spec) == sweep for o in rivals) >= job.spec.parallel > 0
            case Waiting.STOPPING:
                leaving = bool(view.stopping) or _any_run_vanishing(view)
                return leaving or not fits or awaits_old_pods(job, view.pods)
        return False

    def _may_come_first(self, other: Job, now: Time) -> bool:
        """Whether GPUs may be kept for this job, which may also be a run that is to move."""
        return _can_start(other, now) or (not self.by_memory and other.outcome is None)


def has_new_plan(before: View, after: View) -> bool:
    """Whether this step has made a plan, with reasons that are not stale."""
    return after.planned_at == after.at != before.planned_at and not after.stale


def can_start_now(job: Job, view: View) -> bool:
    """Whether it waits only for GPUs."""
    why = view.why.get(job.id)
    if why and why.kind is Waiting.PARALLEL:
        return False
    return startable(job, view.at) and not awaits_old_pods(job, view.pods)


def _any_run_vanishing(view: View) -> bool:
    """Whether there are pods of a run that no job has any more; they are about to end."""
    runs = {run for held in view.held.values() for run in held}
    live = {(job.id, job.run.attempt) for job in view.jobs.values() if job.run}
    return not runs <= live


def _can_start(job: Job, now: Time) -> bool:
    return job.waiting and not (job.held or job.awaits) and job.eligible_at <= now


def _needs(view: View, key: GpuKey, gpu: Gpu, rules: Rules) -> list[int]:
    """The memory that each run on a GPU holds, or was measured to need."""
    needs = []
    for run, mib in view.held.get(key, {}).items():
        if job := current_job(run, view.jobs):
            mib = max(mib, min(need_mib(job, gpu, rules), gpu.capacity_mib))
        needs.append(mib)
    return needs


def _free(view: View, rules: Rules) -> dict[GpuKey, int]:
    return {
        key: gpu.capacity_mib - sum(_needs(view, key, gpu, rules))
        for key, gpu in usable_gpus(view.nodes).items()
    }


def _fits_alone(job: Job, view: View, rules: Rules) -> bool:
    """Whether there are enough GPUs of one type without runs."""
    free: dict[str, int] = {}
    for key, gpu in usable_gpus(view.nodes).items():
        if not view.held.get(key) and fits_empty(job, gpu, rules):
            free[gpu.type] = free.get(gpu.type, 0) + 1
    return job.spec.gpus_min <= max(free.values(), default=0)


def _fits(job: Job, free: Mapping[GpuKey, int], view: View, rules: Rules) -> bool:
    """Whether it fits into the free memory, on GPUs of one type."""
    gpus = usable_gpus(view.nodes)
    room: dict[str, int] = {}
    for key, mib in free.items():
        if need_mib(job, gpus[key], rules) <= mib:
            room[gpus[key].type] = room.get(gpus[key].type, 0) + 1
    return job.spec.gpus_min <= max(room.values(), default=0)
