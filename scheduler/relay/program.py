"""The parts of a relay, its loop, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scheduler.relay.answers import Answers
from scheduler.relay.artifacts import ArtifactDelivery, Outbox
from scheduler.relay.delivery import Delivery, DeliveryThread, Link
from scheduler.relay.hearing import Ears
from scheduler.relay.http import Incoming, Response
from scheduler.relay.mlflow_runs import LoggedRuns
from scheduler.relay.spool import Spool, take_lock
from scheduler.relay.watching import Watching

SPOOLS, SAID, MLFLOW = "spools", "relay.log", "mlflow.json"
OUTBOX, LOCK = "outbox", "relay.lock"
SAID_BYTES_MAX = 256 * 1024
LOOK_SECONDS = 1.0  # between two looks at the watched files
QUIET_SECONDS = 0.3  # after the training: what it sent last has arrived


class Settings(NamedTuple):
    job_id: str
    attempt: int
    token: str
    gateway: str  # its URL
    folder: str  # of this attempt: its spools, and what the training writes for us
    certificate: str = ""
    uid: int | None = None  # None: we already have the rights of the job's user
    gid: int | None = None
    user: str = ""
    experiment: str = ""
    spool_bytes_max: int = 256 * 2**20
    linger_seconds: float = 300.0
    folders: Sequence[str] = ()  # what the training writes there for TensorBoard or wandb is read
    resumed: bool = False  # it goes on with epochs that are done
    is_left: bool = False  # its training ended long ago: only what is left is delivered


def take_rights(settings: Settings) -> None:
    if settings.uid is not None and settings.gid is not None:
        os.initgroups(settings.user, settings.gid)
        os.setgid(settings.gid)
        os.setuid(settings.uid)


def live(settings: Settings, listener: int, datagrams: int, end: int) -> int:
    """Returns the exit code: 0 if everything is delivered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path(settings.folder)
    if settings.is_left and not folder.is_dir():
        return 0
    lock = take_lock(folder / LOCK)  # held until this process ends
    if settings.is_left and lock < 0:
        return 1  # another one is at it
    relay = Relay(settings)
    ears = Ears(
        socket.socket(fileno=listener),
        socket.socket(fileno=datagrams),
        end,
        relay.answer,
        relay.answers.open_file,
        relay.answers.take_lines,
        relay.spool.lose,
        relay.take_word,
    )
    relay.hear(ears)
    return 0 if relay.finish() else 1


class Relay:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._folder = Path(settings.folder)
        self._say = Said(self._folder / SAID)
        self._link = Link(settings.gateway, settings.token, settings.certificate)
        name = f"{time.time_ns():019d}-{os.getpid()}"
        self.spool = Spool(self._folder / SPOOLS / name, settings.spool_bytes_max)
        now_ms = time.time_ns() // 1_000_000
        kept = self._folder.parent / MLFLOW
        self._runs = LoggedRuns(
            kept, settings.job_id, settings.attempt, settings.experiment, now_ms
        )
        outbox = self._outbox = Outbox(self._folder / OUTBOX, settings.spool_bytes_max)
        self.answers = Answers(
            self._add, self.spool.lose, time.time_ns, self._runs, settings.token, outbox
        )
        self._watching = Watching(
            self._folder.parent,
            settings.attempt,
            settings.resumed,
            settings.folders,
            self.spool,
            self._say,
        )
        self._words = b""  # of the runner, without the end of the last line
        self._thread = DeliveryThread(
            [
                ArtifactDelivery(outbox, self._link, settings.attempt, self._add, self._say),
                self._delivery(self.spool, settings.attempt),
            ],
            [*self._find_left()],
            self._say,
        )

    def hear(self, ears: Ears) -> None:
        """Until the training has ended, nothing more arrives, and its files are read."""
        self._thread.start()
        quiet_since, read_until = time.monotonic(), float("inf")
        while time.monotonic() - quiet_since < QUIET_SECONDS or not ears.ended:
            patience = QUIET_SECONDS if ears.ended else LOOK_SECONDS
            if ears.listen(0 if self._read_files() else patience):
                quiet_since = time.monotonic()
            if ears.ended and read_until == float("inf"):
                self._watching.look_again()
                read_until = time.monotonic() + self.settings.linger_seconds
            if self._watching.unread and time.monotonic() < read_until:
                quiet_since = time.monotonic()
            ears.hang_up_idle()
            if not self.settings.is_left:  # a later relay of the job may have its own
                self._runs.save()
        ears.close()
        if not self.settings.is_left:
            self._runs.save_all()
        self._watching.close()

    def _read_files(self) -> bool:
        """Returns whether there is more."""
        try:
            more = self._watching.step()
        except Exception as error:  # noqa: BLE001  # a bug of ours: the relay goes on
            self._say(f"a bug: {error!r}")
            return False
        if more or self.spool.waiting():
            self._thread.wake()
        return more

    def take_word(self, word: bytes) -> None:
        """The runner names files that the training has open: a path in each line, as JSON."""
        *lines, self._words = (self._words + word).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                self._watching.name(str(json.loads(line)))

    def finish(self) -> bool:
        """Delivers what is left. The rest is for a later relay. Returns whether there is none."""
        self.spool.sync()
        self._thread.finish(self.settings.linger_seconds)
        left = self.spool.waiting()
        if left:
            self._say(f"{left} entries are left for later")
        self.spool.clear()
        return not (left or self._watching.unread or self._outbox.waiting() or self._thread.left)

    def _find_left(self) -> Iterator[Delivery]:
        """What earlier relays of this job have left, the oldest first."""
        for folder in sorted(self._folder.parent.glob(f"*/{SPOOLS}/*"), key=lambda path: path.name):
            if folder != self.spool.folder and folder.parts[-3].isdigit() and folder.is_dir():
                spool = Spool(folder, self.settings.spool_bytes_max)
                if spool.is_ours:
                    yield self._delivery(spool, int(folder.parts[-3]))

    def _delivery(self, spool: Spool, attempt: int) -> Delivery:
        return Delivery(spool, self._link, attempt, spool.folder.name, self._say)

    def answer(self, request: Incoming) -> Response:
        try:
            return self.answers.answer(request)
        except Exception as error:  # noqa: BLE001  # a bug of ours: the relay goes on
            self._say(f"a bug: {request.method} {request.path}: {error!r}")
            return Response.json({"error": "a bug of the relay"}, 500)
        finally:
            self._thread.wake()

    def _add(self, entries: Sequence[bytes]) -> bool:
        added = self.spool.add(entries)
        self._thread.wake()
        return added


class Said:
    """What the relay says of itself, in a short file: it has no terminal, and no log is its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, line: str) -> None:
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            file = os.open(self._path, flags, 0o600)
            try:
                if os.fstat(file).st_size < SAID_BYTES_MAX:
                    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    text = line.replace("\n", " ")[:500]
                    os.write(file, f"{at} {text}\n".encode())
            finally:
                os.close(file)
