"""Which code packages are removed: those that no job needs."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.core.model import Job, JobId, View
from scheduler.packages.store import PackageStore
from scheduler.store.maintenance import DAY_SECONDS


def collect(
    packages: PackageStore, view: View, job_of: Callable[[JobId], Job | None], kept_days: int
) -> int:
    """A job needs its package until `kept_days` after its end: until then it may be submitted
    again, or compared. Returns how many contents were removed."""

    def needs(job_id: JobId) -> bool:
        job = view.jobs.get(job_id) or job_of(job_id)
        if job is None:
            return False  # it was never accepted
        return job.ended_at is None or job.ended_at > view.at - kept_days * DAY_SECONDS

    live = {job.spec.code for job in view.jobs.values() if job.spec.code and not job.outcome}
    packages.remove_trees(live)
    return packages.collect(needs)
