"""Files that a training logs: kept in an outbox until the gateway has them.

A file is told to the gateway by an entry in the spool, which is written when its bytes are there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

try:  # hashlib would load OpenSSL, which takes megabytes
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]  # from Python 3.12 on
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha256

from scheduler.relay.delivery import PAUSE_SECONDS, PAUSE_SECONDS_MAX, REFUSED_SECONDS, Link
from scheduler.relay.entries import BadEntry, check_path

PATH = ".path"  # beside the bytes: where they belong in the run
PIECE_BYTES = 256 * 1024


class Outbox:
    """For two threads: one adds, one delivers."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder, self._bytes_max = folder, bytes_max
        self._number = 0

    def receive(self, path: str) -> OutboxFile | None:
        """None: it cannot be kept."""
        try:
            check_path(path)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            room = self._bytes_max - sum(each.stat().st_size for each in self.folder.iterdir())
            self._number += 1
            name = f"{os.getpid()}-{self._number:06d}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            file = os.open(self.folder / f".{name}", flags, 0o600)
        except (BadEntry, OSError):
            return None
        return OutboxFile(open(file, "wb"), self.folder / name, path, room)  # noqa: PTH123

    def waiting(self) -> list[Path]:
        try:
            found = [each for each in self.folder.iterdir() if each.suffix != PATH]
        except OSError:
            return []
        return sorted(each for each in found if not each.name.startswith("."))

    def remove(self, file: Path) -> None:
        for each in (file, file.with_suffix(PATH)):
            with contextlib.suppress(OSError):
                each.unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()  # if it is empty


class OutboxFile:
    def __init__(self, file: BinaryIO, place: Path, path: str, room: int) -> None:
        self._file, self._place, self._path, self._room = file, place, path, room
        self._whole = True

    def write(self, data: bytes | bytearray) -> None:
        """Never fails: what has no place makes it useless."""
        self._room -= len(data)
        if self._whole:
            try:
                self._whole = self._room >= 0
                if self._whole:
                    self._file.write(data)
            except OSError:
                self._whole = False

    def finish(self, complete: bool = True) -> bool:
        """Returns whether it will be delivered."""
        half = self._place.with_name(f".{self._place.name}")
        try:
            self._file.close()
            if complete and self._whole:
                self._place.with_suffix(PATH).write_text(self._path, encoding="utf-8")
                half.rename(self._place)
                return True
        except (OSError, ValueError):
            pass
        with contextlib.suppress(OSError):
            half.unlink()
        return False


class ArtifactDelivery:
    """As Delivery, of an outbox."""

    def __init__(
        self,
        outbox: Outbox,
        link: Link,
        attempt: int,
        add: Callable[[Sequence[bytes]], object],
        say: Callable[[str], None],
    ) -> None:
        self._outbox, self._link, self._add, self._say = outbox, link, add, say
        self._attempt = attempt
        self._pause, self._said = PAUSE_SECONDS, ""

    def step(self) -> float:
        files = self._outbox.waiting()
        if not files:
            return -1.0
        try:
            path = files[0].with_suffix(PATH).read_text(encoding="utf-8")
            status, why = self._send(files[0], path)
        except (OSError, ValueError) as error:
            status, why = 0, str(error)
        if status in (200, 201, 204):
            self._add([_entry(files[0], path)])
            self._said = ""
        elif status in (401, 403):
            return self._later(f"the gateway refuses the token: {why}", REFUSED_SECONDS)
        elif 400 <= status < 500 and status not in (408, 429):
            self._say(f"artifact {path!r} was refused: {why}")
            self._add([json.dumps({"lost": 1, "why": f"artifact {path[:100]}: {why}"}).encode()])
        elif not files[0].exists():
            return 0.0
        else:
            pause, self._pause = self._pause, min(2 * self._pause, PAUSE_SECONDS_MAX)
            return self._later(f"an artifact is not delivered: {why or status}", pause)
        self._pause = PAUSE_SECONDS
        self._outbox.remove(files[0])
        return 0.0

    def close(self) -> None:
        pass

    def _send(self, file: Path, path: str) -> tuple[int, str]:
        where = f"/api/v1/tracking/artifacts/{quote(path)}?attempt={self._attempt}"
        with file.open("rb") as content:
            status, _, answer = self._link.call("PUT", where, content, {})
        return status, f"{status} {answer[:200].decode('utf-8', 'replace')}"

    def _later(self, why: str, seconds: float) -> float:
        if why != self._said:
            self._say(why)
        self._said = why
        return seconds


def _entry(file: Path, path: str) -> bytes:
    digest, size = sha256(), 0
    with file.open("rb") as content:
        while piece := content.read(PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    return json.dumps({"artifact": path, "size": size, "sha256": digest.hexdigest()}).encode()
