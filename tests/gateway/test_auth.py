"""Who is let in, and how a login is attacked."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from scheduler.access.identity import user_token
from scheduler.gateway.auth import KNOWN_SECONDS, Auth
from scheduler.gateway.problems import Problem
from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.serving_http import Served
from tests.serving import SECRET

SESSION, JOBS = "/api/v1/session", "/api/v1/jobs"
COOKIE = "scheduler_session"


def cookie_of(answer: httpx.Response) -> Any:
    return SimpleCookie(answer.headers["set-cookie"])[COOKIE]


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["ada", "ada." + "0" * 64, "\u00fc", "x" * 5000])
def test_no_other_token_opens_anything(token: str, served: Served) -> None:
    header = b"Bearer " + token.encode()
    with served.gateway.client() as client:
        answer = client.get(JOBS, headers={b"authorization": header})
        assert answer.status_code == 401, answer.text
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_program_is_who_its_token_says(served: Served) -> None:
    with served.by("ada") as ada, served.by("root") as root:
        told = ada.get(SESSION).json()
        assert (told["user"], told["admin"], told["session"]) == ("ada", False, False)
        assert root.get(SESSION).json()["admin"]


class Judge:
    """A daemon that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked, self.revoked = 0, False

    async def ask(self, *_: object) -> pb.IdentifyReply:
        self.asked += 1
        if self.revoked:
            raise Problem(401, "revoked")
        return pb.IdentifyReply(user="ada", version="1")


def test_a_revoked_token_is_refused_within_a_minute() -> None:
    async def life() -> None:
        now, judge = 0.0, Judge()
        auth = Auth(judge, "1", encrypted=False, clock=lambda: now)  # type: ignore[arg-type]
        for _ in range(3):
            await auth.holder("token")
        assert judge.asked == 1
        judge.revoked, now = True, KNOWN_SECONDS
        for _ in range(2):
            with pytest.raises(Problem, match="revoked"):
                await auth.holder("token")

    asyncio.run(life())


# --- log in by a code ---------------------------------------------------------------------------


def test_a_code_becomes_a_cookie_and_leaves_the_address(served: Served) -> None:
    code = served.code()
    with served.gateway.client() as browser:
        answer = browser.get(f"/login?code={code}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert code not in answer.text
        cookie = cookie_of(answer)
        assert cookie["httponly"]
        assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("strict", "/", "43200")
        assert cookie["domain"] == ""
        assert browser.get(SESSION).json()["user"] == "ada"
        assert browser.get("/").status_code == 200
        assert user_token(SECRET, "ada") != cookie.value


def test_a_code_works_once(served: Served) -> None:
    code = served.code()
    with served.gateway.client() as browser, served.gateway.client() as thief:
        browser.get(f"/login?code={code}")
        answer = thief.get(f"/login?code={code}")
        assert answer.headers["location"] == "/login?refused=code"
        assert "set-cookie" not in answer.headers
        assert thief.get(SESSION).status_code == 401


def test_a_code_that_was_only_looked_at_is_not_spent(served: Served) -> None:
    code = served.code()
    with served.gateway.client() as browser:
        browser.head(f"/login?code={code}")
        assert browser.get(f"/login?code={code}").headers["location"] == "/"


def test_a_code_of_another_user_does_not_replace_who_is_logged_in(served: Served) -> None:
    """Else a link could make its reader work as somebody else."""
    with served.logged_in("ada") as browser:
        answer = browser.get(f"/login?code={served.code('mallory')}")
        assert answer.headers["location"] == "/login?refused=code"
        assert browser.get(SESSION).json()["user"] == "ada"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_page_logs_nobody_in(site: str, served: Served) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    with served.gateway.client() as browser:
        answer = browser.get(f"/login?code={served.code()}", headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "page",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\r\nX: y",
    ],
)
def test_a_login_leads_to_no_other_server(page: str, served: Served) -> None:
    with served.gateway.client() as browser:
        answer = browser.get("/login", params={"code": served.code(), "next": page})
        assert answer.headers["location"] == "/"
    with served.gateway.client() as other:
        asked = {"code": served.code(), "next": "/jobs/some-name"}
        assert other.get("/login", params=asked).headers["location"] == "/jobs/some-name"


