"""The time limit of a job: how long all of its runs together may take. Pure.

A run is asked to stop at the end of the last epoch that ends within the limit, so no work is lost.
How long an epoch takes is known from the newest measurement; the time limit is compared with it at
each report and each observation. A run that reports nothing cannot be asked, and is ended when the
limit is reached. The last epoch of a job is never interrupted.
"""

from __future__ import annotations

from scheduler.core.model import Job, Run, RunPhase, Time
from scheduler.core.runs import has_epoch_to_stop_at


def reason(job: Job) -> str:
    """Rows contain it, so its wording may not change."""
    return f"time limit {text(job.spec.time_limit_seconds)} reached"


def is_reason(job: Job, run: Run) -> bool:
    """Whether the run was asked to stop because of the limit, which never changes."""
    return run.stop_reason == reason(job)


def text(seconds: float) -> str:
    """As users type it: `2h`, `1d12h`."""
    left, words = round(seconds), ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        words += f"{count}{unit}" if count else ""
    return words or "0s"


def is_due(job: Job, now: Time) -> bool:
    """Whether the job's run must be asked to stop now: after the epoch that it is in, there is no
    time for another one."""
    run = job.run
    if not job.spec.time_limit_seconds or run is None or run.phase is RunPhase.STOPPING:
        return False
    ends_at = now + _left(job, job.ran_seconds + max(0.0, now - run.started_at))
    if now >= ends_at:
        return True
    if not (can_be_asked(run) and has_epoch_to_stop_at(run)):
        return False
    seconds = epoch_seconds(job)
    began_at = now if run.epoch_at is None else run.epoch_at
    this_ends_at = max(now, began_at + seconds)
    return seconds > 0 and this_ends_at + seconds > ends_at


def can_be_asked(run: Run) -> bool:
    """A run that has never reported would not see the request."""
    return run.heard_at is not None


def is_reached(job: Job, run: Run) -> bool:
    """Whether the job is over, now that this run is. `job` has the run's time already."""
    if not job.spec.time_limit_seconds:
        return False
    left = _left(job, job.ran_seconds)
    stopped = run.phase is RunPhase.STOPPING
    return left <= 0 or (stopped and (is_reason(job, run) or left < epoch_seconds(job)))


def epoch_seconds(job: Job) -> float:
    """As measured last; 0: not known yet."""
    return job.measured[-1].seconds if job.measured else 0.0


def _left(job: Job, ran_seconds: float) -> float:
    return job.spec.time_limit_seconds - ran_seconds
