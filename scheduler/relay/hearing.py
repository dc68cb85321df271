"""The ears of a relay: one loop over its datagrams, its connections and its watched files.

Datagrams are read in portions: after each look the socket rests for a moment, so that a training
with a thousand steps in a second wakes the relay some fifty times and not a thousand.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable

from scheduler.relay.http import (
    CONTINUE,
    ArrivingFile,
    BrokenRequest,
    Incoming,
    RequestReader,
    Response,
)

REST_SECONDS = 0.02  # of the socket for datagrams
DATAGRAMS_MAX = 1024  # in one look
DATAGRAM_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 64
RECEIVE_BYTES = 256 * 1024
IDLE_SECONDS_MAX = 600.0  # of a connection
SO_RXQ_OVFL = 40  # how many datagrams the kernel has dropped, with each that it did not

Answering = Callable[[Incoming], Response]
Opening = Callable[[Incoming], ArrivingFile | None]
Take = Callable[[bytes], None]


class Ears:
    """Hears until `end` has ended, and then as long as something still arrives."""

    def __init__(
        self,
        listener: socket.socket,
        datagrams: socket.socket,
        end: int,
        answer: Answering,
        open_file: Opening,
        take: Take,
        lose: Callable[[int, str], None],
        take_word: Take,
    ) -> None:
        """`open_file` says where the body of a request goes; `take` is given lines that arrived
        together, `lose` how many datagrams nobody read, and `take_word` what the runner says."""
        self._listener, self._datagrams, self._end = listener, datagrams, end
        self._take_word = take_word
        self._answer, self._open_file, self._take, self._lose = answer, open_file, take, lose
        self._selector = selectors.DefaultSelector()
        self._connections: dict[socket.socket, HeardConnection] = {}
        self._dropped = 0
        self._listens_again_at = 0.0
        listener.setblocking(False)
        datagrams.setblocking(False)
        with contextlib.suppress(OSError):
            datagrams.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(datagrams, selectors.EVENT_READ, self._read_datagrams)
        self._selector.register(end, selectors.EVENT_READ, self._read_end)
        self.ended = False

    def listen(self, seconds: float) -> bool:
        """Hears for at most so long. Returns whether something came."""
        now = time.monotonic()
        if self._listens_again_at:
            seconds = min(seconds, max(0.0, self._listens_again_at - now))
        ready = self._selector.select(seconds)
        if self._listens_again_at and time.monotonic() >= self._listens_again_at:
            self._selector.register(self._datagrams, selectors.EVENT_READ, self._read_datagrams)
            self._listens_again_at = 0.0
        came = False
        for key, _ in ready:
            came = key.data() or came
        return came

    def close(self) -> None:
        for connection in list(self._connections):
            self._hang_up(connection)
        self._selector.close()

    def hang_up_idle(self) -> None:
        oldest = time.monotonic() - IDLE_SECONDS_MAX
        for peer, connection in list(self._connections.items()):
            if connection.heard_at < oldest:
                self._hang_up(peer)

    def _read_end(self) -> bool:
        word = os.read(self._end, RECEIVE_BYTES)
        if word:
            self._take_word(word)
        else:
            self._selector.unregister(self._end)
            self.ended = True
        return False

    # --- datagrams --------------------------------------------------------------------------

    def _read_datagrams(self) -> bool:
        portion: list[bytes] = []
        size = 0
        for _ in range(DATAGRAMS_MAX):
            try:
                data, ancillary, _, _ = self._datagrams.recvmsg(DATAGRAM_BYTES_MAX, 64)
            except OSError:
                break
            if ancillary:
                self._count_dropped(ancillary)
            is_odd = data.count(b'"') % 2 == 1  # a quote in it may seem to go on in the next one
            if portion and (is_odd or size + len(data) > DATAGRAM_BYTES_MAX):
                self._take(b"\n".join(portion))
                portion, size = [], 0
            if is_odd:
                self._take(data)
                continue
            portion.append(data)
            size += len(data) + 1
        if portion:
            self._take(b"\n".join(portion))
        self._selector.unregister(self._datagrams)
        self._listens_again_at = time.monotonic() + REST_SECONDS
        return bool(portion)

    def _count_dropped(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL and len(data) >= 4:
                (dropped,) = struct.unpack("I", data[:4])
                if dropped > self._dropped:
                    self._lose(dropped - self._dropped, "datagrams came faster than they are read")
                self._dropped = dropped

    # --- connections ------------------------------------------------------------------------

    def _accept(self) -> bool:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return False
        peer.setblocking(False)
        if len(self._connections) >= CONNECTIONS_MAX:
            with contextlib.suppress(OSError):
                peer.send(Response(503, headers=(("Retry-After", "1"),)).format(keep_alive=False))
            peer.close()
            return True
        with contextlib.suppress(OSError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connections[peer] = HeardConnection(peer, self._open_file)
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._serve(peer, connection))
        return True

    def _serve(self, peer: socket.socket, connection: HeardConnection) -> bool:
        try:
            goes_on = connection.step(self._answer)
        except (OSError, BrokenRequest):
            goes_on = False
        if not goes_on:
            self._hang_up(peer)
            return True
        events = selectors.EVENT_READ if not connection.unsent else selectors.EVENT_WRITE
        key = self._selector.get_key(peer)
        if key.events != events:
            self._selector.modify(peer, events, key.data)
        return True

    def _hang_up(self, peer: socket.socket) -> None:
        if connection := self._connections.pop(peer, None):
            connection.close()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer)
        peer.close()


class HeardConnection:
    def __init__(self, peer: socket.socket, open_file: Opening) -> None:
        self._peer, self._reader = peer, RequestReader(open_file)
        self.unsent = bytearray()
        self.heard_at = time.monotonic()
        self._last = False

    def close(self) -> None:
        self._reader.close()

    def step(self, answer: Answering) -> bool:
        """Reads or writes what it can. False: the connection is to end."""
        self.heard_at = time.monotonic()
        if not self.unsent:
            data = self._peer.recv(RECEIVE_BYTES)
            if not data:
                return False
            self._reader.feed(data)
            while not self._last:
                if self._reader.begin():
                    self.unsent += CONTINUE
                request = self._reader.next()
                if request is None:
                    break
                reply = answer(request)
                self._last = not request.keep_alive
                self.unsent += reply.format(request.keep_alive, request.method == "HEAD")
        with contextlib.suppress(BlockingIOError):
            del self.unsent[: self._peer.send(self.unsent)]
        return bool(self.unsent) or not self._last
