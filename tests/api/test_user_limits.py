from dataclasses import replace

import pytest

from scheduler.api.user_limits import UserLimits
from scheduler.core.errors import Rejected
from scheduler.core.model import Job, JobId, JobSpec, Outcome, View

SPEC = JobSpec("j", "ada", env=(("KEY", "x" * 2**18),))


class Loop:
    """Takes each job that the limits let through."""

    def __init__(self, jobs_max: int = 3, mib_max: int = 1) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.now = 1e9
        self.limits = UserLimits(lambda: View(jobs=self.jobs), lambda: self.now, jobs_max, mib_max)

    def submit(self, spec: JobSpec, secret_bytes: int = 0) -> JobId:
        self.limits.enter(spec, secret_bytes=secret_bytes)
        job = Job.submitted(JobId(f"job-{len(self.jobs)}"), spec, 1.0)
        self.jobs[job.id] = job
        return job.id

    def end(self, job_id: JobId) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], outcome=Outcome.FAILED, ended_at=2.0)


def test_a_user_may_have_so_many_jobs_and_another_user_as_many() -> None:
    loop = Loop(mib_max=9)
    for user in ("ada", "bob"):
        for _ in range(3):
            loop.submit(replace(SPEC, user=user))
        with pytest.raises(Rejected, match=rf"{user} has 3 jobs .*limits\.jobs_per_user"):
            loop.submit(replace(SPEC, user=user))


def test_a_job_that_ended_makes_room() -> None:
    loop = Loop(mib_max=9)
    first, *_ = [loop.submit(SPEC) for _ in range(3)]
    loop.end(first)
    loop.submit(SPEC)
    with pytest.raises(Rejected):
        loop.submit(SPEC)


def test_the_text_of_a_users_jobs_is_limited() -> None:
    loop = Loop(jobs_max=99)
    ids = [loop.submit(SPEC) for _ in range(3)]
    with pytest.raises(Rejected, match=r"1 MiB \(limits.spec_mib_per_user"):
        loop.submit(SPEC)
    loop.end(ids[0])
    loop.now += 86_400.0
    loop.submit(SPEC)


def test_jobs_that_ended_at_once_count_for_a_day() -> None:
    loop = Loop()
    for _ in range(3):
        loop.end(loop.submit(SPEC))
    with pytest.raises(Rejected, match=r"ada has submitted .* within a day, .*spec_mib_per_user"):
        loop.submit(SPEC)
    loop.submit(replace(SPEC, user="bob"))
    loop.now += 86_400.0 / 4
    loop.end(loop.submit(SPEC))
    with pytest.raises(Rejected):
        loop.submit(SPEC)


def test_jobs_without_text_and_secrets_count_for_what_they_take() -> None:
    loop = Loop(jobs_max=9999)
    small = replace(SPEC, env=())
    for _ in range(900):
        loop.end(loop.submit(small))
    with pytest.raises(Rejected, match="within a day"):
        loop.submit(small, secret_bytes=2**18)


def test_a_clock_that_is_set_back_gives_no_room_and_takes_none() -> None:
    loop = Loop()
    for _ in range(3):
        loop.end(loop.submit(SPEC))
    loop.now -= 1e6
    with pytest.raises(Rejected, match="within a day"):
        loop.submit(SPEC)
    loop.now += 86_400.0
    loop.submit(SPEC)


def test_jobs_of_before_the_start_count() -> None:
    loop = Loop()
    before = Loop(mib_max=9)
    loop.jobs = before.jobs
    for _ in range(3):
        before.submit(SPEC)
    with pytest.raises(Rejected, match="3 jobs"):
        loop.submit(SPEC)


def test_jobs_that_are_submitted_together_count_together_or_not_at_all() -> None:
    limits = UserLimits(View, lambda: 0.0, jobs_max=3)
    limits.enter(SPEC, SPEC)
    with pytest.raises(Rejected, match="and may have 3 more"):  # none is live
        limits.enter(SPEC, SPEC, SPEC, SPEC)
    limits.enter(SPEC, SPEC, SPEC)
