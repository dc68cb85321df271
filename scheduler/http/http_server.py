"""A small HTTP server: its port, connections, threads and limits. It knows no jobs.

Theory of operation. One thread waits for all connections and reads from them. It passes each
complete request to one of a few threads that answer. So a client that sends slowly, or nothing,
costs a socket and a small buffer, but never a thread. A request must be complete in time. When
there are too many connections, the one that has been silent longest is closed. The servers of the
standard library and others limit the time of a read, not of a request, and each connection takes a
thread, or all wait when there are too many of them.

The reading thread owns a connection, except while a request of it is being answered. It also sends
what a connection could not take at once, so that a client that reads slowly costs no thread either.
"""

from __future__ import annotations

import errno
import queue
import resource
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from scheduler.access import peers
from scheduler.core.errors import ConfigError, InUseError
from scheduler.http import http11
from scheduler.http.http11 import MalformedRequest, Reply, Request

CONNECTIONS_MAX = 512  # or an eighth of the descriptors that this process may have
THREADS = 32
REQUEST_SECONDS = 5.0  # from its first byte, or the begin of the connection, to its last byte
IDLE_SECONDS = 30.0  # of a connection whose request has been answered
_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 64
_POLL_SECONDS = 0.25  # between checks for overdue connections
_BUFFER_MAX = http11.HEAD_BYTES_MAX + 4 + http11.BODY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a connection."""

    address: str
    find_uid: Callable[[], int | None]  # of its process; None: it is not on this machine


Answer = Callable[[Request, Caller], Reply]

log = structlog.get_logger("scheduler.http.http_server")


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    caller: Caller
    until: float  # when it is closed, by the monotonic clock
    buffer: bytearray = field(default_factory=bytearray)
    answered: bool = False  # a thread is answering its request
    ended: bool = False  # the client will send nothing more
    closing: bool = False  # it is closed after the present answer
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))  # of the present answer


def _find_uid(connection: socket.socket, peer: tuple[Any, ...]) -> int | None:
    try:
        own = connection.getsockname()
    except OSError:
        return None
    return peers.find_uid((peer[0], peer[1]), (own[0], own[1]))


class HttpServer:
    """The port is bound on creation, so that it is known or the error is raised; `start` serves."""

    def __init__(
        self,
        address: tuple[str, int],
        answer: Answer,
        request_seconds: float = REQUEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        connections_max: int = CONNECTIONS_MAX,
        threads: int = THREADS,
        name: str = "web",
    ) -> None:
        """`request_seconds`: for a whole request, and again for its whole answer."""
        self._answer = answer
        self._request_seconds, self._idle_seconds = request_seconds, idle_seconds
        host, port = address[0].strip("[]"), address[1]
        try:
            self._listener = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=_BACKLOG,
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            kind = InUseError if error.errno == errno.EADDRINUSE else ConfigError
            raise kind(f"cannot listen on {address[0]}:{port}: {why}") from error
        self._listener.setblocking(False)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections_max = min(connections_max, descriptors // 8)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._connections: dict[
            _Connection, None
        ] = {}  # the one that has been silent longest is first
        self._requests: queue.SimpleQueue[tuple[_Connection, Request] | None] = queue.SimpleQueue()
        self._answered: deque[_Connection] = deque()
        self.refused: dict[str, int] = {}  # how often, and why; only the reading thread adds
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in (self._reader, *self._threads):
            thread.start()

    @property
    def connections(self) -> int:
        return len(self._connections)

    def stop(self, grace: float) -> None:
        """Accepts no more requests; the present ones have `grace` seconds."""
        self._stopping.set()
        self._wake()
        for _ in self._threads:
            self._requests.put(None)
        until = time.monotonic() + grace
        for thread in (self._reader, *self._threads):
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        for left in (self._listener, self._waker, self._woken):
            left.close()
        for connection in list(self._connections):
            connection.socket.close()

    # --- the thread that reads --------------------------------------------------------------

    def _read(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        looked_at = 0.0
        while not self._stopping.is_set():
            try:
                for key, _ in self._selector.select(_POLL_SECONDS):
                    self._dispatch(key.fileobj, key.data)
                self._resume_answered()
                now = time.monotonic()
                if now - looked_at >= _POLL_SECONDS:
                    looked_at = now
                    self._close_overdue(now)
            except Exception as error:
                log.error("web_failed", exc_info=error)
                self._stopping.wait(_POLL_SECONDS)  # too many files are open: try again
        self._selector.close()

    def _dispatch(self, what: object, connection: _Connection | None) -> None:
        if connection is not None:
            self._receive(connection)
        elif what is self._listener:
            self._accept()
        else:
            with suppress(BlockingIOError):
                self._woken.recv(4096)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._connections) >= self._connections_max and not self._evict():
                peer.close()
                self._count("crowded")
                continue
            caller = Caller(address[0], partial(_find_uid, peer, address))
            new = _Connection(peer, caller, time.monotonic() + self._request_seconds)
            self._connections[new] = None
            self._selector.register(peer, selectors.EVENT_READ, new)

    def _evict(self) -> bool:
        for connection in self._connections:
            if not connection.answered:
                self._close(connection)
                self._count("crowded")
                return True
        return False

    def _count(self, why: str) -> None:
        self.refused[why] = self.refused.get(why, 0) + 1

    def _receive(self, connection: _Connection) -> None:
        if connection not in self._connections:  # it was just closed in favour of another one
            return
        if connection.unsent:
            self._send_rest(connection)
            return
        try:
            data = connection.socket.recv(_BUFFER_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not (connection.buffer or connection.answered):
            connection.until = min(connection.until, time.monotonic() + self._request_seconds)
        connection.buffer += data
        too_much = len(connection.buffer) > 2 * _BUFFER_MAX
        if not data or too_much:
            self._selector.unregister(connection.socket)
            connection.ended = True
        if not connection.answered:
            self._parse(connection)

    def _parse(self, connection: _Connection) -> None:
        """Queues the request, if what has been read is one."""
        try:
            found = http11.parse_request(connection.buffer)
        except MalformedRequest as error:
            connection.closing = True
            self._count("malformed")
            self._send(connection, Reply(error.status, f"{error}\n"))
            self._close(connection)
            return
        if found is None:
            if connection.ended:
                self._close(connection)
            return
        request, size = found
        del connection.buffer[:size]
        connection.answered = True
        connection.closing = not request.keep_alive
        self._requests.put((connection, request))

    def _resume_answered(self) -> None:
        """Reads again from connections whose request has been answered."""
        while self._answered:
            connection = self._answered.popleft()
            connection.answered = False
            if connection.unsent:
                self._await(connection, selectors.EVENT_WRITE)
                connection.until = time.monotonic() + self._request_seconds
            else:
                self._resume(connection)

    def _resume(self, connection: _Connection) -> None:
        if connection.closing:
            self._close(connection)
            return
        wait = self._request_seconds if connection.buffer else self._idle_seconds
        connection.until = time.monotonic() + wait
        del self._connections[connection]
        self._connections[connection] = None
        self._parse(connection)

    def _send_rest(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.unsent)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
            return
        connection.unsent = connection.unsent[sent:]
        if not connection.unsent:
            self._await(connection, selectors.EVENT_READ)
            self._resume(connection)

    def _await(self, connection: _Connection, events: int) -> None:
        """From a connection that has ended nothing more is read."""
        if not connection.ended:
            self._selector.modify(connection.socket, events, connection)
        elif events == selectors.EVENT_WRITE:
            self._selector.register(connection.socket, events, connection)
        else:
            self._selector.unregister(connection.socket)

    def _close_overdue(self, now: float) -> None:
        for connection in list(self._connections):
            if now >= connection.until and not connection.answered:
                if connection.buffer and not connection.unsent:
                    self._send(
                        connection,
                        Reply(408, f"a request may take at most {self._request_seconds:g} s\n"),
                    )
                    self._count("slow")
                elif connection.unsent:
                    self._count("unread")
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if connection.unsent or not connection.ended:
            with suppress(KeyError):  # what was left of a refusal
                self._selector.unregister(connection.socket)
        connection.socket.close()
        del self._connections[connection]

    # --- the threads that answer ------------------------------------------------------------

    def _work(self) -> None:
        while (task := self._requests.get()) is not None:
            connection, request = task
            try:
                reply = self._answer(request, connection.caller)
            except Exception as error:
                log.error("request_failed", exc_info=error)
                words = f"{type(error).__name__}; the daemon's log has the details\n"
                reply = Reply(500, words)
            self._send(connection, reply, request.method == "HEAD")
            self._answered.append(connection)
            self._wake()

    def _send(self, connection: _Connection, reply: Reply, head_only: bool = False) -> None:
        data = http11.format_reply(reply, not connection.closing, head_only)
        try:
            sent = connection.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the client has left
            connection.closing = True
            return
        connection.unsent = memoryview(data)[sent:]

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._waker.send(b".")
