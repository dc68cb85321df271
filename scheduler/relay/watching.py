"""The files that a training writes for TensorBoard or wandb, read as they grow.

How far each was read is noted in the spool, with the entries that were made of it, and at the end
in a file of the job. So nothing comes twice, however a relay ends. A file is kept by the training
anyway: while the spool has no place, it is read later.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from scheduler.relay.event_files import EventFile
from scheduler.relay.file_records import DamagedFile, FileRecords, RecordReader
from scheduler.relay.spool import Spool, noted_in, take_lock
from scheduler.relay.wandb_files import WandbFile

WATCHED, LOCK = "watched.json", "watched.lock"
LOOK_SECONDS = 1.0  # between two looks for news
SCAN_SHARE = 0.001  # of the time, at most, for looking into folders
PORTION_BYTES, PORTION_BYTES_MAX = 16 * 1024, 4 * 2**20
HEAD_BYTES = 64 * 1024
FILES_MAX = 500
ENTRIES_MAX, DEPTH_MAX = 2000, 6  # of a folder
NOTHING_MORE = 2**62  # how far a damaged file is said to be read
_EVENTS = re.compile(r"\.tfevents\.(\d+)")
_NUMBER = re.compile(r"\.\d+\.(\d+)(\.v2)?$")  # among the files of a process
_WANDB = re.compile(r"run-.+\.wandb")
_RUN_NOTE = re.compile(r"(\d+) run\t(.*?)\t(.+)", re.DOTALL)  # attempt, name, folder
# Parts of a path that differ from attempt to attempt: what Lightning counts, moments as PyTorch,
# Hydra and others write them, and what is drawn.
_CHANGING = re.compile(
    r"version_\d+|[A-Z][a-z]{2}\d{2}_\d{2}-\d{2}.*|\d{4}-?\d{2}-?\d{2}([-_T ].*)?|\d{2}-\d{2}-\d{2}"
    r"|\d{10}(\.\d+)?|[0-9a-f]{8}[0-9a-f-]*"
)


def is_watched(name: str) -> bool:
    """By the name of a file alone."""
    return _EVENTS.search(name) is not None or _WANDB.fullmatch(name) is not None


class WatchedFile:
    def __init__(self, path: str, position: int, reader: RecordReader, keys: Sequence[str]) -> None:
        self.path, self.position, self.reader = path, position, reader
        self.name = "/".join(path.split("/")[-2:])[-100:]
        self.portion = PORTION_BYTES
        self.seen = position  # its size when all of it was read that can be
        self.keys = keys  # of what is noted beside its position

    def notes(self) -> dict[str, int]:
        found = {self.path: self.position}
        if isinstance(self.reader, WandbFile) and self.reader.last_step >= 0:
            first, last = self.keys
            found |= {first: self.reader.first_step or 0, last: self.reader.last_step}
        return found


class Watching:
    """Of one attempt of a job. Of several relays of a job, one reads; the others wait for it."""

    def __init__(
        self,
        folder: Path,
        attempt: int,
        resumed: bool,
        folders: Sequence[str],
        spool: Spool,
        say: Callable[[str], None],
    ) -> None:
        """`folder`: of the job. `resumed`: the attempt goes on with epochs that are done.
        `folders`: every file in them is of this job."""
        self._folder, self._attempt, self._resumed = folder, attempt, resumed
        self._folders, self._spool, self._say = folders, spool, say
        self._files: dict[str, WatchedFile] = {}
        self._notes: dict[str, int] = {}  # that are in no file yet
        self._told: set[str] = set()  # paths that the runner has named
        self._lock = -1
        self._look_at = self._scan_at = 0.0
        self._waiting: list[WatchedFile] = []  # they have more than was read
        self._is_blocked = False  # another relay of the job reads
        self._said: set[str] = set()

    @property
    def unread(self) -> bool:
        """Whether there is more that can be read, now or later."""
        return bool(self._waiting) or self._is_blocked

    def name(self, path: str) -> None:
        """One more file of this job, wherever it is."""
        if len(self._told) < FILES_MAX:
            self._told.add(path)

    def step(self) -> bool:
        """Reads a little. Returns whether there is more that can be read at once."""
        now = time.monotonic()
        if not self._waiting and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._look(now)
        if not self._waiting or self._spool.is_half_full:
            return False
        file = self._waiting.pop(0)
        if self._read(file):
            self._waiting.append(file)
        return bool(self._waiting)

    def look_again(self) -> None:
        """When the training has ended: nothing grows any more."""
        self._scan_at = 0.0
        self._look(time.monotonic())

    def close(self) -> None:
        """What is still there of a file is the half of a record."""
        if self._lock < 0:
            return
        for file in self._files.values():
            size = _size(file.path)
            if file not in self._waiting and file.position < size:
                self._lose(file, "its end is half a record", 1)
                self._spool.add([], {file.path: size})
        self._save()
        os.close(self._lock)
        self._lock = -1

    # --- which files there are ----------------------------------------------------------------

    def _look(self, now: float) -> None:
        paths = set(self._told)
        if now >= self._scan_at:
            for folder in self._folders:
                paths.update(found_in(folder))
            spent = time.monotonic() - now
            self._scan_at = now + min(60.0, spent / SCAN_SHARE)
        self._is_blocked = bool(paths) and not self._may_read()
        if not self._is_blocked:
            for path in sorted(paths - self._files.keys(), key=_by_age):
                self._open(path)
        waiting = [each for each in self._files.values() if _size(each.path) != each.seen]
        self._waiting = waiting

    def _may_read(self) -> bool:
        """Takes the lock of the job, and learns what others have noted."""
        if self._lock >= 0:
            return True
        self._lock = take_lock(self._folder / LOCK)
        if self._lock < 0:
            return False
        known: list[dict[str, int]] = [{}]
        with contextlib.suppress(OSError, ValueError, AttributeError):
            kept = json.loads((self._folder / WATCHED).read_text())
            known.append({str(key): int(at) for key, at in kept.items()})
        known += (noted_in(spool) for spool in self._folder.glob("*/spools/*"))
        for each in known:
            for key, at in each.items():
                self._spool.noted[key] = max(at, self._spool.noted.get(key, at))
        self._save()
        return True

    def _save(self) -> None:
        half = self._folder / f".{WATCHED}"
        with contextlib.suppress(OSError):
            file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(file, "w") as writing:  # noqa: PTH123  # a descriptor
                json.dump(self._spool.noted, writing)
                writing.flush()
                os.fsync(file)
            half.rename(self._folder / WATCHED)

    def _open(self, path: str) -> None:
        position, size = self._spool.noted.get(path, 0), _size(path)
        if size == position or position == NOTHING_MORE or size < 0:
            return  # it was read before, and looked at again if it grows
        if len(self._files) >= FILES_MAX:
            self._say_once(f"more than {FILES_MAX} files: the newest are not read")
            return
        if size < position:
            self._say_once(f"{path}: it has become shorter, and is read from its beginning")
            position = 0
        make = self._event_file if _EVENTS.search(path.rpartition("/")[2]) else self._wandb_file
        file = self._files[path] = make(path, position)
        if position:
            with contextlib.suppress(OSError, DamagedFile):
                file.reader.prime(_bytes(path, 0, min(position, HEAD_BYTES)))

    def _event_file(self, path: str, position: int) -> WatchedFile:
        """Its run has the name that it had in another attempt, in a folder that is alike."""
        place, noted = self._place(os.path.dirname(path)), self._spool.noted  # noqa: PTH120
        known = [found.groups() for key in noted if (found := _RUN_NOTE.fullmatch(key))]
        mine = {each: name for attempt, name, each in known if int(attempt) == self._attempt}
        if place not in mine:
            same = [name for _, name, each in known if each == place]
            like = [name for _, name, each in known if _unchanging(each) == _unchanging(place)]
            owns = [each for _, name, each in known if not name]
            name = run_name(place, owns[0] if owns else place)
            others = (f"{name or 'run'} {number}" for number in count(2))
            names = chain(same, like, (name,), others)
            mine[place] = next(each for each in names if each not in mine.values())
            self._note(f"{self._attempt} run\t{mine[place]}\t{place}", 1)
        return WatchedFile(path, position, EventFile(mine[place]), ())

    def _place(self, folder: str) -> str:
        """The folders of attempts are one."""
        within = f"{self._folder}/"
        rest = folder.removeprefix(within).partition("/")[2]
        return f"{within}*/{rest}" if folder.startswith(within) else folder

    def _wandb_file(self, path: str, position: int) -> WatchedFile:
        noted, counted, of = self._spool.noted, f"{self._attempt} wandb runs", f"{path} is run"
        number = noted.get(of, 0)
        if not number:
            number = noted.get(counted, 0) + 1
            self._note(of, number)
            self._note(counted, number)
        first, last = f"{path} begins with step", f"wandb run {number} has step"
        continued = noted.get(last, -1) + 1 if self._resumed else 0
        reader = WandbFile(number, continued, noted.get(first))
        return WatchedFile(path, position, reader, (first, last))

    def _note(self, key: str, value: int) -> None:
        """With the next entries."""
        self._spool.noted[key] = self._notes[key] = value

    # --- reading ------------------------------------------------------------------------------

    def _read(self, file: WatchedFile) -> bool:
        """Reads a portion. Returns whether there may be more."""
        size = _size(file.path)
        if size < file.position:  # it is gone, or another one
            del self._files[file.path]
            return False
        try:
            data = _bytes(file.path, file.position, file.portion)
        except OSError as error:
            self._say_once(f"{file.name}: {error.strerror}")
            file.seen = size
            return False
        ended = file.position + len(data) >= size
        try:
            found = file.reader.read(data, file.position)
        except DamagedFile as error:
            found = error.before
            found.skipped[f"{error}: nothing behind it is read"] += 1
            found.consumed, found.wanted = NOTHING_MORE - file.position, 0
        if not self._keep(file, found):
            return False
        if found.consumed:
            file.portion = PORTION_BYTES
        elif not ended:
            wanted = max(found.wanted, 2 * file.portion)
            file.portion = min(wanted, PORTION_BYTES_MAX)
        if file.position == NOTHING_MORE:
            file.seen = size
            return False
        if ended or file.position >= size:
            file.seen = size
        return file.position < size and not ended

    def _keep(self, file: WatchedFile, found: FileRecords) -> bool:
        found.close_points()
        before, file.position = file.position, file.position + found.consumed
        if not found.consumed:
            return True
        notes = {**self._notes, **file.notes()}
        if not self._spool.add(found.entries, notes, kept_elsewhere=True):
            file.position = before
            return False
        self._notes.clear()
        for why, number in found.skipped.items():
            self._lose(file, why, number)
        return True

    def _lose(self, file: WatchedFile, why: str, number: int) -> None:
        self._spool.lose(number, f"{file.name}: {why}")
        self._say_once(f"{file.name}: {why}")

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def found_in(folder: str) -> Iterator[str]:
    """Yields the files to watch below a folder, of the first entries that are found."""
    left, folders = ENTRIES_MAX, [(folder, 0)]
    while folders and left > 0:
        place, depth = folders.pop()
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEPTH_MAX:
                        folders.append((entry.path, depth + 1))
                elif is_watched(entry.name):
                    yield entry.path
                if left <= 0:
                    break


def run_name(folder: str, first: str) -> str:
    """A job's own run is where its first file is. Others are named by where they are from there,
    without what would be another name in the next attempt."""
    if folder == first:
        return ""
    root = first if folder.startswith(f"{first}/") else os.path.commonpath((folder, first))
    parts = os.path.relpath(folder, root).split("/")
    return "/".join(part for part in parts if not _CHANGING.fullmatch(part))[-200:]


def _unchanging(place: str) -> list[str]:
    return ["*" if _CHANGING.fullmatch(part) else part for part in place.split("/")]


def _by_age(path: str) -> tuple[int, int, str]:
    """The names of event files have a time and a number, and those of wandb begin with a time."""
    name = path.rpartition("/")[2]
    made, number = _EVENTS.search(name), _NUMBER.search(name)
    return int(made[1]) if made else 0, int(number[1]) if number else 0, path


def _size(path: str) -> int:
    """-1: it is not there, or no file."""
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def _bytes(path: str, offset: int, most: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.pread(file, most, offset)
    finally:
        os.close(file)
