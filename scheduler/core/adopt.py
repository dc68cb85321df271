"""Carries out a plan as far as it is safe now. Pure, and safe for any plan whatsoever.

Invariants must not depend on a policy. So every placement is checked here against the GPUs and the
held memory as they are; what is not possible is left out, and the next plan asks for it again.
"""

from __future__ import annotations

import math

from scheduler.core import sweeps
from scheduler.core.draft import Change, Draft
from scheduler.core.evolve import asked_to_stop
from scheduler.core.fast_replace import replace
from scheduler.core.learning import kind_of
from scheduler.core.memory import need_mib, placement, takes_mib, usable_gpus
from scheduler.core.model import (
    Gpu,
    GpuKey,
    Job,
    JobId,
    Plan,
    Reason,
    Rules,
    Run,
    RunPhase,
    Share,
    Time,
    View,
    Waiting,
)
from scheduler.core.reason_text import stop_reason
from scheduler.core.runs import awaits_old_pods, current_job, has_epoch_to_stop_at, is_running


def resize_shares(view: View, now: Time, rules: Rules) -> Change:
    """Adjusts the shares of runs to the measured needs of their jobs, where there is room.

    This happens before a plan is made, so that the plan can use at once what a run gave back.
    """
    draft = Draft(view, now, rules)
    known = usable_gpus(view.nodes)
    running = [id for id, job in view.jobs.items() if job.run]
    for _ in range(2):  # runs that shrink make room for those that grow
        for job_id in running:
            job = draft.jobs[job_id]
            if job.run and job.run.phase is not RunPhase.STOPPING:
                draft.put(_resize_run(job, job.run, draft, known))
        if draft.jobs is view.jobs:
            break  # no run shrinks
    return draft.build()


def adopt(view: View, plan: Plan, now: Time, rules: Rules) -> Change:
    draft = Draft(view, now, rules)
    known = usable_gpus(view.nodes)
    stops: dict[JobId, Reason] = {}
    for job in view.jobs.values():
        if is_running(job) and (reason := _to_be_stopped(job, plan)):
            stops[job.id] = reason
            draft.put(replace(job, run=asked_to_stop(job, stop_reason(reason), now, rules)))
    running = sweeps.count_runs(draft.jobs.values())
    for job_id, wished in plan.placements.items():
        waiting = draft.jobs.get(job_id)
        if waiting and _startable(waiting, wished, draft, known):
            if sweeps.is_full(waiting, running):
                continue
            expected = plan.expected.get(job_id, 0.0)
            draft.put(_start_run(waiting, wished, expected, draft, known))
            running[sweeps.sweep_of(waiting.spec)] += 1
    waiting_ids = {job.id for job in draft.jobs.values() if job.waiting}
    draft.why = {id: reason for id, reason in plan.why.items() if id in waiting_ids}
    draft.stops = stops
    draft.queue = tuple([id for id in plan.queue if id in waiting_ids])
    draft.planned_at, draft.replan_at, draft.stale = now, plan.replan_at, False
    return draft.build()


def _to_be_stopped(job: Job, plan: Plan) -> Reason | None:
    """Why the plan stops the job's run; None: the run goes on."""
    run, wished = job.run, plan.placements.get(job.id)
    if run is None or wished == run.shares:
        return None
    if wished is not None and {s.key for s in wished} == {s.key for s in run.shares}:
        return None
    # Between two moves of a job there must be a finished epoch.
    moved_in_vain = wished is not None and job.epochs_done <= run.epochs_before
    if moved_in_vain or not has_epoch_to_stop_at(run):
        return None
    return plan.why.get(job.id, Reason(Waiting.MOVED if wished else Waiting.STOPPED))


def _resize_run(job: Job, run: Run, draft: Draft, known: dict[GpuKey, Gpu]) -> Job:
    key = (job.id, run.attempt)
    resized = []
    for share in run.shares:
        gpu = known.get(share.key)
        if gpu is None:
            return job
        need = takes_mib(job, gpu, draft.rules, len(run.shares))
        if share.memory_mib == need:
            resized.append(share)
            continue
        others = sum(mib for k, mib in draft.held.get(share.key, {}).items() if k != key)
        wanted = min(need, gpu.capacity_mib)
        if wanted > gpu.capacity_mib - others:
            return job
        resized.append(replace(share, memory_mib=wanted))
    shares = tuple(resized)
    return job if shares == run.shares else replace(job, run=replace(run, shares=shares))


def _startable(job: Job, wished: tuple[Share, ...], draft: Draft, known: dict[GpuKey, Gpu]) -> bool:
    if not job.waiting or job.held or job.cancelled or job.eligible_at > draft.now:
        return False
    if job.awaits or awaits_old_pods(job, draft.pods):
        return False
    if not job.spec.gpus_min <= len(wished) <= job.spec.gpus_max:
        return False
    if len({share.key for share in wished}) != len(wished):
        return False
    return all(_fits(job, share, len(wished), draft, known) for share in wished)


def _fits(job: Job, share: Share, gpus: int, draft: Draft, known: dict[GpuKey, Gpu]) -> bool:
    gpu = known.get(share.key)
    if gpu is None or share.memory_mib < max(1, need_mib(job, gpu, draft.rules, gpus)):
        return False
    free = gpu.capacity_mib - _taken(share.key, gpu, draft)
    return share.memory_mib <= free


def _taken(key: GpuKey, gpu: Gpu, draft: Draft) -> int:
    """The memory that runs hold on this GPU, or are known to need: a run that was measured to take
    more than its share, without room for it, takes that memory all the same."""
    taken = 0
    for (job_id, attempt), mib in draft.held.get(key, {}).items():
        if (job := current_job((job_id, attempt), draft.jobs)) and job.run:
            mib = max(mib, takes_mib(job, gpu, draft.rules, len(job.run.shares)))
        taken += mib
    return taken


def _start_run(
    job: Job,
    wished: tuple[Share, ...],
    expected_seconds: float,
    draft: Draft,
    known: dict[GpuKey, Gpu],
) -> Job:
    # Exactly what the job needs, as in `resized`: a plan may give too much.
    count, rules = len(wished), draft.rules
    needed = (replace(s, memory_mib=need_mib(job, known[s.key], rules, count)) for s in wished)
    run = Run(
        attempt=job.attempts + 1,
        shares=tuple(sorted(needed)),
        phase=RunPhase.STARTING,
        started_at=draft.now,
        phase_at=draft.now,
        max_epochs=job.max_epochs,
        placement=placement(wished, known),
        epochs_before=job.epochs_done,
        expected_seconds=_round(expected_seconds) if 0.0 < expected_seconds < math.inf else 0.0,
        epoch_started=job.epochs_done - 1,
        renew_library=_outdated(job, draft),
    )
    started_at = draft.now if job.started_at is None else job.started_at
    return replace(job, run=run, attempts=run.attempt, started_at=started_at)


def _round(seconds: float) -> float:
    """To six digits. The last digits of what numpy computes differ between types of CPU, and a
    journal is to be replayed on any of them."""
    return float(f"{seconds:.6g}")


def _outdated(job: Job, draft: Draft) -> bool:
    """Whether the job's library is expected to be from before this project, as that of another job
    of its family was."""
    kind = draft.kinds.get(kind_of(job.spec))
    return kind is not None and kind.old_library and not job.spec.keep_library