def test_where_a_page_was_asked_for_it_is_shown_after_the_login(served: Served) -> None:
    with served.gateway.client() as browser:
        assert browser.get("/jobs/x").headers["location"] == "/login?next=/jobs/x"
        assert browser.get("/login?next=/jobs/x").status_code == 200


# --- log in by a token, log out -----------------------------------------------------------------


def test_a_pasted_token_becomes_another_cookie(served: Served) -> None:
    token = user_token(SECRET, "ada")
    with served.gateway.client(origin=served.gateway.url) as browser:
        answer = browser.post("/login", json={"token": f" {token}\n"})
        assert answer.json()["user"] == "ada"
        assert token not in str(answer.headers) + answer.text
        assert cookie_of(answer)["httponly"]
        assert browser.get(SESSION).json()["session"]
        assert browser.post("/login", json={"token": "no.token"}).status_code == 401
        assert browser.post("/login", json={"token": "\u00fc"}).json()["error"]["field"] == "token"


def test_a_session_cannot_make_sessions(served: Served) -> None:
    with served.logged_in() as browser:
        stolen = browser.cookies[COOKIE]
        assert browser.post("/login", json={"token": stolen}).status_code == 403


def test_logging_out_ends_the_session_everywhere(served: Served) -> None:
    with served.logged_in() as browser, served.gateway.client() as thief:
        stolen = {"cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        assert thief.get(SESSION, headers=stolen).status_code == 200
        answer = browser.post("/logout")
        assert (answer.status_code, cookie_of(answer).value) == (200, "")
        assert thief.get(SESSION, headers=stolen).status_code == 401
        assert thief.get("/events", headers=stolen).status_code == 401
        assert browser.post("/logout").status_code == 200


# --- the pages of others ------------------------------------------------------------------------


def test_a_page_of_another_server_cannot_use_a_login(served: Served) -> None:
    """A second server on this machine: its pages are of the same site, and have the cookie."""
    job = served.daemon.submit("victim")
    address = f"{JOBS}/{job}/cancel"
    with served.logged_in() as browser:
        for headers in (
            {"origin": "http://127.0.0.1:9999"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": served.gateway.url, "sec-fetch-site": "same-site"},
        ):
            assert browser.post(address, headers=headers).status_code == 403
            assert browser.post("/logout", headers=headers).status_code == 403
            assert browser.post("/login", json={"token": "x"}, headers=headers).status_code == 403
        del browser.headers["origin"]
        assert browser.post(address).status_code == 403
        loads = {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}
        assert browser.get(JOBS, headers=loads).status_code == 403
        assert browser.get("/events", headers=loads).status_code == 403
        rebound = {"host": f"evil.example:{served.gateway.url.rpartition(':')[2]}"}
        assert browser.get(JOBS, headers=rebound).status_code == 421
        assert "access-control-allow-origin" not in browser.get(JOBS).headers
    assert not served.daemon.job(job).cancelled


@pytest.mark.parametrize("hours", [12, 24])
def test_the_cookie_of_yesterday_leads_to_the_login(hours: int, served: Served) -> None:
    with served.gateway.client() as browser:
        browser.get(f"/login?code={served.code()}")
        served.daemon.wall.ahead = hours * 3600.0 + 1
        try:
            assert browser.get(JOBS).status_code == 401
            assert browser.get("/events").status_code == 401
            assert browser.get("/jobs").headers["location"] == "/login?next=/jobs"
        finally:
            served.daemon.wall.ahead = 0.0


def test_the_cookie_of_a_session_that_was_ended_is_refused(served: Served) -> None:
    with served.logged_in() as browser:
        old = browser.cookies[COOKIE]
        token = (("authorization", f"Bearer {old}"),)
        served.daemon.gateway.EndSession(pb.EndSessionRequest(), metadata=token)
        with served.gateway.client(cookie=f"{COOKIE}={old}") as later:
            assert later.get(JOBS).status_code == 401
            assert later.get("/").headers["location"] == "/login"
