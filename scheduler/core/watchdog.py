"""Runs that use more of a GPU than their share, or are on a GPU that is lost or on a node that they
must leave. Pure.

Theory of operation. Only the agents see what a process really uses. On each GPU every run claims
the larger of two amounts: what it was granted, and what it is seen to use. A run over its share
shows what its job needs, and then

1. while the claims fit into the GPU's capacity, nothing else happens: its share follows
   (adopt.resized);
2. while they fit into the GPU's memory, the run is warned, and stops after its epoch;
3. if they do not, a neighbour could not get memory that is its own: the run is ended at once.

Each observation is judged by itself, without memory of earlier ones. Runs that stop already are not
counted, so that no run is stopped for memory that will be free anyway; the run furthest over its
share is stopped first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from scheduler.core import learning, time_limit
from scheduler.core.draft import Change, Draft, used_by_gpu
from scheduler.core.evolve import HANGS, asked_to_stop, bad_gpu, lost_gpu
from scheduler.core.fast_replace import replace
from scheduler.core.memory import all_gpus
from scheduler.core.model import Gpu, Job, JobFamily, JobId, Rules, Run, RunPhase, Share, Time, View
from scheduler.core.runs import current_run, may_stop


@dataclass(frozen=True, slots=True)
class Excess:
    """One run on one GPU that is over its share there."""

    job_id: JobId
    share: Share
    used_mib: int

    @property
    def over_mib(self) -> int:
        return self.used_mib - self.share.memory_mib


def watch_runs(view: View, now: Time, rules: Rules) -> Change:
    """Applies a new observation to the current runs: adjusts, warns, stops or ends them."""
    draft = Draft(view, now, rules)
    _leave_what_is_lost(draft)
    _leave_in_time(draft)
    _end_silent_runs(draft)
    warned: dict[JobId, int] = {}
    found = sorted(excesses(view), key=lambda each: (-each.over_mib, each.job_id))
    gpus = all_gpus(view.nodes if found else ())
    for excess in found:
        if (gpu := gpus.get(excess.share.key)) and _too_much(excess, gpu, draft):
            warned.setdefault(excess.job_id, excess.over_mib)
    for job_id, _ in view.pods:
        job = draft.jobs.get(job_id)
        if job and job.run and job.run.over_mib != warned.get(job_id, 0):
            draft.put(replace(job, run=replace(job.run, over_mib=warned.get(job_id, 0))))
    return draft.build()


def keep_time_limits(
    view: View, job_ids: Iterable[JobId], now: Time, rules: Rules
) -> Change | None:
    """Stops runs of these jobs that have no time for another epoch. None: there are none."""
    due = [job for id in job_ids if (job := view.jobs.get(id)) and time_limit.is_due(job, now)]
    if not due:
        return None
    draft = Draft(view, now, rules)
    for job in due:
        run = asked_to_stop(job, time_limit.reason(job), now, rules)
        if not time_limit.can_be_asked(run):
            run = replace(run, kill_at=now)
        draft.put(replace(job, run=run))
    return draft.build()


def excesses(view: View) -> Iterator[Excess]:
    for key, pods in view.pods.items():
        if not any(pod.used for pod in pods):
            continue
        used, run = used_by_gpu(pods), current_run(key, view.jobs)
        for share in run.shares if run else ():
            if used.get(share.key, 0) > share.memory_mib:
                yield Excess(key[0], share, used[share.key])


def _leave_what_is_lost(draft: Draft) -> None:
    nodes = [node for node in draft.nodes if any(gpu.lost for gpu in node.gpus)]
    for job in draft.jobs.values() if nodes else ():
        if job.run and (why := lost_gpu(job.run, nodes)):
            draft.put(_ended_at_once(job, why, draft))


def _leave_in_time(draft: Draft) -> None:
    why = {
        node.name: f"{node.name} is to be left: {node.leave}" for node in draft.nodes if node.leave
    }
    bad = [node for node in draft.nodes if any(gpu.leave for gpu in node.gpus)]
    for job in draft.jobs.values() if why or bad else ():
        if not (job.run and may_stop(job.run)):
            continue
        there = sorted({share.node for share in job.run.shares} & why.keys())
        if reason := why[there[0]] if there else bad_gpu(job.run, bad):
            draft.put(replace(job, run=asked_to_stop(job, reason, draft.now, draft.rules)))


def _end_silent_runs(draft: Draft) -> None:
    """Ends runs that hang. Only of two kinds of jobs is it known that they should report: those of
    families with an old library, and those that have epochs to do and were never heard of. The
    current library reports as long as its process lives, so its silence is the network's.

    What could not be heard because no daemon ran is no silence.
    """
    limit = draft.rules.silent_seconds
    oldest = draft.now - limit
    if draft.observed_since is None or draft.observed_since > oldest:
        return
    for job in draft.jobs.values():
        run = job.run
        if run is None or run.phase is not RunPhase.RUNNING:
            continue
        if (run.heard_at or run.phase_at) <= oldest and _should_report(job, run, draft.kinds):
            hours = f"{limit / 3600:g} hours"
            told = f"its last report was more than {hours} ago"
            never = f"it has reported nothing in {hours}, although it has {job.max_epochs} epochs"
            why = f"{HANGS}: {told if run.heard_at else never}"
            draft.put(_ended_at_once(job, why, draft))


def deadline(job: Job, view: View, rules: Rules) -> Time | None:
    """When the job's run is ended if it stays silent. None: never for this."""
    run = job.run
    if run is None:
        return None
    if run.kill_at is not None:
        return run.kill_at
    if run.phase is not RunPhase.RUNNING or not _should_report(job, run, view.kinds):
        return None
    return max(run.heard_at or run.phase_at, view.observed_since or 0.0) + rules.silent_seconds


