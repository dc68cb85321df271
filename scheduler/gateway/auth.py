"""Who asks: the token of a program, or the session of a browser. The daemon judges both."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.problems import Problem
from scheduler.gateway.static_files import StaticFiles
from scheduler.v1 import scheduler_pb2 as pb

KNOWN_SECONDS = 60.0  # for so long, a token that was revoked may still be taken for valid
_KNOWN_MAX = 1000
_TOKEN = re.compile(r"[!-~]{1,4096}")


class Auth:
    def __init__(self, daemon: DaemonCalls, version: str, encrypted: bool) -> None:
        self._daemon, self._version, self._encrypted = daemon, version, encrypted

    async def token(self, request: Request) -> str:
        """Returns the caller's token, which is valid. Raises Problem."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not _TOKEN.fullmatch(token.strip()):
            raise Problem(401, "no token: send `Authorization: Bearer TOKEN`, or log in")
        await self._daemon.ask(
            "Scheduler/ListJobs", pb.ListJobsRequest(limit=1), pb.ListJobsReply, token.strip()
        )
        return token.strip()

    def to_login(self, request: Request) -> Response:
        return RedirectResponse("/login", 303)

    def routes(self, files: StaticFiles) -> list[BaseRoute]:
        return []
