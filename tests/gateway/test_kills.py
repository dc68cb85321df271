"""A gateway that is killed while much happens: no page misses anything, and no job notices.

KILLS=200 makes 200 of it, as at night.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.access.identity import user_name
from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.serving_http import Gateway, Listener, gateway
from tests.support import Daemon, eventually

KILLS = int(os.environ.get("KILLS", "3"))
DAEMON_RESTARTS = max(1, KILLS // 10)


@contextmanager
def busy(daemon: Daemon) -> Iterator[list[str]]:
    """Submits jobs that are held, and changes them, until the end: yields their ids."""
    ended, ids = threading.Event(), list[str]()

    def submit() -> None:
        token = daemon.token(user_name(os.geteuid()))
        metadata = [("authorization", f"Bearer {token}")]
        with daemon.stub() as (stub, _):
            number = 0
            while not ended.wait(0.02):
                number += 1
                job_id = str(uuid.uuid4())
                spec = pb.JobSpec(name=f"held-{number}", command=["true"], held=True)
                request = pb.SubmitRequest(job_id=job_id, spec=spec)
                stub.Submit(request, metadata=metadata, timeout=30)
                change = pb.UpdateJobRequest(job=job_id, priority=number % 50)
                stub.UpdateJob(change, metadata=metadata, timeout=30)
                ids.append(job_id)

    working = threading.Thread(target=submit)
    working.start()
    try:
        yield ids
    finally:
        ended.set()
        working.join()


def come_back(page: Listener, served: Gateway, token: str) -> Listener:
    again = Listener(served.client(token))
    again.last_id, again.facts, again.jobs = page.last_id, page.facts, page.jobs
    return again


def await_news(page: Listener, ids: list[str], index: int) -> None:
    eventually(lambda: len(ids) > index and ids[index] in page.jobs)


def await_list_again(page: Listener, count: int) -> None:
    eventually(lambda: page.lists_again >= count)


def test_who_comes_back_after_kills_has_missed_nothing(daemon: Daemon) -> None:
    token = daemon.token("ada")
    listen = "127.0.0.1:0"
    page: Listener | None = None
    with busy(daemon) as ids:
        for _ in range(KILLS + 1):
            with gateway(daemon.address, listen=listen) as served:
                listen = served.url.removeprefix("http://")
                again = come_back(page, served, token) if page else Listener(served.client(token))
                with again:
                    await_news(again, ids, len(ids))
                    served.process.kill()
                page = again
    assert page is not None
    assert page.facts == list(range(page.facts[0], page.facts[0] + len(page.facts)))
    assert page.lists_again == 0


def test_a_page_that_stays_open_survives_restarts_of_the_daemon(daemon: Daemon) -> None:
    with (
        gateway(daemon.address) as served,
        Listener(served.client(daemon.token("ada"))) as page,
    ):
        for _ in range(DAEMON_RESTARTS):
            lists = page.lists_again
            with busy(daemon) as ids:
                await_news(page, ids, 0)
            daemon.kill()
            eventually(lambda: page.states[-1] == "away")
            daemon.start()
            await_list_again(page, lists + 1)
            assert page.states[-1] == "here"
        last = daemon.submit("--hold", "last", "--", "true")
        eventually(lambda: last in page.jobs)
        assert page.facts == list(range(page.facts[0], page.facts[0] + len(page.facts)))


def test_jobs_do_not_notice(daemon: Daemon) -> None:
    """Nothing that the daemon does for a job waits for a gateway."""
    for _ in range(min(KILLS, 10)):
        with gateway(daemon.address) as served, Listener(served.client(daemon.token("ada"))):
            daemon.submit("--num_gpus", "0", "--max_epochs", "1", "short", "--", "true")
            served.process.kill()
            daemon.wait(lambda jobs: jobs["short"].state == "FINISHED")
