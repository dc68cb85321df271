"""Moving output on a terminal: a line that is overwritten, a screen that is redrawn."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from scheduler.presentation.render import Screen, cut, printable

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the alternate screen, no cursor
_HOME, _REST, _LINE = "\x1b[H", "\x1b[J", "\x1b[K"


def screen(stream: TextIO) -> Screen:
    """What this stream can show. Lines are cut only on a terminal; a pipe gets them whole."""
    terminal = stream.isatty()
    sized = terminal or "COLUMNS" in os.environ
    return Screen(
        width=size(stream)[0] if sized else None,
        colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        blocks="utf" in (stream.encoding or "").lower(),
    )


def size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines, like shutil.get_terminal_size, whose import would take 8 ms."""
    columns, lines = (_number(os.environ.get(name, "")) for name in ("COLUMNS", "LINES"))
    try:
        found = os.get_terminal_size(stream.fileno())
    except OSError:  # no terminal
        found = os.terminal_size((0, 0))
    return columns or found.columns or 80, lines or found.lines or 24


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


class ProgressLine:
    """One line, always the newest. Writes nothing if the stream is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if stream.isatty() else None

    def draw(self, line: str) -> None:
        if self._stream:
            columns = size(self._stream)[0] - 1
            self._stream.write(f"\r{cut(printable(line), columns)}{_LINE}")
            self._stream.flush()

    def clear(self) -> None:
        self.draw("")


class Page:
    """Draws whole pages: on a terminal each replaces the last one, else it follows it."""

    def __init__(self, stream: TextIO, moving: bool) -> None:
        self._stream, self._moving = stream, moving

    def draw(self, lines: Sequence[str]) -> None:
        if self._moving:
            room = size(self._stream)[1] - 1
            body = "".join(f"{line}{_LINE}\n" for line in lines[:room])
            self._stream.write(f"{_HOME}{body}{_REST}")
        else:
            self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()


@contextmanager
def page(moving: bool) -> Iterator[Page]:
    """`moving`: uses the alternate screen, and leaves it again however the block ends."""
    if moving:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        sys.stdout.write(_ENTER)
    try:
        yield Page(sys.stdout, moving)
    finally:
        if moving:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()