def _should_report(job: Job, run: Run, kinds: Mapping[str, JobFamily]) -> bool:
    if run.renew_library:
        return False
    kind = kinds.get(learning.kind_of(job.spec))
    never_heard = run.heard_at is None and not job.epochs_done and job.max_epochs > 1
    return never_heard or bool(kind and kind.old_library)


def _too_much(excess: Excess, gpu: Gpu, draft: Draft) -> bool:
    """Learns the need and acts on it. Returns whether the excess has no room."""
    job, own = draft.jobs[excess.job_id], excess.used_mib
    run = job.run
    assert run is not None, "a job over its share has a run"
    needs = min(own, gpu.memory_mib)
    job = learning.record_peak(job, len(run.shares), needs)
    job = replace(job, memory_mib=max(job.memory_mib, needs))
    draft.put(job)
    beside = list(_beside(excess, draft))
    staying = [mib for mib, leaves in beside if not leaves]
    claimed = own + sum(mib for mib, _ in beside)
    why = f"over its share: takes {own} of {excess.share.memory_mib} MiB"
    why = f"{why} on gpu{gpu.index} of {excess.share.node}"
    if beside and claimed > gpu.memory_mib - gpu.reserved_mib:
        draft.put(_ended_at_once(job, f"{why}, at the cost of others there", draft))
    elif staying and own + sum(staying) > gpu.capacity_mib:
        if may_stop(run):
            draft.put(replace(job, run=asked_to_stop(job, why, draft.now, draft.rules)))
    else:
        return False
    return True


def _beside(excess: Excess, draft: Draft) -> Iterator[tuple[int, bool]]:
    """What each other run claims on the GPU, and whether it stops after its epoch. Runs that are
    about to be gone from there claim nothing, and neither do pods of runs that are over."""
    gpu_key = excess.share.key
    for key, mib in draft.held.get(gpu_key, {}).items():
        run = current_run(key, draft.jobs)
        if run and key[0] != excess.job_id and not _dies(run, draft.now):
            used = used_by_gpu(draft.pods.get(key, ())).get(gpu_key, 0)
            yield max(mib, used), run.phase is RunPhase.STOPPING


def _dies(run: Run, now: Time) -> bool:
    return run.kill_at is not None and run.kill_at <= now


def _ended_at_once(job: Job, why: str, draft: Draft) -> Job:
    run = asked_to_stop(job, why, draft.now, draft.rules)
    if _dies(run, draft.now):
        return job
    told = run.stop_reason if job.cancelled else why  # a cancelled job keeps its reason
    return replace(job, run=replace(run, stop_reason=told, kill_at=draft.now))
