"""Requests from elsewhere, and those that are too large or too slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scheduler.gateway.guard import BODY_BYTES_MAX, Guard

URL = "http://gpu1:7071"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await Response(str(len(body)))(scope, receive, send)


def ask(method: str = "GET", content: object = None, **headers: str) -> httpx.Response:
    return ask_of(Guard(echo, ["gpu1", "127.0.0.1", "[::1]"]), method, content, headers)


def ask_of(
    app: Guard, method: str = "GET", content: object = None, headers: Mapping[str, str] = {}
) -> httpx.Response:
    async def call() -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(method, URL, headers=sent, content=content)  # type: ignore[arg-type]

    return asyncio.run(call())


@pytest.mark.parametrize("host", ["gpu1", "GPU1:9000", "127.0.0.1:7071", "[::1]:1", "[::1]"])
def test_it_answers_to_its_names(host: str) -> None:
    assert ask(host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "gpu1.evil.example:7071", "", "[", "gpu1@x"]
)
def test_a_name_that_was_bound_to_this_machine_by_others_is_refused(host: str) -> None:
    assert ask(host=host).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://gpu1:9999"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://gpu1:7071", "sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://gpu1:7071.evil.example"},
        {},
    ],
)
def test_no_page_of_another_server_changes_anything(headers: dict[str, str]) -> None:
    assert ask("POST", **headers).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": URL}, {"sec_fetch_site": "same-origin"}, {"authorization": "Bearer x"}],
)
def test_own_pages_and_programs_with_a_token_may(headers: dict[str, str]) -> None:
    assert ask("POST", **headers).status_code == 200


def test_a_page_of_another_server_may_link_here_and_not_load_from_here() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert ask("GET", None, **link).status_code == 200
    for mode in ("cors", "no-cors"):
        assert ask(sec_fetch_site="cross-site", sec_fetch_mode=mode).status_code == 403
        assert ask(sec_fetch_site="same-site", sec_fetch_mode=mode).status_code == 403


def test_a_large_body_is_refused_with_and_without_its_length() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 2**16 + 1):
            yield b"x" * 2**16

    whole = ask("POST", b"x" * BODY_BYTES_MAX, authorization="Bearer x")
    assert (whole.status_code, whole.text) == (200, str(BODY_BYTES_MAX))
    assert ask("POST", b"x" * (BODY_BYTES_MAX + 1), authorization="Bearer x").status_code == 413
    assert ask("POST", chunks(), authorization="Bearer x").status_code == 413
    assert ask("POST", b"", content_length="-1", authorization="Bearer x").status_code == 413


def test_a_request_that_takes_too_long_ends() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    answer = ask_of(Guard(slow, ["gpu1"], request_seconds=0.01))
    assert answer.status_code == 408
    assert answer.json()["error"]["code"] == "request_timeout"


@pytest.mark.parametrize("host", ["gpu1", "evil.example"])
def test_each_answer_forbids_what_is_from_elsewhere(host: str) -> None:
    headers = ask(host=host).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
