"""Hints that something has changed here: a runner drops a datagram, or the daemon wakes itself.

A hint says nothing but "look again". Losing one costs time, never truth.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from scheduler.clusters.local import runner

GATHER_SECONDS = 0.02  # hints come in swarms: one look answers them all


class Hints:
    def __init__(self, folder: Path) -> None:
        self.ended = False
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth.setblocking(False)
        (folder / runner.HINTS).unlink(missing_ok=True)
        opened = os.open(folder, os.O_RDONLY)
        try:
            short = f"/proc/self/fd/{opened}/{runner.HINTS}"  # a socket's path has 108 bytes
            self._ear.bind(short)
            self._mouth.connect(short)
        finally:
            os.close(opened)

    def send(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: that is hint enough
            self._mouth.send(b"look")

    def wait(self, seconds: float) -> None:
        """Until a hint comes, and those that come with it; or for so long."""
        self._ear.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            self._ear.recv(16)
            self._ear.settimeout(GATHER_SECONDS)
            for _ in range(100):  # an unending swarm must not keep us from looking
                self._ear.recv(16)

    def end(self) -> None:
        self.ended = True
        self.send()

    def close(self) -> None:
        self._ear.close()
        self._mouth.close()
