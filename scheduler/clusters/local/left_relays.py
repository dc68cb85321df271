"""What relays leave behind, delivered later: of each run that had a relay there is a record.

A relay ends some minutes after its training, whether or not the gateway was there. Until everything
is delivered, its token remains that of its job. Relays take the rights of the job's user, so what
lies in that user's folders is looked at by a relay, never by the daemon.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import structlog

from scheduler.clusters.local.relay_start import ENVIRONMENT, PROGRAM, bind
from scheduler.core.model import JobId, RunKey

EVERY_SECONDS = 60.0
AGAIN_SECONDS = 600.0  # after a relay that could not deliver everything
LINGER_SECONDS = 60.0
AT_ONCE_MAX = 4
KEPT_SECONDS = 7 * 86400.0
RECORD_BYTES_MAX = 2**16

log = structlog.get_logger("scheduler.clusters.local.left_relays")


@dataclass(slots=True)
class LeftRelay:
    key: RunKey
    token_hash: bytes
    settings: dict[str, Any]
    began_at: float
    next_at: float = 0.0
    process: subprocess.Popen[bytes] | None = None


class LeftRelays:
    """For any thread; one of them calls `deliver`."""

    def __init__(
        self, folder: Path, is_live: Callable[[RunKey], bool], reach: Mapping[str, str]
    ) -> None:
        """`folder`: with the records. `is_live`: whether a run is not over yet, so that it has a
        relay of its own. `reach`: the settings that name the gateway; empty: there is none."""
        self._folder, self._is_live, self._reach = folder, is_live, reach
        self._lock = threading.Lock()
        self._known: dict[str, LeftRelay | None] = {}  # by name; None: it is damaged
        self._seen = -1  # when the folder was changed

    def job(self, token: str) -> JobId | None:
        """Of a token of a job that has a record."""
        wanted = _hash(token)
        with self._lock:
            self._look()
            found = (each for each in self._known.values() if each and each.token_hash == wanted)
            return next((each.key[0] for each in found), None)

    def deliver(self, stop: Event) -> None:
        """Starts relays for what is left, and removes the records of those that had it all."""
        with self._lock:
            self._look()
            known = {name: each for name, each in self._known.items() if each}
        now = time.time()
        for name, each in known.items():
            if stop.is_set():
                return
            if each.process:
                self._reap(name, each, now)
            elif now - each.began_at > KEPT_SECONDS:
                log.warning("not_delivered", job_id=each.key[0], attempt=each.key[1])
                self._remove(name)
        running = sum(each.process is not None for each in known.values())
        for each in known.values():
            if not self._reach or running >= AT_ONCE_MAX:
                return
            if each.process is None and each.next_at <= now and not self._is_live(each.key):
                each.next_at = now + AGAIN_SECONDS
                running += self._start(each)

    def stop(self) -> None:
        """What they had not delivered stays where it is."""
        with self._lock:
            started = [each.process for each in self._known.values() if each and each.process]
        for process in started:
            process.terminate()
            process.wait()

    # --- records --------------------------------------------------------------------------------

    def _look(self) -> None:
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed == self._seen:
                return
            names = {path.name for path in self._folder.iterdir() if path.suffix == ".json"}
        except OSError:
            return
        for gone in self._known.keys() - names:
            if not ((left := self._known[gone]) and left.process):
                del self._known[gone]
        for name in names - self._known.keys():
            self._known[name] = _read(self._folder / name)
        if None not in self._known.values():  # it may be half written
            self._seen = changed

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    # --- relays ---------------------------------------------------------------------------------

    def _start(self, left: LeftRelay) -> bool:
        settings = {**left.settings, **self._reach, "linger_seconds": LINGER_SECONDS}
        text = json.dumps({**settings, "is_left": True}).encode() + b"\n"
        try:
            listener, datagrams = bind()
            with listener, datagrams:
                files = listener.fileno(), datagrams.fileno()
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", PROGRAM, *map(str, files)],
                    env=ENVIRONMENT,
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=files,
                    start_new_session=True,
                )
        except OSError:
            return False  # at another time
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin:
            process.stdin.write(text)
        left.process = process
        return True

    def _reap(self, name: str, left: LeftRelay, now: float) -> None:
        assert left.process is not None
        code = left.process.poll()
        if code is None:
            return
        left.process, left.next_at = None, now + AGAIN_SECONDS
        if code == 0:  # everything is delivered
            self._remove(name)


def _read(path: Path) -> LeftRelay | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with open(file, "rb") as reading:  # noqa: PTH123  # a descriptor
            settings = json.loads(reading.read(RECORD_BYTES_MAX))
            began_at = os.fstat(file).st_mtime
        key = JobId(str(settings["job_id"])), int(settings["attempt"])
        return LeftRelay(key, _hash(str(settings["token"])), settings, began_at)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
