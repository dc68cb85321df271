"""A reader of README, who types its lines one after the other and compares what is shown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from tests.first_hour.document import Line
from tests.first_hour.terminal import Terminal

LOOKS = ("scheduler-state", "scheduler-get-logs")  # what they show may be so a little later
SERVER = "scheduler-daemon"  # goes on until it is stopped: the next lines need a second terminal
LOOK_SECONDS = 60.0
LONG_SECONDS = 900.0
NOT_FOUND = 127


class Reader:
    """Types lines into a terminal. What stays (`export`) is typed into each later one as well."""

    def __init__(self, open_terminal: Callable[[], Terminal], skipped: Mapping[str, str]) -> None:
        """`skipped`: lines that are not typed, and why."""
        self._open_terminal, self._skipped = open_terminal, skipped
        self._exported: list[str] = []
        self._stack = ExitStack()
        self.terminal = self._stack.enter_context(open_terminal())
        self.servers: list[Terminal] = []
        self.wrong: list[str] = []  # what is not as README shows it
        self.seconds: dict[str, float] = {}  # that each line took

    def close(self) -> None:
        for server in self.servers:
            server.interrupt()
        self._stack.close()

    def read(self, lines: Sequence[Line]) -> None:
        for block in dict.fromkeys(line.block for line in lines):
            self._read_block([line for line in lines if line.block == block])

    def _read_block(self, lines: Sequence[Line]) -> None:
        missing, worked = [], False
        for line in lines:
            began = time.monotonic()
            if line.typed.partition("#")[0].strip() in self._skipped:
                worked = True
            elif line.program == SERVER:
                self._start_server(line)
            elif line.kind == "console":
                self._compare(line)
            else:
                status, printed = self.terminal.run(line.typed, LONG_SECONDS)
                if status == NOT_FOUND:
                    missing.append(printed)  # of several ways, one is enough
                elif status != 0:
                    self.wrong.append(f"$ {line.typed}\n{printed}\nended with {status}")
                else:
                    worked = True
                    if line.program == "export":
                        self._exported.append(line.typed)
            self.seconds[line.typed] = time.monotonic() - began
        if missing and not worked:
            self.wrong += missing

    def _start_server(self, line: Line) -> None:
        server = self.terminal
        server.type(line.typed)
        try:
            server.wait(lambda: line.is_shown_in(server.printed(line.typed)))
        except AssertionError:
            self.wrong.append(f"$ {line.typed}\n{server.printed(line.typed)}")
        self.servers.append(server)
        self.terminal = self._stack.enter_context(self._open_terminal())
        for exported in self._exported:
            self.terminal.run(exported)

    def _compare(self, line: Line) -> None:
        until = time.monotonic() + LOOK_SECONDS
        status, printed = self.terminal.run(line.typed)
        while line.program in LOOKS and not line.is_shown_in(printed) and time.monotonic() < until:
            status, printed = self.terminal.run(line.typed)
        if status != 0 or not line.is_shown_in(printed):
            self.wrong.append(f"$ {line.typed}\n{printed}\ninstead of\n{line.shown}")

    def finish_own_job(self, lines: Sequence[Line], epochs: int = 2) -> None:
        """Submits README's job once more, with few epochs, and waits until it is FINISHED."""
        (submission,) = [line.typed for line in lines if line.program == "run-scheduler"]
        short = re.sub(r"--max_epochs \d+", f"--max_epochs {epochs}", submission)
        waiting = short.replace("run-scheduler", "run-scheduler --wait", 1)
        status, printed = self.terminal.run(f"{waiting}2")  # another name
        assert status == 0, printed
