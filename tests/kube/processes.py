"""A program that a test runs beside itself: it can be restarted, and is never left behind.

The kernel ends it when the test run ends, however that ends (PR_SET_PDEATHSIG). It does so when the
*thread* that started it ends; that is why one thread, which lives as long as this process, starts
them all.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STOP_SECONDS = 20.0
# If the run ends before the request to the kernel, nothing would end the program.
GUARDED = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", 'test "$PPID" = "$0" && exec "$@"')
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


class Process:
    """One program with its arguments and its log, and at most one process at a time."""

    def __init__(self, name: str, words: Sequence[str | Path], log: Path) -> None:
        self.name, self.log = name, log
        self._words = words
        self._life: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._life is not None, f"{self.name} was never started"
        return self._life.pid

    @property
    def alive(self) -> bool:
        return self._life is not None and self._life.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of its last process; None while that runs."""
        return None if self._life is None else self._life.poll()

    def start(self) -> None:
        """Starts it. The caller has to check whether it serves already."""
        if not self.alive:
            self._life = _starter.submit(self._spawn).result()

    def stop(self) -> None:
        """Asks it to end, and kills it if it does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it, like a power cut."""
        self._end(signal.SIGKILL)

    def check(self) -> None:
        """Fails at once, with the end of its log, if it does not run any more."""
        if not self.alive:
            raise AssertionError(
                f"{self.name} has ended; the end of {self.log}:\n{self.last_lines()}"
            )

    def last_lines(self, lines: int = 15) -> str:
        told = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(told.splitlines()[-lines:])

    def _spawn(self) -> subprocess.Popen[bytes]:
        # In a session of its own, so that Ctrl-C reaches the test first.
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*GUARDED, str(os.getpid()), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, with_signal: signal.Signals) -> None:
        if self._life is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._life.pid, with_signal)
        try:
            self._life.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._life.kill()
            self._life.wait()


def free_port() -> int:
    """A port below those that the kernel assigns by itself, so that a restart finds it free.

    No other process gets it while this one lives: several workers and several runs are active at
    once, and the caller may listen there much later.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket(socket.AF_UNIX) as claim, socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                claim.bind(f"\0epoch-scheduler-tests-{port}")  # no file: it ends with its process
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            claim.detach()
            return port
