"""Connections to ports of runs on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduler.core.errors import Impossible

CONNECT_SECONDS = 5.0
LOOPBACK = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")
ESTABLISHED = "01"
LIBC = ctypes.CDLL(None)


def is_connected(port: int) -> bool:
    """Whether a server of this machine has a connection to this port now."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            local, _, state = row.split()[1:4]
            if state == ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


class PortVisit:
    """A TCP connection."""

    errors = None

    def __init__(self, port: int, uid: int | None) -> None:
        """`uid`: of the job's user, if that is another one than ours: a server here may ask the
        kernel whose connection it is, and must not be told that it is root's."""
        self._socket = _connect(port, uid)
        self.input = self.output = self._socket.fileno()
        self.end = None

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def _connect(port: int, uid: int | None) -> socket.socket:
    why: OSError | None = None
    for family, address in LOOPBACK:
        with _files_of(uid):
            made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.settimeout(CONNECT_SECONDS)
            made.connect((address, port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setblocking(False)
        except OSError as error:
            why = why or error
            made.close()
        else:
            return made
    raise Impossible(f"port {port}: {why and why.strerror}: the job does not listen there")


@contextmanager
def _files_of(uid: int | None) -> Iterator[None]:
    """What this thread makes meanwhile is the user's. Other threads do not change: setfsuid(2)."""
    if uid is None:
        yield
        return
    LIBC.setfsuid(uid)
    try:
        if LIBC.setfsuid(-1) != uid:
            raise Impossible("this daemon may not connect as the job's user")
        yield
    finally:
        LIBC.setfsuid(os.geteuid())
