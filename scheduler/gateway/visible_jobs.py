"""Which jobs a caller may see, and whose they are: the daemon says so, by ListJobs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from scheduler.gateway.auth import KnownCaller
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.problems import Problem
from scheduler.v1 import scheduler_pb2 as pb

KNOWN_SECONDS = 60.0  # as long as a token is taken for valid
_TOKENS_MAX = 200
_ASKED_AT_ONCE = 200


class SeenJob(NamedTuple):
    """`user`: whose it is; None: the caller may not see it, or there is no such job."""

    user: str | None
    until: float  # of our clock


class VisibleJobs:
    def __init__(self, daemon: DaemonCalls, clock: Callable[[], float] = time.monotonic) -> None:
        self._daemon, self._clock = daemon, clock
        self._known: OrderedDict[str, dict[str, SeenJob]] = OrderedDict()  # by token

    async def owners(self, caller: KnownCaller, jobs: Collection[str]) -> dict[str, str]:
        """Of these jobs, those that the caller may see, with their users. A job sees itself."""
        if own := caller.identity.job_id:
            return {own: caller.identity.user} if own in jobs else {}
        known = self._known.setdefault(caller.token, {})
        self._known.move_to_end(caller.token)
        if len(self._known) > _TOKENS_MAX:
            self._known.popitem(last=False)
        now = self._clock()
        for gone in [job for job, seen in known.items() if seen.until <= now]:
            del known[gone]
        missing = sorted(job for job in jobs if job not in known)
        for first in range(0, len(missing), _ASKED_AT_ONCE):
            asked = missing[first : first + _ASKED_AT_ONCE]
            found = await self._ask(caller.token, asked)
            known.update({job: SeenJob(found.get(job), now + KNOWN_SECONDS) for job in asked})
        return {job: user for job in jobs if (user := known[job].user) is not None}

    async def _ask(self, token: str, jobs: Sequence[str]) -> dict[str, str]:
        """One job that is not there fails the call for all: then each half is asked alone."""
        request = pb.ListJobsRequest(jobs=jobs, all_users=True, limit=len(jobs), brief=True)
        try:
            reply = await self._daemon.ask("Scheduler/ListJobs", request, pb.ListJobsReply, token)
        except Problem as problem:
            if problem.status not in (400, 404):
                raise
            if len(jobs) == 1:
                return {}
            half = len(jobs) // 2
            return await self._ask(token, jobs[:half]) | await self._ask(token, jobs[half:])
        return {job.id: job.spec.user for job in reply.jobs}
