"""The service for the gateway, through a real channel, on a real loop and store."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler import run_logs
from scheduler.access import issued_tokens, sessions
from scheduler.core.model import JobId
from scheduler.v1 import scheduler_pb2 as pb
from tests.serving import (
    DENIED,
    INVALID,
    NOT_FOUND,
    REFUSED,
    UNKNOWN,
    Metadata,
    Serving,
    bearer,
    by,
    of,
    refused,
)
from tests.support import eventually


def _identified(served: Serving, who: Metadata) -> pb.IdentifyReply:
    reply: pb.IdentifyReply = served.gateway.Identify(
        pb.IdentifyRequest(), metadata=who, timeout=10
    )
    return reply


def _code(served: Serving, who: Metadata) -> str:
    reply: pb.CreateLoginReply = served.gateway.CreateLogin(
        pb.CreateLoginRequest(), metadata=who, timeout=10
    )
    return reply.code


def _exchanged(served: Serving, code: str, user: str = "") -> pb.Session:
    request = pb.ExchangeLoginRequest(code=code, user=user)
    reply: pb.Session = served.gateway.ExchangeLogin(request, timeout=10)
    return reply


def _session(served: Serving, user: str = "ada") -> pb.Session:
    return _exchanged(served, _code(served, by(user)))


def _issued(served: Serving, user: str = "ada", seconds: float = 3600.0) -> tuple[int, str]:
    token, secret = issued_tokens.issue(served.database, user, "", served.wall.now(), seconds)
    return token.id, secret


# --- whose a token is ---------------------------------------------------------------------------


def test_a_user_is_told_who_they_are(served: Serving) -> None:
    reply = _identified(served, by("ada"))
    assert (reply.user, reply.job_id, reply.node, reply.admin) == ("ada", "", "", False)
    assert (reply.version, reply.session, reply.HasField("valid_until")) == ("1.2.3", False, False)
    assert abs(reply.now - served.inbox.now()) < 60
    assert _identified(served, by("root")).admin


def test_an_issued_token_says_until_when(served: Serving) -> None:
    _, secret = _issued(served, seconds=1000.0)
    reply = _identified(served, bearer(secret))
    assert reply.user == "ada"
    assert reply.valid_until == pytest.approx(time.time() + 1000, abs=60)


def test_a_job_is_known_by_its_token_alone(served: Serving) -> None:
    job = served.running()
    reply = _identified(served, of(job))
    assert (reply.user, reply.job_id, reply.admin) == ("", job.id, False)


def test_an_agent_is_known_by_its_token(served: Serving) -> None:
    now = served.wall.now()
    _, secret = issued_tokens.issue_for_node(served.database, "westworld", "", now, 60.0)
    reply = _identified(served, bearer(secret))
    assert (reply.user, reply.node) == ("", "westworld")


def test_a_token_of_others_is_of_nobody(served: Serving) -> None:
    with refused(UNKNOWN, "no token"):
        served.gateway.Identify(pb.IdentifyRequest(), timeout=10)
    for token in ("x", "ada.00", "est_x", "ess_x", "é" * 9, "x" * 4000):
        with pytest.raises((grpc.RpcError, UnicodeEncodeError, ValueError)):
            _identified(served, bearer(token))


# --- log-in -------------------------------------------------------------------------------------


def test_a_code_becomes_a_session_of_its_user(served: Serving) -> None:
    session = _session(served)
    assert session.user == "ada"
    assert session.valid_until == pytest.approx(time.time() + 12 * 3600, abs=60)
    reply = _identified(served, bearer(session.token))
    assert (reply.user, reply.session, reply.valid_until) == ("ada", True, session.valid_until)
    served.people.ListJobs(pb.ListJobsRequest(), metadata=bearer(session.token), timeout=10)


def test_a_code_is_good_once(served: Serving) -> None:
    code = _code(served, by("ada"))
    _exchanged(served, code)
    with refused(UNKNOWN, "unknown, was used already, or is older than 60 s"):
        _exchanged(served, code)


def test_a_code_is_good_for_a_minute(served: Serving) -> None:
    code = _code(served, by("ada"))
    served.wall.ahead = sessions.CODE_SECONDS + 1
    with refused(UNKNOWN, "was used already, or is older"):
        _exchanged(served, code)


def test_a_code_of_another_user_is_refused_and_spent(served: Serving) -> None:
    code = _code(served, by("eve"))
    with refused(DENIED, "this login code is of another user, and ada is logged in"):
        _exchanged(served, code, "ada")
    with refused(UNKNOWN, "was used already"):
        _exchanged(served, code)
    assert _exchanged(served, _code(served, by("ada")), "ada").user == "ada"


def test_codes_that_were_not_made_here_are_refused(served: Serving) -> None:
    for code in ("", "x", "x" * 100_000, "\0", "é"):
        with refused(UNKNOWN, "this login code is unknown"):
            _exchanged(served, code)
    with refused(UNKNOWN, "no token"):
        served.gateway.CreateLogin(pb.CreateLoginRequest(), timeout=10)


def test_neither_a_session_nor_a_job_makes_codes(served: Serving) -> None:
    session = _session(served)
    with refused(DENIED, "a session cannot make login codes"):
        _code(served, bearer(session.token))
    with refused(UNKNOWN, "this token was not issued by this scheduler"):
        _code(served, of(served.running()))


def test_a_session_ends_after_12_hours(served: Serving) -> None:
    session = _session(served)
    served.wall.ahead = sessions.SESSION_SECONDS + 1
    with refused(UNKNOWN, "this session has ended: log in again"):
        _identified(served, bearer(session.token))


def test_a_session_is_renewed_once_and_at_most_for_a_week(served: Serving) -> None:
    token = _session(served).token
    for hours in range(8, 7 * 24, 8):
        served.wall.ahead = hours * 3600.0
        renewed = served.gateway.RenewSession(
            pb.RenewSessionRequest(), metadata=bearer(token), timeout=10
        )
        assert (renewed.user, renewed.token == token) == ("ada", False)
        _identified(served, bearer(token))  # for calls that are under way
        with refused(REFUSED, "this session has a newer token already"):
            served.gateway.RenewSession(
                pb.RenewSessionRequest(), metadata=bearer(token), timeout=10
            )
        served.wall.ahead += sessions.OVERLAP_SECONDS + 1
        with refused(UNKNOWN, "this session has ended"):
            _identified(served, bearer(token))
        token = renewed.token
    assert renewed.valid_until == pytest.approx(time.time() + 7 * 86_400, abs=60)
    served.wall.ahead = 7 * 86_400 + 60.0
    with refused(UNKNOWN, "this session has ended"):
        served.gateway.RenewSession(pb.RenewSessionRequest(), metadata=bearer(token), timeout=10)


def test_a_log_out_ends_one_session_or_all_of_a_user(served: Serving) -> None:
    def end(who: Metadata, everywhere: bool = False) -> int:
        request = pb.EndSessionRequest(all=everywhere)
        reply: pb.EndSessionReply = served.gateway.EndSession(request, metadata=who, timeout=10)
        return reply.ended

    first, second, third = (_session(served).token for _ in range(3))
    other = _session(served, "bob").token
    assert end(bearer(first)) == 1
    with refused(UNKNOWN, "this session has ended"):
        _identified(served, bearer(first))
    _identified(served, bearer(second))
    with refused(INVALID, "this token is not of a session"):
        end(by("ada"))
    assert end(by("ada"), everywhere=True) == 2
    for token in (second, third):
        with refused(UNKNOWN, "this session has ended"):
            _identified(served, bearer(token))
    assert _identified(served, bearer(other)).user == "bob"


def test_a_session_ends_with_the_token_that_it_came_from(served: Serving) -> None:
    number, secret = _issued(served, seconds=1000.0)
    session = _exchanged(served, _code(served, bearer(secret)))
    assert session.valid_until == pytest.approx(time.time() + 1000, abs=60)
    issued_tokens.revoke(served.database, number, served.wall.now())
    with refused(UNKNOWN, "this session has ended"):
        _identified(served, bearer(session.token))


# --- logs ---------------------------------------------------------------------------------------


def _read(served: Serving, job: str, **given: object) -> pb.ReadLogReply:
    request = pb.ReadLogRequest(job=job, **given)  # type: ignore[arg-type]
    reply: pb.ReadLogReply = served.gateway.ReadLog(request, metadata=by("bob"), timeout=10)
    return reply


def _write(served: Serving, job_id: str, data: bytes, attempt: int = 1, rank: int = 0) -> Path:
    path = run_logs.log_path(served.logs, JobId(job_id), attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_log_is_read_by_ranges(served: Serving) -> None:
    job = served.running()
    data = bytes(range(256)) * 5000
    _write(served, job.id, data)
    got, at = b"", 0
    while at < len(data):
        reply = _read(served, job.id, offset=at, length=100_000)
        assert (reply.size, reply.offset, reply.attempt, reply.ended) == (len(data), at, 1, False)
        part = b"".join(part.data for part in reply.parts)
        assert len(part) == min(100_000, len(data) - at)
        got, at = got + part, reply.next
    assert got == data
    tail = _read(served, job.id, offset=-10)
    assert (b"".join(part.data for part in tail.parts), tail.next) == (data[-10:], len(data))
    beyond = _read(served, job.id, offset=2**62)
    assert (list(beyond.parts), beyond.next, beyond.size) == ([], len(data), len(data))
    assert len(_read(served, job.id).parts) == 1  # 64 KiB


def test_gaps_of_a_log_are_told(served: Serving) -> None:
    job = served.running()
    path = _write(served, job.id, b"a" * 65_536)
    with path.open("r+b") as file:
        file.seek(2**30)
        file.write(b"z" * 10)
    reply = _read(served, job.id, offset=65_530, length=100)
    assert [(part.data, part.gap) for part in reply.parts] == [
        (b"a" * 6, 0),
        (b"", 2**30 - 65_536),
        (b"z" * 10, 0),
    ]
    assert reply.next == reply.size == 2**30 + 10


def test_which_files_there_are_is_told(served: Serving) -> None:
    job = served.running()
    for rank in (0, 1):
        _write(served, job.id, b"x" * rank, rank=rank)
    reply = _read(served, job.id, rank=1, list=True)
    assert [(file.attempt, file.rank, file.size) for file in reply.files] == [(1, 0, 0), (1, 1, 1)]
    with refused(NOT_FOUND, "has no output of rank 7: its ranks are 0 to 1"):
        _read(served, job.id, rank=7)


def test_without_a_log_it_is_said_why(served: Serving) -> None:
    job = served.running()
    assert _read(served, job.id).note == "no output yet"
    served.cluster.end(job.id, 1)
    eventually(lambda: served.job(job.id).outcome)
    reply = _read(served, job.id)
    assert (reply.note, reply.ended) == ("it ended without any output", True)


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"length": 2**20 + 1}, INVALID, "length 1048577: must be at most 1048576"),
        ({"length": -1}, INVALID, "length -1: must be at least 0"),
        ({"attempt": 2}, NOT_FOUND, "has had 1 attempts, not 2"),
        ({"attempt": -1}, INVALID, "attempt -1: must be at least 0"),
        ({"rank": 2**30}, INVALID, "rank 1073741824: must be at most"),
        ({"rank": -1}, INVALID, "rank -1: must be at least 0"),
    ],
)
def test_impossible_parts_of_a_log_are_refused(
    served: Serving, given: dict[str, int], status: grpc.StatusCode, words: str
) -> None:
    job = served.running()
    _write(served, job.id, b"x")
    with refused(status, words):
        _read(served, job.id, **given)
    with refused(NOT_FOUND, "no job matches"):
        _read(served, "../../etc/passwd")


# --- what was used ------------------------------------------------------------------------------


def _used(served: Serving, **given: Any) -> pb.GetUsageReply:
    request = pb.GetUsageRequest(**given)
    reply: pb.GetUsageReply = served.gateway.GetUsage(request, metadata=by("bob"), timeout=10)
    return reply


def test_what_runs_use_is_summed_while_they_run_and_after(served: Serving) -> None:
    job = served.running(project="vision")
    served.running("other", "bob")
    (mine,) = _used(served, user="ada").days
    assert (mine.user, mine.project, mine.runs) == ("ada", "vision", 1)
    assert mine.day == time.strftime("%Y-%m-%d", time.gmtime())
    served.cluster.end(job.id, 1)
    eventually(lambda: served.job(job.id).outcome)
    reply = _used(served)
    assert [day.user for day in reply.days] == ["ada", "bob"]
    ended = served.job(job.id)
    assert ended.started_at is not None
    assert reply.days[0].run_seconds == pytest.approx(ended.ran_seconds)
    assert reply.days[0].gpu_seconds == pytest.approx(ended.ran_seconds)
    assert reply.counted_since <= time.time()
    assert not _used(served, last_day="2020-01-30").days
    assert not _used(served, project="none").days


def test_a_year_of_many_users_is_summed_or_cut(served: Serving) -> None:
    rows = [
        (20_000 - day, f"user{user}", f"project{project}", 2.0, 1.0, 1)
        for day in range(365)
        for user in range(40)
        for project in range(4)
    ]
    with sqlite3.connect(served.database, timeout=30) as db:
        db.executemany("insert into usage values (?, ?, ?, ?, ?, ?)", rows)
    year = {"first_day": "2023-10-05", "last_day": "2024-10-04"}
    reply = _used(served, **year)
    assert (len(reply.days), reply.cut, reply.days[0].day) == (50_000, True, "2024-10-04")
    for sums, count in ((["day", "user"], 365 * 40), (["day"], 365), (["user", "project"], 160)):
        reply = _used(served, by=sums, **year)
        assert (len(reply.days), reply.cut) == (count, False)
        assert sum(day.gpu_seconds for day in reply.days) == 2.0 * len(rows)
        assert bool(reply.days[0].day) is ("day" in sums)
        assert bool(reply.days[0].user) is ("user" in sums)
    (all_of_it,) = _used(served, by=["project"], project="project3", **year).days
    assert (all_of_it.project, all_of_it.runs) == ("project3", len(rows) // 4)


@pytest.mark.parametrize(
    "given",
    [
        {"by": ["day", "day; drop table usage"]},
        {"first_day": "yesterday"},
        {"first_day": "2026-02-30"},
        {"first_day": "2026-2-3"},
        {"last_day": "1" * 10_000},
        {"first_day": "2026-01-02", "last_day": "2026-01-01"},
        {"first_day": "0001-01-01", "last_day": "9999-12-31"},
        {"user": "u" * 1000},
    ],
)
def test_impossible_days_are_refused(served: Serving, given: dict[str, Any]) -> None:
    with refused(INVALID, ""):
        _used(served, **given)


def test_policies_are_listed(served: Serving) -> None:
    reply = served.gateway.ListPolicies(pb.ListPoliciesRequest(), metadata=by("bob"), timeout=10)
    assert [(policy.name, policy.active) for policy in reply.policies] == [
        ("fifo", False),
        ("fifo_sharing", True),
    ]


# --- what happens -------------------------------------------------------------------------------


def test_facts_and_jobs_are_told_as_they_happen(served: Serving) -> None:
    stream = served.gateway.WatchEvents(pb.WatchEventsRequest(), metadata=by("bob"), timeout=30)
    first = next(stream)
    assert first.cursor
    assert first == pb.WatchEventsReply(cursor=first.cursor)
    job = served.running()
    kinds, states = [], []
    for reply in stream:
        kinds += [fact.kind for fact in reply.facts if fact.job_id == job.id]
        states += [told.state for told in reply.jobs if told.id == job.id]
        if states[-1:] == ["RUNNING"]:
            break
    assert kinds[:2] == ["job_submitted", "run_started"]
    stream.cancel()


def test_without_a_persons_token_nothing_is_shown(served: Serving) -> None:
    job = served.running()
    for who in ((), of(job)):
        for call, request in [
            (served.gateway.ReadLog, pb.ReadLogRequest(job=job.id)),
            (served.gateway.GetUsage, pb.GetUsageRequest()),
            (served.gateway.ListPolicies, pb.ListPoliciesRequest()),
            (served.gateway.RenewSession, pb.RenewSessionRequest()),
            (served.gateway.EndSession, pb.EndSessionRequest(all=True)),
        ]:
            with refused(UNKNOWN, "token"):
                call(request, metadata=who, timeout=10)
        with refused(UNKNOWN, "token"):
            next(served.gateway.WatchEvents(pb.WatchEventsRequest(), metadata=who, timeout=10))
