"""Which logs of ended jobs are deleted, and whether the disk has room for more jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event

import structlog

from scheduler import run_logs
from scheduler.clusters.capped_log import free_bytes, lacks_room
from scheduler.core.model import Job, JobId, Time
from scheduler.store.maintenance import DAY_SECONDS

EVERY_SECONDS = 600.0
MIB = 2**20

log = structlog.get_logger("scheduler.daemon.log_pruning")


def prune_logs(
    root: Path,
    job_of: Callable[[JobId], Job | None],
    now: Time,
    *,
    kept_days: int,
    user_mib: int,
    stop: Event | None = None,
) -> int:
    """Deletes the logs of jobs that ended too long ago; then, of each user who has too many, the
    oldest ones. The logs of live jobs stay. Returns how many jobs lost theirs."""
    usage: Counter[str] = Counter()  # by user
    ended: list[tuple[Time, JobId, str, int]] = []
    pruned = 0
    for job_id in run_logs.jobs(root):
        if stop and stop.is_set():
            return pruned
        job = job_of(job_id)
        user, size = job.spec.user if job else "", run_logs.disk_bytes(root, job_id)
        ended_at = run_logs.changed_at(root, job_id) if job is None else job.ended_at
        if ended_at is not None and ended_at < now - kept_days * DAY_SECONDS:
            pruned += _delete(root, job_id, f"its job ended more than {kept_days} days ago")
            continue
        usage[user] += size
        if ended_at is not None:
            ended.append((ended_at, job_id, user, size))
    for _, job_id, user, size in sorted(ended):
        if usage[user] > user_mib * MIB and size:
            why = f"the logs of {user or 'jobs without a user'} took more than {user_mib} MiB"
            pruned += _delete(root, job_id, why)
            usage[user] -= size
    return pruned


def _delete(root: Path, job_id: JobId, why: str) -> int:
    if not run_logs.delete(root, job_id, why):
        return 0
    log.info("logs_deleted", job_id=job_id, why=why)
    return 1


def no_room(folder: Path, reserve_mib: int) -> str:
    """Returns why no job is accepted now; empty: there is room on the disk of this folder."""
    if not lacks_room(str(folder), reserve_mib * MIB):
        return ""
    return (
        f"the scheduler's disk is full: {free_bytes(str(folder)) // MIB} MiB are free, and its "
        "database needs them: free some on the disk of its state folder"
    )
