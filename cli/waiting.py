"""Waits for the start or the end of jobs that were submitted, and shows how far they are. ^C ends
only the waiting, not the jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from cli.command import CommandError, note
from cli.connection import Connection
from cli.terminal import ProgressLine
from scheduler.presentation import views
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

CANCELED = 143  # as a shell gives it for a program that was ended by SIGTERM
WAITED_MAX = 1000  # the scheduler lists no more jobs at once
FAILURES_SHOWN = 10


def wait_for_job(client: Connection, job_id: str) -> int:
    """Returns the exit code of the command that waits."""
    shown = ProgressLine(sys.stderr)
    try:
        job = _ended(client, job_id, shown)
    finally:
        shown.clear()
    if views.finished_plainly(job):
        return 0
    told = views.failure(client.get_job(job_id).job if job.HasField("exit_code") else job)
    note(printable(f"run-scheduler: {job.spec.name}: {job.state}: {told}"))
    if job.state == "CANCELED":
        return CANCELED
    return 0 if job.state == "FINISHED" else job.exit_code or 1


def wait_for_start(client: Connection, job_id: str) -> None:
    """Raises CommandError if it ends instead."""
    shown = ProgressLine(sys.stderr)
    request = pb.ListJobsRequest(jobs=[job_id], all_users=True)
    try:
        for reply in client.watch_jobs(request, shown.clear):
            for job in reply.jobs:
                shown.draw(f"{job.state} {job.reason}")
                if job.state == "RUNNING":
                    return
                if job.HasField("ended_at"):
                    told = views.failure(job)
                    raise CommandError(f"the job could not start: {job.state}: {told}", 1)
    finally:
        shown.clear()


def _ended(client: Connection, job_id: str, shown: ProgressLine) -> pb.Job:
    request = pb.ListJobsRequest(jobs=[job_id], all_users=True)
    lost = _say_lost(client, shown, "run-scheduler", "the job is not affected")
    for reply in client.watch_jobs(request, lost):
        for job in reply.jobs:
            shown.draw(views.progress(job))
            if job.HasField("ended_at"):
                return job
    raise AssertionError("a watch never ends")


def wait_for_jobs(
    client: Connection,
    label: tuple[str, str],
    ids: Collection[str],
    by: str,
    may_skip: bool = False,
) -> int:
    """Of many jobs with a common label. `may_skip`: a job that is skipped is no failure."""
    shown, ended = ProgressLine(sys.stderr), dict[str, pb.Job]()
    key, value = label
    labels = [pb.KeyValue(key=key, value=value)]
    request = pb.ListJobsRequest(labels=labels, limit=WAITED_MAX, brief=True)
    waited = set(ids)
    try:
        lost = _say_lost(client, shown, by, "the jobs are not affected")
        for reply in client.watch_jobs(request, lost):
            jobs = [job for job in reply.jobs if job.id in waited]
            ended |= {job.id: job for job in jobs if job.HasField("ended_at")}
            running = sum(job.state in ("RUNNING", "STOPPING") for job in jobs)
            shown.draw(f"{len(ended)} of {len(waited)} have ended, {running} run")
            if len(ended) == len(waited):
                break
    finally:
        shown.clear()
    failed = [job for job in ended.values() if job.state != "FINISHED"]
    for job in failed[:FAILURES_SHOWN]:
        note(printable(f"{by}: {job.spec.name}: {job.state}: {views.failure(job)}"))
    if len(failed) > FAILURES_SHOWN:
        note(f"{by}: {len(failed) - FAILURES_SHOWN} more have not finished")
    return 1 if any(job.state != "SKIPPED" or not may_skip for job in failed) else 0


def _say_lost(client: Connection, shown: ProgressLine, by: str, jobs: str) -> Callable[[], None]:
    def lost() -> None:
        shown.clear()
        note(f"{by}: lost the connection to {client.server}; {jobs}; waiting for the scheduler")

    return lost
