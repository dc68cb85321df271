"""Artifacts: their bytes are files in a folder for each job, called by their SHA-256; which path is
which file is in the database.

A file is whole, and on disk, before its name is there. What is replaced is removed when no path of
its job has it any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import tempfile
from pathlib import Path

from scheduler.gateway.series.limits import SeriesLimits
from scheduler.relay.entries import BadEntry, shown

NAME = "artifacts"
_JOB = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*", re.ASCII)
_HALF = ".half-"


class ArtifactFiles:
    """`keep` and `remove_unused` are called by the thread that writes, within its transaction."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, limits: SeriesLimits) -> None:
        self._folder, self._connection, self._limits = folder / NAME, connection, limits
        with contextlib.suppress(OSError):  # else it is said when one is received
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for half in self._folder.glob(f"*/{_HALF}*"):
                half.unlink()  # the gateway was killed

    def receive(self, job: str) -> HalfArtifact:
        """Raises OSError."""
        folder = self._of(job)
        folder.mkdir(mode=0o700, exist_ok=True)
        return HalfArtifact(folder)

    def file(self, job: str, sha256: str) -> Path:
        return self._of(job) / sha256

    def keep(self, job: str, path: str, half: HalfArtifact, now: float) -> None:
        """Raises BadEntry if the job has too many, OSError."""
        count, size = self._connection.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM artifacts WHERE job = ? AND path != ?",
            (job, path),
        ).fetchone()
        if count >= self._limits.artifacts:
            raise BadEntry(f"this job has {self._limits.artifacts} artifacts: no more are kept")
        if size + half.size > self._limits.artifacts_bytes:
            raise BadEntry(
                f"artifact {shown(path)}: with it, this job would have more than "
                f"{self._limits.artifacts_bytes} bytes of artifacts"
            )
        half.place()
        self._connection.execute(
            "INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)",
            (job, path, half.size, half.sha256, now),
        )

    def remove_unused(self, job: str) -> None:
        rows = self._connection.execute("SELECT sha256 FROM artifacts WHERE job = ?", (job,))
        used = {sha256 for (sha256,) in rows}
        with contextlib.suppress(OSError):
            for file in self._of(job).iterdir():
                if not file.name.startswith(_HALF) and file.name not in used:
                    file.unlink()

    def _of(self, job: str) -> Path:
        if not _JOB.fullmatch(job):
            raise ValueError(f"{job!a} is no id of a job")
        return self._folder / job


class HalfArtifact:
    """One that is being received: `write`, `finish`, and `place`, or at any time `discard`."""

    def __init__(self, folder: Path) -> None:
        number, name = tempfile.mkstemp(prefix=_HALF, dir=folder)
        self._file, self._name = os.fdopen(number, "wb"), Path(name)
        self._digest, self.size = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, content: bytes) -> None:
        """Raises OSError."""
        self._file.write(content)
        self._digest.update(content)
        self.size += len(content)

    def finish(self) -> None:
        """It is on disk then. Raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def place(self) -> None:
        """Raises OSError."""
        self._name.rename(self._name.with_name(self.sha256))
        folder = os.open(self._name.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._name.unlink()
