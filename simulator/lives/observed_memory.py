"""Checkers for observed memory and lost GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.core.evolve import HANGS
from scheduler.core.memory import all_gpus
from scheduler.core.model import Failure, Gpu, GpuKey, JobId, Run, RunPhase, Time, View
from scheduler.core.runs import may_stop
from simulator.lives.checkers import Checker, changed_jobs
from simulator.lives.world import Witness, World

OVER_SHARE = "over its share"


def memory_checkers(world: World) -> list[Witness]:
    return [SharesKept(world), LostGpus(world)]


@dataclass(frozen=True)
class GpuUser:
    """One run on one GPU: its share before a step, and its use after the step."""

    job_id: JobId
    run: Run
    granted_mib: int
    used_mib: int
    died_before: bool
    left_before: bool

    @property
    def claimed_mib(self) -> int:
        return max(self.granted_mib, self.used_mib)

    @property
    def exceeds_share(self) -> bool:
        return self.used_mib > self.granted_mib


class SharesKept(Checker):
    """A run over its share does not endanger its neighbours, and is preempted if it can be; only a
    run over its share is stopped for that."""

    def on_step(self, before: View, after: View) -> None:
        if after.observed_at == before.observed_at:
            return
        gpus = all_gpus(after.nodes)
        users_by_gpu = {key: _gpu_users(key, before, after) for key in gpus}
        for key, holders in users_by_gpu.items():
            self._require_safe(key, gpus[key], holders, after.at)
        for job in after.jobs.values():
            old = before.jobs.get(job.id)
            new = job.run and (old is None or old.run is None or old.run.kill_at != job.run.kill_at)
            if job.run and new and job.run.stop_reason.startswith(OVER_SHARE):
                kill = job.run.kill_at is not None and job.run.kill_at <= after.at
                keys = [share.key for share in job.run.shares]
                cause = any(
                    _had_no_room(job.id, users_by_gpu[key], gpus[key], kill) for key in keys
                )
                self.require(cause, job, "was stopped although there was room")

    def _require_safe(
        self, key: GpuKey, gpu: Gpu, holders: Mapping[JobId, GpuUser], at: Time
    ) -> None:
        over = [holder for holder in holders.values() if holder.exceeds_share]
        if not over or len(holders) == 1:
            return
        living = [holder for holder in holders.values() if not _is_killed(holder.run, at)]
        claimed = sum(holder.claimed_mib for holder in living)
        danger = claimed > gpu.memory_mib - gpu.reserved_mib and len(living) > 1
        guilty = [holder for holder in living if holder.exceeds_share]
        self.require(not (danger and guilty), key, "in danger by", guilty)
        staying = [holder for holder in living if holder.run.phase is not RunPhase.STOPPING]
        tight = sum(holder.claimed_mib for holder in staying) > gpu.capacity_mib
        asked = [holder for holder in staying if holder.exceeds_share and may_stop(holder.run)]
        self.require(not (tight and len(staying) > 1 and asked), key, "too full by", asked)


class LostGpus(Checker):
    """No run is started on a GPU with a fault, none stays on a lost GPU, and one that can be
    stopped does not go on where it must leave. What fails there has not failed itself."""

    def on_step(self, before: View, after: View) -> None:
        if after.jobs is not before.jobs:
            self._require_healthy_gpus(before, after)
            self._require_blame(before, after)
        if after.observed_at == before.observed_at:
            return
        lost = {(node.name, gpu.uuid) for node in after.nodes for gpu in node.gpus if gpu.lost}
        for job in after.jobs.values() if lost else ():
            hangs = job.run and any(share.key in lost for share in job.run.shares)
            ends = job.run and _is_killed(job.run, after.at)
            self.require(bool(ends or not hangs), job, "was left on a lost GPU")
        bad = {(node.name, gpu.uuid) for node in after.nodes for gpu in node.gpus if gpu.leave}
        for job in after.jobs.values() if bad else ():
            if job.run and any(share.key in bad for share in job.run.shares):
                self.require(not may_stop(job.run), job, "was not asked to leave its GPU")

    def _require_blame(self, before: View, after: View) -> None:
        bad = {(node.name, gpu.uuid) for node in after.nodes for gpu in node.gpus if gpu.leave}
        for job, old in changed_jobs(before, after) if bad else ():
            if old.run and any(share.key in bad for share in old.run.shares):
                own = job.failed(Failure.ERROR) > old.failed(Failure.ERROR)
                hung = job.reason.startswith(HANGS)
                self.require(not own or hung, job, "is said to have failed itself")

    def _require_healthy_gpus(self, before: View, after: View) -> None:
        """Checks only new runs: a launch decided before a fault may be repeated after it."""
        faulty = {(node.name, gpu.uuid) for node in after.nodes for gpu in node.gpus if gpu.fault}
        for job in after.jobs.values() if faulty else ():
            old = before.jobs.get(job.id)
            if job.run and job.attempts != (old.attempts if old else 0):
                wrong = [share for share in job.run.shares if share.key in faulty]
                self.require(not wrong, job, "was started on", wrong)


def _gpu_users(key: GpuKey, before: View, after: View) -> dict[JobId, GpuUser]:
    """The runs on a GPU in both views, without the ones that began or ended in between."""
    found = {}
    for job_id, attempt in after.held.get(key, ()):
        job, old = after.jobs.get(job_id), before.jobs.get(job_id)
        run, was = job.run if job else None, old.run if old else None
        if run is None or was is None or not run.attempt == was.attempt == attempt:
            continue
        pods = after.pods.get((job_id, attempt), ())
        granted = sum(share.memory_mib for share in was.shares if share.key == key)
        used = sum(share.memory_mib for pod in pods for share in pod.used if share.key == key)
        died, left = _is_killed(was, before.at), was.phase is RunPhase.STOPPING
        found[job_id] = GpuUser(job_id, run, granted, used, died, left)
    return found


def _had_no_room(job_id: JobId, holders: Mapping[JobId, GpuUser], gpu: Gpu, kill: bool) -> bool:
    """Whether the job had no room on this GPU: in its capacity (to be preempted), or in all of its
    memory (to be killed at once)."""
    own = holders.get(job_id)
    others = [h for h in holders.values() if h.job_id != job_id and not h.died_before]
    if own is None or not own.exceeds_share:
        return False
    if not kill:
        others = [holder for holder in others if not holder.left_before]
    claimed = own.claimed_mib + sum(holder.claimed_mib for holder in others)
    most = gpu.memory_mib - gpu.reserved_mib if kill else gpu.capacity_mib
    return bool(others) and claimed > most


def _is_killed(run: Run, at: Time) -> bool:
    return run.kill_at is not None and run.kill_at <= at
