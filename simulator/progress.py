"""The progress of a study and the time left: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TextIO

BAR_WIDTH = 24
LINE_EVERY_SECONDS = 10.0


class ProgressBar:
    def __init__(
        self,
        names: Sequence[str],
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names`: of the tasks, which are assumed to take equally long."""
        self._names, self._stream, self._clock = names, stream, clock
        self._shares = [0.0] * len(names)
        self._began = self._told_at = clock()
        self._moves = stream.isatty()

    def update(self, number: int, share: float) -> None:
        """Sets how much of a task is done, from 0 to 1."""
        self._shares[number] = max(share, self._shares[number])
        if self._moves:
            self._stream.write(f"\r{self._line()[: _columns(self._stream) - 1]}\x1b[K")
            self._stream.flush()
        elif share == 1.0 or self._clock() - self._told_at >= LINE_EVERY_SECONDS:
            self._told_at = self._clock()
            self._stream.write(f"{self._line()}\n")
            self._stream.flush()

    def clear(self) -> None:
        if self._moves:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self) -> str:
        done = sum(self._shares) / len(self._shares)
        over = sum(share == 1.0 for share in self._shares)
        at_work = [n for n, s in zip(self._names, self._shares, strict=True) if 0.0 < s < 1.0]
        filled = int(done * BAR_WIDTH)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        words = [f"[{bar}] {done:4.0%}", f"{over} of {len(self._shares)}"]
        if 0.0 < done < 1.0:
            elapsed = self._clock() - self._began
            words.append(f"{_clock_time(elapsed * (1.0 - done) / done)} left")
        return ", ".join([*words, *at_work])


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:  # it claims to be a terminal but is not
        return 80
