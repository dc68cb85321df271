"""What is asked of an honest policy: to stop nobody for nothing, to tell truly why jobs wait."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.adopt import lingers
from scheduler.model import Gpu, GpuKey, Job, Rules, Run, Time, View
from scheduler.packing import cards, need_mib
from simulator.checkers import Checker
from simulator.world import World


class Economy(Checker):
    """No run is stopped for nothing."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world)
        self.rules = rules

    def stepped(self, before: View, after: View) -> None:
        for job_id in sorted(after.stopping - before.stopping):
            job = after.jobs[job_id]
            old = before.jobs.get(job_id)
            if job.cancelled or job.held or job.run is None or (old and old.run is None):
                continue
            why = self._wanted(job, after) or self._grown(job.run, after)
            self.require(why, job, "was stopped for nothing")

    def _wanted(self, job: Job, view: View) -> bool:
        """Whether a job of higher priority waits that cannot have what is free: because it does not
        fit there, or because that is kept for somebody who needs more."""
        free = _free(view, self.rules)
        waiting = [other for other in view.jobs.values() if _startable(other, view.at)]
        unfit = [other for other in waiting if not _fits(other, free, view, self.rules)]
        return bool(unfit) and any(other.priority > job.priority for other in waiting)

    def _grown(self, run: Run, view: View) -> bool:
        """Whether those on one of its GPUs need more than there is."""
        known = cards(view.nodes)
        return any(
            sum(_needs(view, key, known[key], self.rules)) > known[key].capacity_mib
            for key in (share.key for share in run.shares)
            if key in known
        )


class Reasons(Checker):
    """Every job that waits is told why, and it is true."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world)
        self.rules = rules

    def stepped(self, before: View, after: View) -> None:
        if after.planned_at == before.planned_at or after.planned_at != after.at or after.stale:
            return  # not of this step, or soon to be replaced
        free = _free(after, self.rules)
        for job in after.jobs.values():
            if job.waiting:
                why = after.why.get(job.id)
                self.require(why is not None, job, "is not told why it waits")
                if why is not None:
                    self.require(self._true(job, why.kind, free, after), job, "waits for", why)

    def _true(self, job: Job, kind: str, free: Mapping[GpuKey, int], view: View) -> bool:
        fits = _fits(job, free, view, self.rules)
        others = [other for other in view.jobs.values() if other is not job]
        match kind:
            case "held":
                return job.held
            case "backoff":
                return job.eligible_at > view.at
            case "nodes":
                return not any(node.ready for node in view.nodes)
            case "turn":  # what it could have had may have gone to one that delays nobody
                given = any(other.run and other.run.started_at == view.at for other in others)
                return (fits or given) and any(_startable(other, view.at) for other in others)
            case "memory" | "gpus":
                return not fits
            case "stopping":
                return bool(view.stopping) or not fits or lingers(job, view.pods)
        return False


def _startable(job: Job, now: Time) -> bool:
    return job.waiting and not job.held and job.eligible_at <= now


def _needs(view: View, key: GpuKey, gpu: Gpu, rules: Rules) -> list[int]:
    """What each holder of a GPU takes of it, or was measured to need."""
    needs = []
    for (job_id, attempt), mib in view.held.get(key, {}).items():
        job = view.jobs.get(job_id)
        if job and job.run and job.run.attempt == attempt:
            mib = max(mib, min(need_mib(job, gpu, rules), gpu.capacity_mib))
        needs.append(mib)
    return needs


def _free(view: View, rules: Rules) -> dict[GpuKey, int]:
    return {
        key: gpu.capacity_mib - sum(_needs(view, key, gpu, rules))
        for key, gpu in cards(view.nodes).items()
    }


def _fits(job: Job, free: Mapping[GpuKey, int], view: View, rules: Rules) -> bool:
    """Whether some node has room for it as it is."""
    known = cards(view.nodes)
    room: dict[str, int] = {}
    for key, mib in free.items():
        if need_mib(job, known[key], rules) <= mib:
            room[key[0]] = room.get(key[0], 0) + 1
    return job.spec.gpus_min <= max(room.values(), default=0)
