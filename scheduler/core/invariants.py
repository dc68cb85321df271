"""What must always hold (DESIGN §7, 1 to 4), checked before every commit, in production too.

A violation is a bug of the scheduler. It stops the daemon before anything is written: a crash loop
is noticed, a wrong row is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.errors import InvariantError
from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, JobId, View
from scheduler.core.runs import current_run


def check(before: View, after: View, touched: Iterable[JobId]) -> None:
    """Raises InvariantError at the first violation; examines only the jobs that were touched."""
    for job_id in touched:
        job = after.jobs[job_id]
        check_job(job)
        old = before.jobs.get(job_id)
        if old is not None:
            _check_change(old, job)
            _check_replaced(old, job, after)
    if after.held is not before.held:
        _check_capacity(before, after)


def _require(holds: bool, words: str, *culprits: object) -> None:
    if not holds:  # the text is made only now: formatting a job costs more than all checks
        raise InvariantError(f"{words}: {' -> '.join(map(str, culprits))}")


def check_job(job: Job) -> None:
    """Raises InvariantError unless a job, by itself, can be as it is."""
    run = job.run
    _require(0 <= job.epochs_done <= job.max_epochs, "epochs out of range", job)
    _require(not (run and job.outcome), "an ended job has a run", job)
    _require((job.outcome is None) == (job.ended_at is None), "outcome and end time disagree", job)
    _require(not (run and job.awaits), "a job runs before another has ended", job)
    if run:
        _require(run.attempt == job.attempts, "the run is not the newest attempt", job)
        _require(all(share.memory_mib > 0 for share in run.shares), "an empty share", job)
        gpus = {share.key for share in run.shares}
        _require(len(gpus) == len(run.shares), "the same GPU twice", job)


def _check_change(old: Job, job: Job) -> None:
    _require(job.spec is old.spec or job.spec == old.spec, "the spec changed", old, job)
    _require(job.submitted_at == old.submitted_at, "submitted twice", old, job)
    _require(job.epochs_done >= old.epochs_done, "epochs decreased", old, job)
    _require(old.outcome in (None, job.outcome), "the outcome changed", old, job)
    _require(job.attempts - old.attempts in (0, 1), "attempts jumped", old, job)
    new_run = job.run is not None and old.run is None
    _require(
        not new_run or job.attempts == old.attempts + 1, "an attempt number used twice", old, job
    )


def _check_replaced(old: Job, job: Job, after: View) -> None:
    """In one step a run may end and the next one begin, but not while the old one is alive."""
    if old.run and job.run and old.run.attempt != job.run.attempt:
        pods = after.pods.get((job.id, old.run.attempt), ())
        lives = bool(pods) and all(pod.alive for pod in pods)
        _require(not lives, "a run was replaced while it was alive", old, job)


def _check_capacity(before: View, after: View) -> None:
    """No step may grant more than a GPU has. (If a GPU shrinks below what is held there, or pods of
    no current run appear on it, that is not the scheduler's doing.)"""
    changed = [key for key, now in after.held.items() if now is not before.held.get(key)]
    nodes = {node for node, _ in changed}
    known = usable_gpus(node for node in after.nodes if node.name in nodes)
    for key in changed:
        if key not in known:
            continue
        old, holders = before.held.get(key, {}), after.held[key]
        granted = any(
            mib > old.get(run, 0) and current_run(run, after.jobs) for run, mib in holders.items()
        )
        fits = sum(holders.values()) <= known[key].capacity_mib
        _require(fits or not granted, "more than a GPU holds", key, holders)
