from __future__ import annotations

import asyncio
import uuid

from scheduler.access.identity import user_token
from scheduler.gateway.auth import KnownCaller
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.visible_jobs import KNOWN_SECONDS, VisibleJobs
from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.serving_http import Served
from tests.serving import SECRET


def test_the_daemon_says_which_jobs_there_are_and_whose(served: Served) -> None:
    mine, theirs = served.daemon.submit("mine", "ada"), served.daemon.submit("theirs", "bob")
    unknown = str(uuid.uuid4())
    ada = KnownCaller(user_token(SECRET, "ada"), pb.IdentifyReply(user="ada"), 0)
    now = [0.0]

    async def ask() -> None:
        daemon = DaemonCalls(f"127.0.0.1:{served.daemon.server.port}")
        visible = VisibleJobs(daemon, lambda: now[0])
        everything = {mine: "ada", theirs: "bob"}
        assert await visible.owners(ada, [mine, unknown, theirs]) == everything
        later = served.daemon.submit("later", "ada")
        assert await visible.owners(ada, [mine, later]) == {mine: "ada", later: "ada"}
        now[0] = KNOWN_SECONDS
        assert await visible.owners(ada, [mine, unknown]) == {mine: "ada"}
        await daemon.close()

    asyncio.run(ask())


def test_a_job_sees_itself(served: Served) -> None:
    job = KnownCaller("token", pb.IdentifyReply(job_id="one"), 0)
    visible = VisibleJobs(DaemonCalls("127.0.0.1:1"))
    assert asyncio.run(visible.owners(job, ["one", "two"])) == {"one": ""}
    assert asyncio.run(visible.owners(job, ["two"])) == {}
