"""Rules about runs that several modules need: which run is current, whether it may or must be
stopped, and which jobs train beside it. Pure.

Each rule is written only here. The daemon, the policies and the simulated worlds call the same
function, so they always agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.core.model import (
    GpuKey,
    Job,
    JobId,
    Pod,
    Run,
    RunKey,
    RunPhase,
    View,
)

Held = Mapping[GpuKey, Mapping[RunKey, int]]  # as `View.held`


def current_job(key: RunKey, jobs: Mapping[JobId, Job]) -> Job | None:
    """The job whose current run has this key. None: that run is over, or was never launched."""
    job = jobs.get(key[0])
    return job if job and job.run and job.run.attempt == key[1] else None


def current_run(key: RunKey, jobs: Mapping[JobId, Job]) -> Run | None:
    """The run with this key, if it is the current one of its job."""
    job = current_job(key, jobs)
    return job.run if job else None


def waiting_in_order(view: View) -> list[Job]:
    """The jobs that wait, in the order of the newest plan; jobs that are not in it come last, in
    the order of submission."""
    rest = sorted(
        (job for job in view.jobs.values() if job.waiting),
        key=lambda job: (job.submitted_at, job.id),
    )
    served = dict.fromkeys((*view.queue, *(job.id for job in rest)))
    found = (view.jobs.get(job_id) for job_id in served)
    return [job for job in found if job and job.waiting]


def is_running(job: Job) -> bool:
    """Whether the job has a run that has not been asked to stop."""
    return job.run is not None and job.run.phase is not RunPhase.STOPPING


def has_begun(run: Run) -> bool:
    """Whether the run has begun to train. Until then it holds memory but slows no neighbour."""
    return run.phase is not RunPhase.STARTING


def is_training(job: Job | None) -> bool:
    return bool(job and job.run and has_begun(job.run))


def gpu_keys(job: Job) -> tuple[GpuKey, ...]:
    """The GPUs that the job's run has."""
    return tuple([share.key for share in job.run.shares]) if job.run else ()


def neighbours(job_id: JobId, run: Run, held: Held, jobs: Mapping[JobId, Job]) -> tuple[JobId, ...]:
    """The jobs that train on the GPUs of this run, sorted: `beside` in measurements and profiles.
    Jobs that only hold memory there (starting, or over but not gone) are not among them."""
    others = {other for share in run.shares for other, _ in held.get(share.key, ())}
    return tuple(sorted(o for o in others if o != job_id and is_training(jobs.get(o))))


def has_epoch_to_stop_at(run: Run) -> bool:
    """The last epoch is never interrupted, and neither is the first of a run (see
    `evolve.asked_to_stop`): where both leave no epoch to stop at, the run is left to its end."""
    return max(run.epoch_started, run.epochs_before) + 1 < run.max_epochs - 1


def may_stop(run: Run | None) -> bool:
    """Whether the run can be asked to stop without a loss of work. A run that has never reported
    would not see the request: it would be killed in the end, and its work lost."""
    return bool(
        run
        and run.phase is RunPhase.RUNNING
        and run.heard_at is not None
        and has_epoch_to_stop_at(run)
    )


def may_move(job: Job) -> bool:
    """Whether the run may stop in order to start elsewhere: never twice without a finished epoch
    in between (see adopt.py)."""
    return may_stop(job.run) and job.run is not None and job.epochs_done > job.run.epochs_before


def must_stop(run: Run, epoch: int) -> bool:
    """Whether a rank of the run that asks to start this epoch (from 0) must stop instead. The
    answer is the same for every rank, because it depends only on what is committed."""
    asked = run.stop_at_epoch is not None and epoch >= run.stop_at_epoch
    return asked and epoch < run.max_epochs - 1  # the last epoch is never interrupted


def awaits_old_pods(job: Job, pods: Mapping[RunKey, tuple[Pod, ...]]) -> bool:
    """Whether the job's last run is over, but not all of its pods: other pods of a gang may outlive
    the one that failed. Until they are gone, the next run would be a second one."""
    left = pods.get((job.id, job.attempts), ()) if job.waiting else ()
    return bool(left) and any(pod.alive or pod.used for pod in left)
