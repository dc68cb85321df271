"""Hints that something has changed here: a runner sends a datagram, or the daemon wakes itself.

A hint means only "observe again". A lost hint delays an observation, and never makes one wrong.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from scheduler.clusters.local import runner

GATHER_SECONDS = 0.02  # hints come in bursts: one observation answers them all


class Hints:
    def __init__(self, folder: Path) -> None:
        self.ended = False
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth.setblocking(False)
        (folder / runner.HINTS).unlink(missing_ok=True)
        opened = os.open(folder, os.O_RDONLY)
        try:
            # The path of a socket has at most 108 bytes.
            short = f"/proc/self/fd/{opened}/{runner.HINTS}"
            self._ear.bind(short)
            self._mouth.connect(short)
        finally:
            os.close(opened)

    def send(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: enough hints wait there
            self._mouth.send(b"look")

    def wait(self, seconds: float) -> None:
        """Waits until a hint comes, with those right after it, or for `seconds`."""
        self._ear.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            self._ear.recv(16)
            self._ear.settimeout(GATHER_SECONDS)
            for _ in range(100):  # an endless burst must not prevent an observation
                self._ear.recv(16)

    def end(self) -> None:
        self.ended = True
        self.send()

    def close(self) -> None:
        self._ear.close()
        self._mouth.close()
