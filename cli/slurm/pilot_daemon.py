"""The daemon of a pilot: its process, and its database, which moves from pilot to pilot.

The database is on the node's own disk: SQLite needs locks that shared file systems do not promise.
A copy of it, whole or not at all, is on the shared one. What is neither large nor locked is there
itself: logs, and secrets of jobs.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cli.client import Client

DATABASE = "scheduler.db"
COPY = "state.db"
SHARED = ("logs", "secrets")
START_SECONDS = 120.0  # a shared file system may be slow to tell Python its modules
STOP_SECONDS = 10.0
_PROGRAM = "from scheduler.daemon.command import main; raise SystemExit(main())"
_SETTINGS = {
    "SCHEDULER_GATEWAY__LISTEN": "off",
    "SCHEDULER_METRICS__LISTEN": "off",
    "SCHEDULER_HOUSEKEEPING__DISK_RESERVE": "64",  # of the node's disk: its database is small
    "SCHEDULER_HOUSEKEEPING__JOURNAL_KEPT_DAYS": "0",  # the database is copied again and again
}


class DaemonError(Exception):
    """It does not start. The text is one line, for the user."""


class PilotDaemon:
    def __init__(self, state: Path, shared: Path, gpus: str) -> None:
        """`state`: a folder of the node's; `shared`: the pilots' folder; `gpus`: as the flag."""
        self._state, self._shared, self._gpus = state / "daemon", shared, gpus
        self._log = shared / "daemon.log"
        self._process: subprocess.Popen[str] | None = None
        self._copy_at = 0.0

    def start(self) -> Client:
        """Its trainings go on if there was one before, here. Raises DaemonError."""
        self._state.mkdir(mode=0o700, exist_ok=True)
        end_processes(self._state, "--state_dir", signal.SIGTERM)
        for name in SHARED:
            if not (self._state / name).is_symlink():
                (self._state / name).symlink_to(self._shared / name)
        self._restore()
        if self._log.exists():
            self._log.replace(self._log.with_suffix(".log.1"))
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _PROGRAM, "--state_dir", str(self._state)),
                    *("--gpus", self._gpus, "--listen", "127.0.0.1:0"),
                ],
                env={**_SETTINGS, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        began, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline() if began else ""
        word, _, address = line.strip().partition(" ")
        if word != "ready":
            self._process.kill()
            self._process.wait()
            raise DaemonError(self._last_words())
        return Client(address)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Its trainings go on."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def end_all(self) -> None:
        """Kills it and its trainings, at once: their jobs are another pilot's now."""
        end_processes(self._state, "", signal.SIGKILL)

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        told = next((line for line in reversed(lines) if line), "")
        return told.removeprefix("-c: ").removeprefix("scheduler-daemon: ") or "it said nothing"

    # --- its database ---------------------------------------------------------------------------

    def may_copy(self) -> bool:
        """Copies take at most a twentieth of the time."""
        return time.monotonic() >= self._copy_at

    def copy(self) -> None:
        """Raises OSError or sqlite3.Error: then the copy before it stays."""
        began_at = time.monotonic()
        own = self._state / COPY
        own.unlink(missing_ok=True)
        with (
            contextlib.closing(
                sqlite3.connect(f"file:{self._state / DATABASE}?mode=ro", uri=True)
            ) as db,
            contextlib.closing(sqlite3.connect(own)) as copied,
        ):
            db.backup(copied)
        _copy(own, self._shared / COPY)
        self._copy_at = time.monotonic() + 20 * (time.monotonic() - began_at)

    def _restore(self) -> None:
        database, copied = self._state / DATABASE, self._shared / COPY
        if not database.exists() and copied.exists():
            _copy(copied, database)


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}")
    with source.open("rb") as given, part.open("wb") as taken:
        part.chmod(0o600)
        shutil.copyfileobj(given, taken, 2**20)
        taken.flush()
        os.fsync(taken.fileno())
    part.replace(target)


def end_processes(state: Path, flag: str, number: int) -> None:
    """Those whose command names the folder, or with `flag` only those that have it so; waits until
    they are gone."""
    until = time.monotonic() + STOP_SECONDS
    while found := list(_processes(os.fsencode(state), flag.encode())):
        last = time.monotonic() > until
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if last else number)
        time.sleep(0.05)


def _processes(state: bytes, flag: bytes) -> Mapping[int, bytes]:
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_dead = b") Z" in (process / "stat").read_bytes()
        except OSError:
            continue
        named = [
            at for at, word in enumerate(words) if word == state or word.startswith(state + b"/")
        ]
        if flag:
            named = [at for at in named if at and words[at - 1] == flag]
        if named and not is_dead and int(process.name) != os.getpid():
            found[int(process.name)] = b" ".join(words)
    return found
