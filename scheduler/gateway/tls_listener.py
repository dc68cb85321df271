"""Where encrypted connections are accepted. One that is not encrypted yet has a place, too.

asyncio's own servers tell a protocol of a connection after the handshake only. So whoever begins
many and ends none would be bounded by nothing.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sized
from contextlib import suppress

HANDSHAKE_SECONDS = 15.0
_PAUSE_SECONDS = 0.5  # when nothing can be accepted, as no file can be opened


class TlsListener:
    """Is closed as a server of asyncio is."""

    def __init__(
        self,
        wire: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        connections: Sized,
        most: int,
    ) -> None:
        """`connections`: those whose handshake has ended; `most`: of them and all others."""
        self._wire, self._context, self._protocol = wire, context, protocol
        self._connections, self._most = connections, most
        self._shaking: dict[socket.socket, asyncio.Task[None]] = {}  # the oldest is the first
        wire.setblocking(False)
        wire.listen()
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        for task in (self._accepting, *self._shaking.values()):
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait((self._accepting, *self._shaking.values()))

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._wire)
            except OSError:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._make_room()
            self._shaking[accepted] = asyncio.create_task(self._shake(accepted))
            await asyncio.sleep(0)  # many that come at once must not keep all others waiting

    def _make_room(self) -> None:
        """The oldest handshake gives way, so that many that never end keep no other out. Who comes
        when there are only whole connections is told so by its own one, encrypted."""
        if self._shaking and len(self._shaking) + len(self._connections) >= self._most:
            self._shaking.pop(next(iter(self._shaking))).cancel()  # which closes it

    async def _shake(self, accepted: socket.socket) -> None:
        """The connection then belongs to its protocol."""
        try:
            with suppress(OSError):  # e.g. it speaks no TLS, or takes too long
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._protocol,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                )
        finally:
            self._shaking.pop(accepted, None)
