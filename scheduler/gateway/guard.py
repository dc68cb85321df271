"""What holds for every request: from where it may come, how large and how slow it may be, and what
each answer says to the browser. It knows no users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.gateway.problems import Problem

BODY_BYTES_MAX = 2**20
REQUEST_SECONDS = 30.0  # from the headers of a request to the beginning of its answer
_READING = ("GET", "HEAD")

ErrorForm = Callable[[Problem, Mapping[str, str] | None], Response]
_Setting = TypeVar("_Setting")

# Nothing from elsewhere, no script or style within a page, and no page of ours within another.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ONLY_ENCRYPTED = {"Strict-Transport-Security": "max-age=31536000"}


class Guard:
    """Around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        encrypted: bool = False,
        request_seconds: float = REQUEST_SECONDS,
        larger_bodies: Mapping[str, int] | None = None,
        error_forms: Mapping[str, ErrorForm] | None = None,
    ) -> None:
        """`hosts`: the names by which this server is called, without ports. `larger_bodies`: how
        many bytes are allowed, by the beginning of a path; of two, the first. `error_forms`: what
        a refusal looks like, by the same."""
        self._app = app
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)
        self._headers = _HEADERS | (_ONLY_ENCRYPTED if encrypted else {})
        self._seconds = request_seconds
        self._larger = larger_bodies or {}
        self._forms = error_forms or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no other protocol is spoken here
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                deadline.reschedule(None)
                self._add_headers(message)
            await send(message)

        def heard() -> None:
            """A large body may take long, as long as it goes on."""
            if not begun:
                deadline.reschedule(asyncio.get_running_loop().time() + self._seconds)

        async def refuse(problem: Problem) -> None:
            if not begun:
                form = _of_path(self._forms, scope["path"], Problem.response)
                response = form(problem, {**self._headers, "Connection": "close"})
                await response(scope, receive, send)

        headers = Headers(scope=scope)
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                self._check_origin(scope["method"], headers)
                most = _of_path(self._larger, scope["path"], BODY_BYTES_MAX)
                _check_length(headers, most)
                await self._app(scope, _limited(receive, most, heard), answer)
        except Problem as problem:
            await refuse(problem)
        except TimeoutError:
            await refuse(Problem(408, f"the request took more than {self._seconds:g} s"))

    def _add_headers(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in self._headers.items():
            headers.setdefault(name, value)

    def _check_origin(self, method: str, headers: Headers) -> None:
        """A page of another site may neither change anything here nor read it: its name may lead to
        this machine (DNS rebinding), and its user may be logged in here."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _name(hosts[0]) not in self._hosts:
            raise Problem(
                421, "this name is not one of this server's: an admin can add it to gateway.hosts"
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and urlsplit(origin).netloc.lower() != hosts[0].lower():
            raise Problem(403, "this page is not of this server: it may not ask here")
        elsewhere = site in ("cross-site", "same-site")
        if method in _READING:
            # A person may follow a link to a page. No page of another server may load data.
            if elsewhere and headers.get("sec-fetch-mode", "navigate") != "navigate":
                raise Problem(403, "this page is not of this server: it may not ask here")
        elif elsewhere:
            raise Problem(403, "this page is not of this server: it may not ask here")
        elif origin is None and site is None and "authorization" not in headers:
            raise Problem(
                403,
                "a request without a token must say from which page it comes; programs send"
                " `Authorization: Bearer TOKEN`",
            )


def _of_path(these: Mapping[str, _Setting], path: str, usual: _Setting) -> _Setting:
    """What is set for the first beginning that the path has."""
    return next((each for beginning, each in these.items() if path.startswith(beginning)), usual)


def _name(host: str) -> str:
    """`[::1]:7071` is `::1`."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _check_length(headers: Headers, most: int) -> None:
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise Problem(413, f"the body is larger than {most} bytes")


def _limited(receive: Receive, most: int, heard: Callable[[], None]) -> Receive:
    """A body in chunks has no length that could be checked before. `heard`: is called after each
    MiB."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        before = received
        received += len(message.get("body", b""))
        if received > most:
            raise Problem(413, f"the body is larger than {most} bytes")
        if received // 2**20 > before // 2**20:
            heard()
        return message

    return limited
