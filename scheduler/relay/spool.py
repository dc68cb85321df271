"""What a relay has heard and not yet delivered: entries in files, numbered from 0.

A spool is a folder of segments, each named by the number of its first entry. A line that begins
with `#` is not an entry but a note: how far a watched file had been read when the entries before it
were written. So an entry and what it was read from are never apart, however the relay ends. Each
segment begins with all that was noted before it.

Each entry is in the hands of the kernel before its sender is answered, so that it survives a kill
of the relay. `sync` hands it to the disk; the loss of power costs what came after the last one.
Nothing here raises OSError: what has no place is counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SEGMENT_BYTES = 2**20
ENTRY_BYTES_MAX = 2**20
FULL_MAX = 16  # files that may wait until they are on the disk
NOTE = b"#"
LOCK = "lock"
SUFFIX = ".ndjson"


@dataclass(slots=True)
class Segment:
    first: int
    entries: int = 0
    size: int = 0

    @property
    def end(self) -> int:
        return self.first + self.entries


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive entries."""

    first: int
    entries: tuple[bytes, ...]

    @property
    def end(self) -> int:
        return self.first + len(self.entries)


class Spool:
    """For two threads: one adds, one delivers. Of two processes, only one has its lock."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder, self._bytes_max = folder, bytes_max
        self._lock = threading.Lock()
        self._segments: deque[Segment] = deque()
        self._file = -1  # the newest segment, once this object has written to it
        self._full: list[int] = []  # files of full segments, until they are on the disk
        self._dirty = False
        self._read_at: tuple[int, int] | None = None  # the next entry to deliver, and its offset
        self._unwritten: dict[str, int] = {}  # what was lost while nothing could be written
        self.next = 0  # the first entry that is not delivered
        self.lost = 0  # entries that had no place
        self.noted: dict[str, int] = {}  # how far each watched file was read
        self._find()
        self._lock_file = take_lock(folder / LOCK)

    @property
    def is_ours(self) -> bool:
        return self._lock_file >= 0

    # --- adding -----------------------------------------------------------------------------

    def add(
        self,
        entries: Sequence[bytes],
        notes: dict[str, int] | None = None,
        kept_elsewhere: bool = False,
    ) -> bool:
        """Each entry is one line of JSON without its end. False: they had no place, and are lost
        unless they are `kept_elsewhere`."""
        with self._lock:
            count = (lambda number: None) if kept_elsewhere else self._count
            if self._unwritten:
                lost = [_lost(n, why) for why, n in self._unwritten.items()]
                if not self._write(lost, {}):
                    count(len(entries))
                    return False
                self._unwritten.clear()
            if not self._write([*self._fit(entries)], notes or {}):
                count(len(entries))
                return False
            self.noted.update(notes or {})
            self._make_room()
            full = len(self._full) > FULL_MAX
        if full:
            self.sync()
        return True

    @property
    def is_half_full(self) -> bool:
        """Then what can wait should."""
        return self.waiting() > 0 and self._bytes() > self._bytes_max // 2

    def lose(self, number: int, why: str) -> None:
        """Tells the gateway what never became an entry."""
        self.add([_lost(number, why)])

    def sync(self) -> None:
        """Hands everything to the disk. Whoever adds does not wait for this."""
        with self._lock:
            files, self._full = self._full, []
            if self._dirty and self._file >= 0:
                self._dirty = False
                files.append(os.dup(self._file))
        for file in files:
            with contextlib.suppress(OSError):
                os.fsync(file)
            os.close(file)

    def _fit(self, entries: Sequence[bytes]) -> Iterator[bytes]:
        for entry in entries:
            if len(entry) <= ENTRY_BYTES_MAX:
                yield entry
            else:
                yield _lost(1, f"an entry of {len(entry)} bytes is too long")

    def _count(self, number: int) -> None:
        why = "the disk of the spool was full"
        self.lost += number
        self._unwritten[why] = self._unwritten.get(why, 0) + number

    def _write(self, entries: Sequence[bytes], notes: dict[str, int]) -> bool:
        if not entries and not notes:
            return True
        lines = b"".join(entry + b"\n" for entry in entries)
        if notes:
            lines += _note(notes)
        try:
            segment = self._open_segment()
        except OSError:
            return False
        if self.noted and not segment.size:
            lines = _note(self.noted) + lines
        try:
            written = os.write(self._file, lines)
        except OSError:
            written = 0
        if written < len(lines):
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, segment.size)
                os.lseek(self._file, segment.size, os.SEEK_SET)
            return False
        segment.size += written
        segment.entries += len(entries)
        self._dirty = True
        return True

    def _open_segment(self) -> Segment:
        newest = self._segments[-1] if self._segments else None
        if self._file >= 0 and newest and newest.size < SEGMENT_BYTES:
            return newest
        segment = Segment(newest.end if newest else self.next)
        if newest and newest.end == newest.first:  # it has no entry, and the same name
            return self._reopen(newest)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        file = os.open(self._path(segment), flags, 0o600)
        self._close()
        self._file = file
        self._segments.append(segment)
        return segment

    def _reopen(self, segment: Segment) -> Segment:
        file = os.open(self._path(segment), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        self._close()
        self._file = file
        return segment

    def _close(self) -> None:
        """Who syncs closes the file."""
        if self._file >= 0:
            self._full.append(self._file)
        self._file, self._dirty = -1, False

    def _make_room(self) -> None:
        """Drops the oldest segments. The gateway sees from the next number that some are missing,
        and counts them."""
        while len(self._segments) > 1 and self._bytes() > self._bytes_max:
            oldest = self._segments.popleft()
            self.lost += oldest.end - max(self.next, oldest.first)
            self._remove(oldest)
            self.next = max(self.next, self._segments[0].first)
            self._read_at = None

    def _bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # --- delivering -------------------------------------------------------------------------

    def waiting(self) -> int:
        """How many entries are not delivered."""
        with self._lock:
            return self._segments[-1].end - self.next if self._segments else 0

    def read(self, bytes_max: int, entries_max: int) -> Batch:
        """The next entries to deliver; none if all are delivered."""
        with self._lock:
            found = next((each for each in self._segments if each.end > self.next), None)
            if found is None:
                return Batch(self.next, ())
            if self.next < found.first:
                self.next, self._read_at = found.first, None
            number, offset = self._read_at or (found.first, 0)
            if not found.first <= number <= self.next:
                number, offset = found.first, 0
            path, size = self._path(found), found.size
        try:
            with path.open("rb") as file:
                taken, number, offset = self._take(file, number, offset, bytes_max, entries_max)
        except OSError as error:
            return self._drop(found, error)
        with self._lock:
            self._read_at = number, offset
        if not taken and offset >= size:  # it is shorter than it was
            return self._drop(found, None)
        return Batch(number, tuple(taken))

    def _take(
        self, file: BinaryIO, number: int, offset: int, bytes_max: int, entries_max: int
    ) -> tuple[list[bytes], int, int]:
        """Returns the entries from `next` on, the number of the first, and where it begins."""
        file.seek(offset)
        taken: list[bytes] = []
        size = 0
        while size < bytes_max and len(taken) < entries_max:
            line = file.readline()
            if not line.endswith(b"\n"):
                break
            if line.startswith(NOTE):
                continue
            if number < self.next:
                number, offset = number + 1, file.tell()
                continue
            taken.append(line[:-1])
            size += len(line)
        return taken, number, offset

    def _drop(self, segment: Segment, error: OSError | None) -> Batch:
        """Of a file that cannot be read."""
        with self._lock:
            self.lost += max(0, segment.end - max(self.next, segment.first))
            self.next = max(self.next, segment.end)
            self._read_at = None
            return Batch(self.next, ())

    def deliver(self, number: int) -> None:
        """The gateway has all entries before this one."""
        with self._lock:
            self.next = max(self.next, number)
            while len(self._segments) > 1 and self._segments[0].end <= self.next:
                self._remove(self._segments.popleft())

    def clear(self) -> None:
        """Removes what is delivered, and gives the spool up. Without anything left it is gone."""
        with self._lock:
            self._close()
        self.sync()
        with self._lock:
            while self._segments and self._segments[0].end <= self.next:
                self._remove(self._segments.popleft())
            if not self._segments:
                with contextlib.suppress(OSError):
                    (self.folder / LOCK).unlink()
                    self.folder.rmdir()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    def _remove(self, segment: Segment) -> None:
        with contextlib.suppress(OSError):
            self._path(segment).unlink()

    # --- what a relay before us has left ----------------------------------------------------

    def _path(self, segment: Segment) -> Path:
        return self.folder / f"{segment.first:012d}{SUFFIX}"

    def _find(self) -> None:
        """Finds the segments, and the notes within."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return
        for name in names:
            first = name.removesuffix(SUFFIX)
            if name.endswith(SUFFIX) and first.isdigit():
                segment = self._look_into(int(first))
                if segment is not None:
                    self._segments.append(segment)
        self.next = self._segments[0].first if self._segments else 0

    def _look_into(self, first: int) -> Segment | None:
        segment = Segment(first)
        try:
            with self._path(segment).open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # power was lost while it was written
                    segment.size += len(line)
                    if line.startswith(NOTE):
                        self.noted.update(read_note(line))
                    else:
                        segment.entries += 1
        except OSError:
            return None
        return segment


def take_lock(path: Path) -> int:
    """Returns the open file, or -1: another process has it, or there can be none."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return -1
    return file


def noted_in(folder: Path) -> dict[str, int]:
    """What the spool in this folder has noted, whoever has its lock."""
    noted: dict[str, int] = {}
    try:
        newest = max(each for each in folder.iterdir() if each.name.endswith(SUFFIX))
        with newest.open("rb") as file:
            for line in file:
                if line.startswith(NOTE) and line.endswith(b"\n"):
                    noted.update(read_note(line))
    except (OSError, ValueError):
        pass
    return noted


def _note(notes: dict[str, int]) -> bytes:
    return NOTE + json.dumps(notes).encode() + b"\n"


def read_note(line: bytes) -> dict[str, int]:
    try:
        noted = json.loads(line[len(NOTE) :])
        return {str(name): int(at) for name, at in noted.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _lost(number: int, why: str) -> bytes:
    return json.dumps({"lost": number, "why": why}).encode()
