"""Shells and commands beside runs on this machine.

Each is started by a process of its own (shell_process.py), which ends it when this process
closes its end of a socket, or is killed. What passes through is read and written by the caller, so
a visit has descriptors that do not block, and no thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scheduler.clusters.local import shell_process
from scheduler.core.errors import Busy
from scheduler.core.model import RunKey

TELL_SECONDS = 5.0

Size = tuple[int, int]  # lines and columns


class _Told(msgspec.Struct):
    """How a command ended; the exit code is negative for a signal."""

    exit_code: int
    failed: str = ""  # why it could not be started


class ShellVisit:
    """A shell or command. `close` is for any thread; the rest for one at a time."""

    def __init__(
        self, folder: Path, command: Sequence[str], terminal: Size | None, term: str
    ) -> None:
        """`folder`: of the run."""
        self._lock = threading.Lock()
        self._files: set[int] = set()
        theirs: list[int] = []
        mine, wire = socket.socketpair()
        self._control = mine
        try:
            theirs.append(wire.detach())
            self.input, self.output, self.errors = self._open(theirs, terminal is not None)
            files = (theirs[1:] * 3)[:3]  # of a terminal, one for all
            self.process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-I",
                        "-S",
                        "-X",
                        "utf8",
                        shell_process.__file__,
                        str(folder),
                    ),
                    *map(str, (theirs[0], *files)),
                ],
                pass_fds=theirs,
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            asked = {"command": [*command], "terminal": terminal, "term": term}
            mine.settimeout(TELL_SECONDS)
            mine.sendall(json.dumps(asked).encode() + b"\n")
            mine.setblocking(False)
        except OSError as error:
            self.close()
            raise Busy(f"nothing can be started now: {error.strerror}: try again") from error
        finally:
            for number in theirs:
                os.close(number)

    def _open(self, theirs: list[int], terminal: bool) -> tuple[int, int, int | None]:
        if terminal:
            screen, program = os.openpty()
            theirs.append(program)
            return self._own(screen), screen, None
        ends = []
        for is_input in (True, False, False):
            read, write = os.pipe()
            theirs.append(read if is_input else write)
            ends.append(self._own(write if is_input else read))
        return ends[0], ends[1], ends[2]

    def _own(self, number: int) -> int:
        self._files.add(number)
        os.set_blocking(number, False)
        return number

    @property
    def end(self) -> int:
        """The descriptor that is readable when it has ended."""
        return self._control.fileno()

    def told(self) -> tuple[int, str] | None:
        """Its exit code, and why it could not be started. None: its run has ended, or the process
        that started it was killed."""
        try:
            told = msgspec.json.decode(self._control.recv(65536), type=_Told)
        except (OSError, msgspec.MsgspecError):
            return None
        return told.exit_code, told.failed

    def signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(bytes([number]))

    def resize(self, size: Size) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def end_input(self) -> None:
        """The user of a terminal types ^D instead."""
        if self.errors is not None:
            self._close(self.input)

    def close(self) -> None:
        """Ends it, if it has not ended."""
        for number in [*self._files]:
            self._close(number)
        self._control.close()

    def _close(self, number: int) -> None:
        with self._lock:
            if number in self._files:
                self._files.remove(number)
                os.close(number)


class Shells:
    """The shells and commands that this daemon has started. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[subprocess.Popen[bytes], RunKey] = {}

    def open(
        self, key: RunKey, folder: Path, command: Sequence[str], terminal: Size | None, term: str
    ) -> ShellVisit:
        made = ShellVisit(folder, command, terminal, term)
        with self._lock:
            self._open[made.process] = key
        return made

    def keepers(self) -> dict[int, RunKey]:
        """The processes above what visits have started; those that have ended are forgotten."""
        with self._lock:
            self._open = {each: key for each, key in self._open.items() if each.poll() is None}
            return {each.pid: key for each, key in self._open.items()}
