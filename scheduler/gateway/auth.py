"""Who asks: the token of a program, or the session of a browser. The daemon judges both.

A browser's cookie holds the token of its session. The daemon makes it in exchange for a one-time
code, keeps no more than its hash, and ends it; the gateway keeps nothing but answers of the last
minute, by the hash of the token.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from scheduler.gateway.api.endpoint import as_json, parsed
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.problems import Problem
from scheduler.v1 import scheduler_pb2 as pb

KNOWN_SECONDS = 60.0  # for so long, a token that was revoked may still be taken for valid
SESSION_SECONDS = 12 * 3600
RENEWED_SECONDS = 3600.0  # after so long, a session gets a new token
_KNOWN_MAX = 1000
_TOKEN = re.compile(r"[!-~]{1,4096}")
_PAGE = re.compile(r"/(?!/)[\w./~%-]*", re.ASCII)  # of this server, without a query

log = structlog.get_logger("scheduler.gateway.auth")


class KnownCaller(NamedTuple):
    token: str
    identity: pb.IdentifyReply
    until: float  # of our clock: then the daemon is asked again


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class Auth:
    def __init__(
        self,
        daemon: DaemonCalls,
        version: str,
        encrypted: bool,
        ended: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ended`: is called with the token of a session that was logged out."""
        self._daemon, self._version, self._encrypted = daemon, version, encrypted
        self._ended, self._clock = ended, clock
        self._known: OrderedDict[bytes, KnownCaller] = OrderedDict()
        self._versions_told: set[str] = set()
        # With this prefix, a browser takes it from an encrypted page of this host only.
        self.cookie = "__Host-scheduler_session" if encrypted else "scheduler_session"

    # --- of each request ------------------------------------------------------------------------

    async def caller(self, request: Request) -> KnownCaller:
        """Returns who asks. Raises Problem if the daemon does not know this token."""
        return await self.holder(self._sent(request))

    async def holder(self, token: str) -> KnownCaller:
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known and self._clock() < known.until:
            return known
        try:
            reply = await self._daemon.ask(
                "Gateway/Identify", pb.IdentifyRequest(), pb.IdentifyReply, token
            )
        except Problem:
            self._known.pop(digest, None)
            raise
        self._compare(reply.version)
        caller = KnownCaller(token, reply, self._clock() + KNOWN_SECONDS)
        self._known[digest] = caller
        self._known.move_to_end(digest)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return caller

    def _sent(self, request: Request) -> str:
        header = request.headers.get("authorization")
        if header is None:
            token = request.cookies.get(self.cookie, "")
        else:
            kind, _, token = header.partition(" ")
            token = token.strip() if kind.lower() == "bearer" else ""
        if not _TOKEN.fullmatch(token):
            raise Problem(401, "no token: send `Authorization: Bearer TOKEN`, or log in")
        return token

    def _compare(self, version: str) -> None:
        if version not in (self._version, *self._versions_told):
            self._versions_told.add(version)
            log.warning("other_version", daemon=version, gateway=self._version)

    def to_login(self, request: Request) -> Response:
        path = request.url.path
        asked = f"?next={path}" if _PAGE.fullmatch(path) and path != "/" else ""
        return RedirectResponse(f"/login{asked}", 303)

    # --- log in, log out ------------------------------------------------------------------------

    def routes(self, login_page: Callable[[Request], Response]) -> list[Route]:
        async def login(request: Request) -> Response:
            code = request.query_params.get("code")
            if code is None or request.method != "GET":
                return login_page(request)
            return await self._login_by_code(request, code)

        return [
            Route("/login", login),
            Route("/login", self._login_by_token, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/api/v1/session", self._session),
        ]

    async def _login_by_code(self, request: Request, code: str) -> Response:
        """The redirect takes the code out of the address."""
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            # Else a page could log its visitor in as somebody else.
            raise Problem(403, "open the login address yourself: it may not be a link of a page")
        page = request.query_params.get("next", "/")
        try:
            session = await self._exchange(code, await self._user_now(request))
        except Problem as problem:
            if problem.status >= 500:
                raise
            return RedirectResponse("/login?refused=code", 303)
        answer = RedirectResponse(page if _PAGE.fullmatch(page) else "/", 303)
        self._set_cookie(answer, session)
        return answer

    async def _user_now(self, request: Request) -> str:
        """Who is logged in in this browser already. Empty: nobody."""
        try:
            caller = await self.caller(request)
        except Problem as problem:
            if problem.status != 401:
                raise
            return ""
        return caller.identity.user

    async def _exchange(self, code: str, user: str = "") -> pb.Session:
        request = pb.ExchangeLoginRequest(code=code[:1000], user=user)
        return await self._daemon.ask("Gateway/ExchangeLogin", request, pb.Session, None)

    async def _login_by_token(self, request: Request) -> Response:
        """A session of its own, so that the cookie is not the token."""
        body: LoginBody = parsed(LoginBody, await request.body())
        token = body.token.strip()
        if not _TOKEN.fullmatch(token):
            raise Problem(401, "this is not a token", "token")
        made = await self._daemon.ask(
            "Gateway/CreateLogin", pb.CreateLoginRequest(), pb.CreateLoginReply, token
        )
        session = await self._exchange(made.code)
        answer = as_json(request, {"user": session.user, "valid_until": session.valid_until})
        self._set_cookie(answer, session)
        return answer

    async def _logout(self, request: Request) -> Response:
        token = request.cookies.get(self.cookie, "")
        if _TOKEN.fullmatch(token):
            try:
                await self._daemon.ask(
                    "Gateway/EndSession", pb.EndSessionRequest(), pb.EndSessionReply, token
                )
            except Problem as problem:
                if problem.status >= 500:
                    raise  # it is still valid
            self._known.pop(hashlib.sha256(token.encode()).digest(), None)
            self._ended(token)
        answer = as_json(request, {})
        answer.delete_cookie(
            self.cookie, path="/", secure=self._encrypted, httponly=True, samesite="strict"
        )
        answer.headers["Clear-Site-Data"] = '"cache", "storage"'
        return answer

    async def _session(self, request: Request) -> Response:
        """Who the caller is, for the page; here a session gets its new token."""
        caller = await self.caller(request)
        identity = caller.identity
        told = {
            "user": identity.user,
            "job": identity.job_id or None,
            "admin": identity.admin,
            "valid_until": identity.valid_until if identity.HasField("valid_until") else None,
            "session": identity.session,
            "version": identity.version,
            "gateway_version": self._version,
            "now": time.time(),
        }
        answer = as_json(request, told)
        answer.headers["Cache-Control"] = "no-store"
        left = identity.valid_until - identity.now
        by_cookie = self.cookie in request.cookies and "authorization" not in request.headers
        if by_cookie and identity.session and left < SESSION_SECONDS - RENEWED_SECONDS:
            await self._renew(caller, answer)
        return answer

    async def _renew(self, caller: KnownCaller, answer: Response) -> None:
        try:
            session = await self._daemon.ask(
                "Gateway/RenewSession", pb.RenewSessionRequest(), pb.Session, caller.token
            )
        except Problem:
            return  # another request has done so, or it must end
        self._known.pop(hashlib.sha256(caller.token.encode()).digest(), None)
        self._set_cookie(answer, session)

    def _set_cookie(self, answer: Response, session: pb.Session) -> None:
        answer.set_cookie(
            self.cookie,
            session.token,
            max_age=SESSION_SECONDS,
            path="/",
            secure=self._encrypted,
            httponly=True,
            samesite="strict",
        )
        answer.headers["Cache-Control"] = "no-store"
