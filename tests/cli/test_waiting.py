"""`--wait`: until one job has ended, or all of them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.cli.test_logs import write
from tests.cli.test_run import UUID4
from tests.serving import Serving, by
from tests.support import eventually


@pytest.mark.parametrize(("status", "exit_code"), [(0, 0), (7, 7)])
def test_waiting_ends_with_the_exit_code_of_the_job(
    status: int, exit_code: int, server: Serving, command: Command
) -> None:
    def end_it() -> None:
        eventually(lambda: server.scheduler.view.jobs)
        (job_id,) = server.scheduler.view.jobs
        eventually(lambda: server.job(job_id).run)
        write(server, job_id, 1, "Traceback (most recent call last):\n  x\nValueError: \x1b no\n")
        server.cluster.end(job_id, 1, status)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(end_it)
        done = command("run-scheduler", "--wait", "demo", "--", "ls")
        ended.result()
    assert done.exit_code == exit_code
    assert re.fullmatch(UUID4, done.out)
    failure = "run-scheduler: demo: FAILED: exit code 7; its log: ValueError: \ufffd no\n"
    assert (failure in done.err) == (exit_code == 7)


def test_waiting_says_what_is_to_be_known_of_a_job_that_has_finished(
    server: Serving, command: Command
) -> None:
    def end_it() -> None:
        eventually(lambda: server.scheduler.view.jobs)
        (job_id,) = server.scheduler.view.jobs
        eventually(lambda: server.job(job_id).run)
        server.cluster.end(job_id, 1, 0)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(end_it)
        done = command("run-scheduler", "--wait", "--max_epochs", "6", "demo", "--", "ls")
        ended.result()
    assert done.exit_code == 0
    told = "run-scheduler: demo: FINISHED: finished, but reported none of its 6 epochs\n"
    assert told in done.err


def test_waiting_for_a_job_that_is_cancelled_ends_with_exit_code_143(
    server: Serving, command: Command
) -> None:
    def cancel_it() -> None:
        eventually(lambda: server.scheduler.view.jobs)
        (job_id,) = server.scheduler.view.jobs
        request = pb.CancelJobRequest(job=job_id)
        server.people.CancelJob(request, metadata=by("ada"), timeout=10)

    with ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(cancel_it)
        done = command("run-scheduler", "--wait", "--hold", "demo", "--", "ls")
        cancelled.result()
    assert done.exit_code == 143
    assert "run-scheduler: demo: CANCELED" in done.err


def test_waiting_for_many_names_those_that_failed(server: Serving, command: Command) -> None:
    def end_them() -> None:
        eventually(lambda: len(server.scheduler.view.jobs) == 2)
        eventually(lambda: all(job.run for job in server.scheduler.view.jobs.values()))
        for job in server.scheduler.view.jobs.values():
            server.cluster.end(job.id, 1, 3 if job.spec.name == "grid-1" else 0)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(end_them)
        words = ("--num_gpus", "0", "--retries", "0", "grid", "--", "echo", "{a}")
        done = command("run-scheduler", "--wait", "--sweep", "a=1,2", *words)
        ended.result()
    assert done.exit_code == 1
    failed = [line for line in done.err.splitlines() if "FAILED" in line]
    assert len(failed) == 1
    assert failed[0].startswith("run-scheduler: grid-1: FAILED: ")
