"""A connection of a browser or program: how many there may be, and how slow each may be.

uvicorn limits neither: it would wait for ever for the rest of a header, and for a reader.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from scheduler.gateway.problems import RETRY_SECONDS

CONNECTIONS_MAX = 200
HEADER_BYTES_MAX = 16 * 1024
IDLE_SECONDS = 15.0  # without a whole request, from the connection or the last answer on
STUCK_SECONDS = 30.0  # without the reader taking anything of what waits for it
_LOOK_SECONDS = 1.0
_FULL = (
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
    f"Retry-After: {RETRY_SECONDS}\r\nContent-Type: application/json\r\n"
    "Content-Length: {length}\r\n\r\n{body}"
)
_FULL_BODY = (
    '{"error":{"code":"service_unavailable","message":"too many connections: try again",'
    '"field":null}}'
)


class HttpConnection(H11Protocol):
    """Looks after itself: it is cut if it keeps its place without using it."""

    idle_seconds = IDLE_SECONDS
    stuck_seconds = STUCK_SECONDS
    most = CONNECTIONS_MAX

    _idle_since = 0.0
    _stuck_since: float | None = None
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            full = _FULL.format(length=len(_FULL_BODY), body=_FULL_BODY)
            transport.write(full.encode())
            transport.close()
            return
        wire = transport.get_extra_info("socket")
        if wire is not None and wire.family in (socket.AF_INET, socket.AF_INET6):
            # A reader that has gone, or that takes nothing, is noticed by the kernel.
            milliseconds = int(self.stuck_seconds * 1000)
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self._idle_since = self.loop.time()
        self._look = self.loop.call_later(_LOOK_SECONDS, self._look_after)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look:
            self._look.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def _look_after(self) -> None:
        now = self.loop.time()
        answering = self.cycle is not None and not self.cycle.response_complete
        idle = not answering and now - self._idle_since > self.idle_seconds
        stuck = self._stuck_since is not None and now - self._stuck_since > self.stuck_seconds
        if idle or stuck:
            self.transport.abort()
        else:
            self._look = self.loop.call_later(_LOOK_SECONDS, self._look_after)
