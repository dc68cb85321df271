"""The service for the gateway and other programs that show things to people.

It adds nothing that a person may not know already: whose a token is, sessions of browsers, what
changes, parts of logs, and sums of what was used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import grpc

from scheduler.access.agent_tokens import AgentAuthenticator
from scheduler.access.authentication import Authenticator
from scheduler.access.issued_tokens import IssuedTokens
from scheduler.access.job_tokens import JobTokens
from scheduler.access.sessions import LoginCodes, Sessions
from scheduler.access.user_table import NAME_MAX
from scheduler.api import log_ranges
from scheduler.api.calls import Rest
from scheduler.api.event_feed import EventFeed, Wanted
from scheduler.api.grpc_server import is_insecure, token_of
from scheduler.api.lookup import Lookup
from scheduler.api.seats import Seats
from scheduler.core import admission
from scheduler.core.errors import Forbidden, Rejected, Unauthenticated
from scheduler.core.model import Time
from scheduler.store.day_usage import KEYS
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

STREAMS_MAX, STREAMS_OF_USER_MAX = 128, 64  # of events
JOBS_MAX = KINDS_MAX = 100  # that one stream names
DAYS_DEFAULT, DAYS_MAX = 30, 1_100
ROWS_MAX = 50_000  # of usage, in a reply
BYTES_MAX = 3 * 2**20  # the same; a client accepts 4 MiB

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Logins:
    """All that a log-in needs."""

    codes: LoginCodes
    sessions: Sessions
    issued: IssuedTokens


@dataclass(frozen=True, slots=True)
class GatewayService(pb_grpc.GatewayServicer):
    people: Authenticator
    logins: Logins
    jobs: JobTokens
    agents: AgentAuthenticator
    lookup: Lookup
    feed: EventFeed
    logs: Path
    admins: frozenset[str]
    now: Callable[[], Time]
    version: str
    policies: Mapping[str, str]  # what each does, by name
    policy: str  # the one that plans
    url: Callable[[], str] = str  # where pages are served; empty: it is not known
    seats: Seats = field(default_factory=lambda: Seats(STREAMS_MAX, STREAMS_OF_USER_MAX))

    # --- who asks ---------------------------------------------------------------------------

    def Identify(
        self, request: pb.IdentifyRequest, context: grpc.ServicerContext
    ) -> pb.IdentifyReply:
        reply = pb.IdentifyReply(version=self.version, now=self.now())
        token = token_of(context) or ""
        if job_id := self.jobs.job(token):
            reply.job_id = job_id
            return reply
        try:
            reply.user = self._user(context)
        except Unauthenticated:
            if not (node := self._node(token)):
                raise
            reply.node = node
        reply.admin = reply.user in self.admins
        until = self._valid_until(token)
        if until is not None:
            reply.valid_until = until
        reply.session = self.logins.sessions.find(token) is not None
        return reply

    def CreateLogin(
        self, request: pb.CreateLoginRequest, context: grpc.ServicerContext
    ) -> pb.CreateLoginReply:
        user, token = self._user(context), token_of(context) or ""
        if self.logins.sessions.find(token):
            raise Forbidden("a session cannot make login codes: use your own token")
        issued = self.logins.issued.find(token)
        code, until = self.logins.codes.create(user, issued.id if issued else None)
        return pb.CreateLoginReply(code=code, valid_until=until, url=self.url())

    def ExchangeLogin(
        self, request: pb.ExchangeLoginRequest, context: grpc.ServicerContext
    ) -> pb.Session:
        self.people.check_way(is_insecure(context))
        user, issued_by = self.logins.codes.spend(request.code, request.user)
        token, until = self.logins.sessions.begin(user, issued_by)
        return pb.Session(token=token, user=user, valid_until=until)

    def RenewSession(
        self, request: pb.RenewSessionRequest, context: grpc.ServicerContext
    ) -> pb.Session:
        self._user(context)
        user, token, until = self.logins.sessions.renew(self._session(context))
        return pb.Session(token=token, user=user, valid_until=until)

    def EndSession(
        self, request: pb.EndSessionRequest, context: grpc.ServicerContext
    ) -> pb.EndSessionReply:
        user = self._user(context)
        if request.all:
            return pb.EndSessionReply(ended=self.logins.sessions.end_all(user))
        return pb.EndSessionReply(ended=self.logins.sessions.end(self._session(context)))

    # --- what is shown ----------------------------------------------------------------------

    def WatchEvents(
        self, request: pb.WatchEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[bytes | Rest]:
        user = self._user(context)
        admission.check_length("jobs", request.jobs, JOBS_MAX)
        admission.check_length("kinds", request.kinds, KINDS_MAX)
        wanted = Wanted(
            frozenset(request.jobs),
            request.user,
            request.project,
            request.experiment,
            frozenset(request.kinds),
        )
        with self.seats.taken_by(user):
            yield from self.feed.stream(request.after, wanted, lambda: self._user(context))

    def ReadLog(self, request: pb.ReadLogRequest, context: grpc.ServicerContext) -> pb.ReadLogReply:
        self._user(context)
        return log_ranges.read(self.logs, self.lookup.find(request.job), request)

    def GetUsage(
        self, request: pb.GetUsageRequest, context: grpc.ServicerContext
    ) -> pb.GetUsageReply:
        self._user(context)
        now = self.now()
        last = _day("last_day", request.last_day) or datetime.fromtimestamp(now, UTC).date()
        first = _day("first_day", request.first_day) or _before(last, DAYS_DEFAULT - 1)
        if not 0 <= (last - first).days < DAYS_MAX:
            raise Rejected(
                f"first_day {first}, last_day {last}: must be in this order, and at most"
                f" {DAYS_MAX:,} days apart"
            )
        by = tuple(dict.fromkeys(request.by)) or KEYS
        if unknown := [word for word in by if word not in KEYS]:
            raise Rejected(f"by {admission.quote(unknown[0])}: is none of {', '.join(KEYS)}")
        for what, text in (("user", request.user), ("project", request.project)):
            admission.check_length(what, text, NAME_MAX)
        reader = self.lookup.reader
        numbers = (last - _EPOCH).days, (first - _EPOCH).days
        used = reader.usage(numbers[1], numbers[0], now, request.user, request.project, by)
        reply = pb.GetUsageReply(
            counted_since=reader.usage_since(), first_day=str(first), last_day=str(last)
        )
        left = BYTES_MAX
        for row in used[:ROWS_MAX]:
            message = pb.DayUsage(
                day=str(_EPOCH + timedelta(days=row.day)) if "day" in by else "",
                user=row.user,
                project=row.project,
                gpu_seconds=row.gpu_seconds,
                run_seconds=row.run_seconds,
                runs=row.runs,
            )
            left -= message.ByteSize() + 4
            if left < 0:
                break
            reply.days.append(message)
        reply.cut = len(reply.days) < len(used)
        return reply

    def ListPolicies(
        self, request: pb.ListPoliciesRequest, context: grpc.ServicerContext
    ) -> pb.ListPoliciesReply:
        self._user(context)
        return pb.ListPoliciesReply(
            policies=[
                pb.PolicyInfo(name=name, summary=summary, active=name == self.policy)
                for name, summary in self.policies.items()
            ]
        )

    # --- what they share --------------------------------------------------------------------

    def _user(self, context: grpc.ServicerContext) -> str:
        return self.people.user(token_of(context), is_insecure(context))

    def _node(self, token: str) -> str:
        """Empty: it is not a token of a node."""
        try:
            return self.agents.node(token)
        except (Unauthenticated, Forbidden):
            return ""

    def _session(self, context: grpc.ServicerContext) -> str:
        token = token_of(context) or ""
        if self.logins.sessions.find(token) is None:
            raise Rejected("this token is not of a session")
        return token

    def _valid_until(self, token: str) -> Time | None:
        if session := self.logins.sessions.find(token):
            return session.expires_at
        issued = self.logins.issued.find(token)
        return issued.expires_at if issued else None


def _day(what: str, text: str) -> date | None:
    if not text:
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise Rejected(f"{what} {admission.quote(text)}: must be a day, such as 2026-11-20")


def _before(day: date, days: int) -> date:
    try:
        return day - timedelta(days=days)
    except OverflowError:
        return date.min
