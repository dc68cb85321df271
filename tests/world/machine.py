"""A worse machine for a process under test: world.c, built here, with a clock that can be set and a
slow disk."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("world.c")
WARNINGS = ("-Wall", "-Wextra", "-Werror")


class WorseMachine:
    def __init__(self, folder: Path, fsync_ms: int = 0) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no `cc` on this machine: it cannot be made worse")
        self._library, self._clock = folder / "world.so", folder / "clock"
        self._fsync_ms = fsync_ms
        subprocess.run(
            [compiler, "-O1", *WARNINGS, "-shared", "-fPIC", "-o", self._library, SOURCE],
            check=True,
        )
        self.set_clock(0.0)

    @property
    def environment(self) -> dict[str, str]:
        """For a process on this machine."""
        return {
            "LD_PRELOAD": str(self._library),
            "WORLD_CLOCK": str(self._clock),
            "WORLD_FSYNC_MS": str(self._fsync_ms),
        }

    def set_clock(self, ahead_seconds: float) -> None:
        """At once, for all processes on this machine; monotonic clocks do not notice."""
        mode = "r+b" if self._clock.exists() else "wb"  # not truncated: it is mapped
        with self._clock.open(mode) as file:
            file.write(struct.pack("d", ahead_seconds))
