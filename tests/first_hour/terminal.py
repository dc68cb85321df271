"""A terminal with a shell in it, into which a test types like a person."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

PROMPT = "typed-here"
SHELL = ("bash", "--noprofile", "--norc", "--noediting", "-i")  # no echo but the kernel's
COLUMNS = 100
_DONE = re.compile(rf"\[(\d+)\]{PROMPT}[$#] $")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A shell of its own, in this folder. `enter` are words that lead to where it runs."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], enter: Sequence[str | Path] = ()
    ) -> None:
        self.seen = ""  # since the last line was typed
        self.transcript = ""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, COLUMNS))
        self._file = ours
        prompt = {"PS1": rf"[$?]{PROMPT}\$ ", "PS2": "", "TERM": "xterm"}
        variables = [f"{name}={value}" for name, value in {**environment, **prompt}.items()]
        into = ["env", "-i", f"--chdir={folder}", *variables, *SHELL]
        self._process = subprocess.Popen(
            [*enter, *into],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self.wait(lambda: _DONE.search(self.seen))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """As closing the window does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGHUP)
        os.close(self._file)
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def type(self, line: str) -> None:
        self.seen = ""
        os.write(self._file, f"{line}\n".encode())

    def run(self, line: str, seconds: float = 60.0) -> tuple[int, str]:
        """Types a line and waits for the next prompt. Returns the status and what was printed."""
        self.type(line)
        self.wait(lambda: _DONE.search(self.seen), seconds)
        done = _DONE.search(self.seen)
        assert done is not None
        return int(done[1]), self.printed(line)[: -len(done[0])]

    def printed(self, line: str) -> str:
        """What was printed after this typed line and its echo."""
        return self.seen.removeprefix(f"{line}\n")

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self._file, b"\x03")
        self.wait(lambda: _DONE.search(self.seen))

    def wait(self, true: Callable[[], object], seconds: float = 60.0) -> None:
        """Until this is so of what was printed."""
        until = time.monotonic() + seconds
        while not true():
            left = until - time.monotonic()
            ready, _, _ = select.select([self._file], [], [], max(0.0, left))
            assert ready, f"it was not printed within {seconds:.0f} s:\n{self.transcript}"
            self._read()

    def _read(self) -> None:
        try:
            content = os.read(self._file, 65536)
        except OSError:  # the shell has ended
            content = b""
        assert content, f"the shell has ended:\n{self.transcript}"
        text = _ESCAPES.sub("", content.decode(errors="replace").replace("\r\n", "\n"))
        self.seen += text
        self.transcript += text


def _take_terminal() -> None:
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
