"""What must always hold (DESIGN §7, 1 to 4), checked before every commit, in production too.

A violation is our bug. It stops the daemon before anything is written: a crash loop is loud, a
wrong row is silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.errors import InvariantError
from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, JobId, View
from scheduler.core.runs import current_run


def check(before: View, after: View, touched: Iterable[JobId]) -> None:
    """Raise InvariantError at the first thing that cannot be; look at what was touched."""
    for job_id in touched:
        job = after.jobs[job_id]
        _check_job(job)
        old = before.jobs.get(job_id)
        if old is not None:
            _check_change(old, job)
            _check_replaced(old, job, after)
    if after.held is not before.held:
        _check_capacity(before, after)


def _require(holds: bool, words: str, *culprits: object) -> None:
    if not holds:  # spelt out only now: the words for a job cost more than all that is checked
        raise InvariantError(f"{words}: {' -> '.join(map(str, culprits))}")


def _check_job(job: Job) -> None:
    run = job.run
    _require(0 <= job.epochs_done <= job.max_epochs, "epochs out of range", job)
    _require(not (run and job.outcome), "an ended job has a run", job)
    _require((job.outcome is None) == (job.ended_at is None), "ended without an outcome", job)
    if run:
        _require(run.attempt == job.attempts, "a run that is not the newest attempt", job)
        _require(all(share.memory_mib > 0 for share in run.shares), "an empty share", job)
        gpus = {share.key for share in run.shares}
        _require(len(gpus) == len(run.shares), "one GPU twice", job)


def _check_change(old: Job, job: Job) -> None:
    _require(job.spec is old.spec or job.spec == old.spec, "a spec changed", old, job)
    _require(job.submitted_at == old.submitted_at, "submitted twice", old, job)
    _require(job.epochs_done >= old.epochs_done, "epochs went backwards", old, job)
    _require(old.outcome in (None, job.outcome), "an outcome changed", old, job)
    _require(job.attempts - old.attempts in (0, 1), "attempts jumped", old, job)
    new_run = job.run is not None and old.run is None
    _require(not new_run or job.attempts == old.attempts + 1, "an attempt twice", old, job)


def _check_replaced(old: Job, job: Job, after: View) -> None:
    """In one step a run may end and the next one begin, but never beside one that lives."""
    if old.run and job.run and old.run.attempt != job.run.attempt:
        pods = after.pods.get((job.id, old.run.attempt), ())
        lives = bool(pods) and all(pod.alive for pod in pods)
        _require(not lives, "a run was replaced while it lived", old, job)


def _check_capacity(before: View, after: View) -> None:
    """No step may grant what a card does not have. (That a card shrinks under what it holds, or
    pods show up there that nobody believes in, is the world's doing.)"""
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
        _require(fits or not granted, "more than a card holds", key, holders)
