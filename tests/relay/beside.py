"""A relay as a process, without a training."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from scheduler.clusters.local.relay_start import bind, spawn
from tests.relay.receiver import TOKEN, Receiver


class Beside:
    """The test is the training and its runner."""

    def __init__(self, folder: Path, gateway: str, **settings: Any) -> None:
        self._settings = {
            "job_id": "job",
            "attempt": 1,
            "token": TOKEN,
            "gateway": gateway,
            "folder": str(folder),
            **settings,
        }
        self.sockets = bind()
        self.port = self.sockets[0].getsockname()[1]
        self.pid = self._leash = -1

    def start(self) -> None:
        reading, self._leash = os.pipe()
        os.write(self._leash, json.dumps(self._settings).encode() + b"\n")
        self.pid = spawn(reading, *(each.fileno() for each in self.sockets))
        os.close(reading)

    def write(self, lines: str) -> None:
        url = f"http://127.0.0.1:{self.port}/write"
        with urlopen(Request(url, lines.encode(), method="POST")) as reply:
            assert reply.status == 204

    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def end_training(self) -> int:
        """Returns how the relay ended."""
        os.close(self._leash)
        self._leash = -1
        return self._reap()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._reap()
        os.close(self._leash)
        self._leash = -1

    def close(self) -> None:
        if self._leash >= 0:
            self.kill()
        for each in self.sockets:
            each.close()

    def _reap(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@contextmanager
def receiving(folder: Path) -> Iterator[Receiver]:
    made = Receiver(folder).start()
    yield made
    made.kill()


@contextmanager
def hearing(folder: Path, receiver: Receiver) -> Iterator[Beside]:
    """A relay that can hear, but is not started yet."""
    made = Beside(folder / "job" / "1", receiver.url, linger_seconds=60.0)
    yield made
    made.close()
