"""How many connections there may be, and which ones are closed when there are too many.

grpc keeps every connection, and each costs a file descriptor and memory. With no descriptor left
the daemon could start no job and answer nobody. So a thread looks at the connections now and then
and closes those beyond a limit: first those of the peer that has most of them, and of these the one
that has been silent longest. A client whose connection was closed connects again.

A caller may also send many calls, leave, and connect again at once. grpc would answer all of them
first, and that takes far longer than to send them. So what such callers have sent is discarded.

grpc does not give its sockets away. They are found among the descriptors of this process.
"""

from __future__ import annotations

import os
import resource
import socket
import stat
import struct
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from scheduler.api.peer_names import PeerNames

CONNECTIONS_MAX = 8_000
PEER_MAX = 4_000
_PEERS_SHARE = 3 / 4  # of all connections, if there may be few
_FEW = 200  # descriptors, with which nothing is done
_LOOK_SECONDS = 0.1
_LOOK_SHARE = 0.5  # of the time, at most
_LEFT = (7, 8)  # TCP_CLOSE and TCP_CLOSE_WAIT, in struct tcp_info: the caller has closed it
_DISCARD_BYTES = 2**24
_SAY_SECONDS = 60.0
_DESCRIPTORS = "/proc/self/fd"
_SILENCE = struct.Struct("=52xI")  # tcpi_last_data_recv in struct tcp_info: milliseconds

log = structlog.get_logger("scheduler.api.connections")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    most: int
    most_of_peer: int

    @classmethod
    def by_descriptors(cls) -> ConnectionLimits:
        """Half of the descriptors that this process may have are for everything else."""
        most = min(CONNECTIONS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        return cls(most, min(PEER_MAX, int(most * _PEERS_SHARE)))


@dataclass(frozen=True, slots=True)
class _GrpcSocket:
    descriptor: int
    inode: int  # which tells whether the descriptor is still that of this connection
    peer: str


class Connections:
    def __init__(self, ports: Sequence[int], limits: ConnectionLimits) -> None:
        self._ports, self._limits = ports, limits
        self._names = PeerNames()
        self._names.ports = tuple(ports)
        self._known: dict[tuple[int, int], _GrpcSocket | None] = {}  # None: of something else
        self._closed: dict[str, int] = defaultdict(int)  # by peer, since it was last said
        self.closed_total = 0
        self._said_at = -_SAY_SECONDS
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="connections", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def close_excess(self) -> int:
        """Returns how many connections it closed. Discards what callers have sent who have left."""
        descriptors = [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208 - often
        if len(descriptors) <= min(_FEW, self._limits.most_of_peer):
            self._known.clear()
            return 0
        by_peer = defaultdict(list)
        for connection in self._find(descriptors):
            by_peer[connection.peer].append(connection)
        counts = {peer: len(found) for peer, found in by_peer.items()}
        closed = 0
        for peer, kept in allowed(counts, self._limits).items():
            if kept < counts[peer]:
                found = sorted(by_peer[peer], key=_silent_ms, reverse=True)
                closing = sum(map(_close, found[: counts[peer] - kept]))
                self._closed[peer] += closing
                closed += closing
        self.closed_total += closed
        self._say()
        return closed

    def _watch(self) -> None:
        pause = _LOOK_SECONDS
        while not self._stopped.wait(pause):
            began = time.monotonic()
            with suppress(OSError):  # there is no descriptor left: one will be closed
                self.close_excess()
            took = time.monotonic() - began
            pause = max(_LOOK_SECONDS, took / _LOOK_SHARE - took)

    def _find(self, descriptors: Sequence[int]) -> list[_GrpcSocket]:
        now: dict[tuple[int, int], _GrpcSocket | None] = {}
        for descriptor in descriptors:
            with suppress(OSError):  # it was closed meanwhile
                about = os.fstat(descriptor)
                if stat.S_ISSOCK(about.st_mode):
                    key = descriptor, about.st_ino
                    found = self._known[key] if key in self._known else self._look_at(*key)
                    now[key] = None if found and _discard_if_left(found) else found
        self._known = now
        self._names.forget()
        return [connection for connection in now.values() if connection]

    def _look_at(self, descriptor: int, inode: int) -> _GrpcSocket | None:
        with _socket(descriptor, inode) as found:
            if found.type != socket.SOCK_STREAM or found.family not in _FAMILIES:
                return None
            if found.getsockname()[1] not in self._ports:
                return None
            try:
                host, port = found.getpeername()[:2]
            except OSError:
                return None  # it listens
        return _GrpcSocket(
            descriptor, inode, self._names.name(f"{_FAMILIES[found.family]}:{host}:{port}")
        )

    def _say(self) -> None:
        now = time.monotonic()
        if self._closed and now - self._said_at >= _SAY_SECONDS:
            most = max(self._closed, key=lambda peer: self._closed[peer])
            log.warning(
                "connections_closed",
                number=sum(self._closed.values()),
                mostly_of=most,
                note="there were too many; the most silent ones were closed",
            )
            self._closed.clear()
            self._said_at = now


_FAMILIES: Mapping[int, str] = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}


def allowed(counts: Mapping[str, int], limits: ConnectionLimits) -> dict[str, int]:
    """Returns how many of its connections each peer keeps: all peers as many, if they have them."""
    levels = range(limits.most_of_peer + 1)
    level = bisect_right(levels, limits.most, key=lambda level: _total(counts, level)) - 1
    kept = {peer: min(count, level) for peer, count in counts.items()}
    if level < limits.most_of_peer:
        left = limits.most - sum(kept.values())
        for peer in [peer for peer, count in counts.items() if count > level][:left]:
            kept[peer] += 1
    return kept


def _total(counts: Mapping[str, int], level: int) -> int:
    return sum(min(count, level) for count in counts.values())


@contextmanager
def _socket(descriptor: int, inode: int) -> Iterator[socket.socket]:
    """A duplicate, so that grpc cannot close it meanwhile and another file get its number."""
    with socket.socket(fileno=os.dup(descriptor)) as found:
        if os.fstat(found.fileno()).st_ino != inode:
            raise OSError("the descriptor has become that of another file")
        yield found


def _silent_ms(connection: _GrpcSocket) -> int:
    with suppress(OSError, struct.error), _socket(connection.descriptor, connection.inode) as found:
        about = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SILENCE.size)
        silent: int = _SILENCE.unpack(about)[0]
        return silent
    return 0


def _discard_if_left(connection: _GrpcSocket) -> bool:
    """Returns whether the caller has closed the connection; then grpc finds nothing in it."""
    with suppress(OSError), _socket(connection.descriptor, connection.inode) as found:
        if found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _LEFT:
            while found.recv(_DISCARD_BYTES, socket.MSG_TRUNC | socket.MSG_DONTWAIT):
                pass
            return True
    return False


def _close(connection: _GrpcSocket) -> bool:
    with suppress(OSError), _socket(connection.descriptor, connection.inode) as found:
        found.shutdown(socket.SHUT_RDWR)
        return True
    return False
