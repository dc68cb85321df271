"""A program on a terminal of its own, which is typed on and read."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread


class Terminal:
    def __init__(
        self, words: Sequence[str | Path], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._keys, program = os.openpty()
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *words],
            env=environment,
            cwd=folder,
            stdin=program,
            stdout=program,
            stderr=program,
        )
        os.close(program)
        self.shown = b""  # all that was written to the screen
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def resize(self, lines: int, columns: int) -> None:
        """The window has another size now; the kernel tells the program."""
        size = struct.pack("4H", lines, columns, 0, 0)
        fcntl.ioctl(self._keys, termios.TIOCSWINSZ, size)

    def wait(self) -> int:
        """The exit code, when all that was written has been read."""
        exit_code = self.process.wait()
        self._reader.join()
        os.close(self._keys)
        return exit_code

    def _read(self) -> None:
        while True:
            try:
                shown = os.read(self._keys, 65536)
            except OSError:  # the program has ended
                return
            self.shown += shown
