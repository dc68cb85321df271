"""Copies files from one storage to another, and tells how far it is."""

from __future__ import annotations

import posixpath
import sys
import time
from typing import NamedTuple, TextIO

from cli.command import CommandError, note
from cli.storage.stored_files import (
    FILE,
    FOLDER,
    CopySource,
    MissingError,
    Storage,
    StoredFile,
    joined,
)
from cli.storage.stored_files import unsafe as why_unsafe
from cli.terminal import ProgressLine
from scheduler.presentation.render import printable

DRAW_SECONDS = 0.1
UNREACHABLE = 3  # the exit code
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Copied(NamedTuple):
    files: int
    size: int
    already_there: int
    failures: list[str]


class Progress:
    """One line on a terminal: which file, how much of all, how fast."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._line = ProgressLine(stream)
        self._total, self._done, self._name, self._now = total, 0, "", 0
        self._started_at = self._drawn_at = time.monotonic()
        self._fetched = 0

    def begin(self, name: str) -> None:
        self._name, self._now = name, -1

    def advance(self, there: int) -> None:
        if self._now >= 0:  # what an interrupted copy had got before is not speed
            self._fetched += there - self._now
        self._now = there
        if time.monotonic() - self._drawn_at > DRAW_SECONDS:
            self._draw()

    def end(self, size: int) -> None:
        self._done += size
        self._now = 0

    def clear(self) -> None:
        self._line.clear()

    def _draw(self) -> None:
        self._drawn_at = now = time.monotonic()
        there = self._done + max(0, self._now)
        speed = self._fetched / max(now - self._started_at, 1e-3)
        left = f", {(self._total - there) / speed:.0f} s left" if speed > 1 else ""
        self._line.draw(
            f"{100 * there // max(1, self._total)} % of {size_text(self._total)}, "
            f"{size_text(int(speed))}/s{left}: {self._name}"
        )


def copy(source: Storage, path: str, target: Storage, to: str) -> Copied:
    """A folder's files into the folder `to`. A file to `to`, or into it if that is a folder or ends
    with `/`. Raises CommandError if nothing can be copied; what single files lack is reported."""
    file = source.look(path)
    if file.kind == FOLDER:
        folder, found = to, list(source.below(path))
    elif file.kind == FILE:
        folder, name = _place(target, to, posixpath.basename(path.rstrip("/")))
        found = [file._replace(path=name, why="")]
    else:
        raise CommandError(f"{source.named(path)}: neither a file nor a folder", 1)
    progress = Progress(sum(each.size for each in found), sys.stderr)
    copied, size, already, failures = 0, 0, 0, list[str]()
    try:
        for each in found:
            of = path if file.kind == FILE else joined(path, each.path)
            try:
                if _copy_one(source, of, target, folder, each, progress):
                    copied, size = copied + 1, size + each.size
                else:
                    already += 1
            except CommandError as error:
                if error.exit_code == UNREACHABLE or len(found) == 1:
                    raise
                progress.clear()
                failures.append(printable(str(error)))
                note(f"left out: {failures[-1]}")
    finally:
        progress.clear()
    return Copied(copied, size, already, failures)


def _place(target: Storage, to: str, name: str) -> tuple[str, str]:
    """Folder and name of the copy of a file."""
    if to in ("", ".", "..") or to.endswith(("/", "/.", "/..")):
        return to, name
    try:
        if target.look(to).kind == FOLDER:
            return to, name
    except MissingError:
        pass
    return posixpath.dirname(to), posixpath.basename(to)


def _copy_one(
    source: Storage, of: str, target: Storage, folder: str, file: StoredFile, progress: Progress
) -> bool:
    """False: it is there already."""
    name = source.named(of)
    if why := file.why or why_unsafe(file.path):
        raise CommandError(f"{name}: {why}", 1)
    progress.begin(file.path)
    try:
        if target.has(joined(folder, file.path) if folder else file.path, file):
            return False
        reading = CopySource(name, file, lambda start: source.read(of, file, start))
        target.write(folder, file.path, reading, progress.advance)
        return True
    finally:
        progress.end(file.size)


def size_text(size: int) -> str:
    """`3.2 GiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size} {_UNITS[0]}"
