"""Files and folders of this machine.

Below the folder that the user named no link is followed: in a folder that others may write to, a
link could lead anywhere. A link to a file in the same folder is copied as that file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import Any

from cli.command import CommandError
from cli.storage.stored_files import (
    FILE,
    FOLDER,
    OTHER,
    PIECE_BYTES,
    ChangedError,
    CopySource,
    MissingError,
    StoredFile,
    joined,
)

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{16}\.part")
EXACT_SECONDS = 1e-5  # file systems keep times this exactly, or better


class FolderStorage:
    def named(self, path: str) -> str:
        return path

    def look(self, path: str, follow: bool = True) -> StoredFile:
        try:
            found = _described("", os.stat(path, follow_symlinks=follow))
            return found._replace(why=found.why or "a link") if os.path.islink(path) else found
        except FileNotFoundError:
            raise MissingError(path) from None
        except OSError as error:
            raise _failure(path, error) from None

    def list(self, path: str) -> list[StoredFile]:
        try:
            with os.scandir(path) as entries:
                return sorted(_described(entry.name, _status(entry)) for entry in entries)
        except OSError as error:
            raise _failure(path, error) from None

    def below(self, path: str) -> Iterator[StoredFile]:
        top = os.path.realpath(path)
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(os.path.join(top, folder)) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                yield StoredFile(folder or ".", OTHER, why=error.strerror or str(error))
                continue
            below = []
            for entry in entries:
                name = joined(folder, entry.name) if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
                elif not is_partial(entry.name):
                    yield _found(top, name, entry)
            folders += reversed(below)

    def read(self, path: str, file: StoredFile, start: int) -> Iterator[bytes]:
        try:
            # What the user named may be a link; a link below it was resolved when it was listed.
            opened = os.open(os.path.realpath(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise _failure(path, error) from None
        with open(opened, "rb", buffering=0) as reader:
            if _version(os.fstat(opened)) != file.version:
                raise ChangedError(path)
            reader.seek(start)
            left = file.size - start
            while left and (data := reader.read(min(PIECE_BYTES, left))):
                left -= len(data)
                yield data
            if left or _version(os.fstat(opened)) != file.version:
                raise ChangedError(path)

    def has(self, path: str, file: StoredFile) -> bool:
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return (
            stat.S_ISREG(status.st_mode)
            and status.st_size == file.size
            and abs(status.st_mtime - file.modified_at) < EXACT_SECONDS
        )

    def write(
        self, folder: str, path: str, source: CopySource, progress: Callable[[int], None]
    ) -> None:
        where = joined(folder, path) if folder else path
        try:
            parent = _open_parent(folder, path)
            try:
                _write(parent, os.path.basename(where), source, progress)
            finally:
                os.close(parent)
        except OSError as error:
            raise _failure(where, error) from None

    def remove(self, path: str, progress: Callable[[int], None]) -> None:
        if is_kept(path):
            raise CommandError(f"{path} is not removed: it contains your home, or this folder", 4)
        removed, failures = 0, list[str]()

        def failed(_: object, name: str, info: tuple[Any, BaseException, Any]) -> None:
            why = info[1].strerror if isinstance(info[1], OSError) else info[1]
            failures.append(f"{name}: {why}")

        try:
            if stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode):
                shutil.rmtree(path, onerror=failed)  # follows no link, however it appears
            else:
                os.unlink(path)
                removed = 1
        except OSError as error:
            raise _failure(path, error) from None
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise CommandError(f"{failures[0]}{more}", 1)
        progress(removed)


def partial_name(name: str, source: CopySource) -> str:
    """Of the file that is there until a copy is whole."""
    encoded = os.fsencode(name)
    short = name if len(encoded) <= 200 else hashlib.sha256(encoded).hexdigest()
    return f".{short}.{source.identity}.part"


def is_partial(name: str) -> bool:
    return _PARTIAL.fullmatch(name) is not None


def is_kept(path: str) -> bool:
    """Whether it contains the user's home or the current folder, as `/` does."""
    if os.path.islink(path.rstrip("/")):
        return False  # only the link would be removed
    folder = os.path.realpath(path)
    inside = (os.path.realpath(os.path.expanduser("~")), os.getcwd())
    return any(os.path.commonpath((folder, each)) == folder for each in inside)


# --- reading ------------------------------------------------------------------------------------


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:  # a link to nowhere
        return entry.stat(follow_symlinks=False)


def _described(path: str, status: os.stat_result) -> StoredFile:
    kind = FOLDER if stat.S_ISDIR(status.st_mode) else OTHER
    if stat.S_ISREG(status.st_mode):
        kind = FILE
    size = status.st_size if kind == FILE else 0
    return StoredFile(path, kind, size, status.st_mtime, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _found(top: str, name: str, entry: os.DirEntry[str]) -> StoredFile:
    try:
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if os.path.commonpath((top, target)) != top:
                return StoredFile(name, OTHER, why="a link that leaves the folder")
            if os.path.isdir(target):
                return StoredFile(name, OTHER, why="a link to a folder")
        found = _described(name, entry.stat())
    except OSError as error:
        return StoredFile(name, OTHER, why=error.strerror or str(error))
    return found if found.kind == FILE else found._replace(why="neither a file nor a folder")


# --- writing ------------------------------------------------------------------------------------


def _open_parent(folder: str, path: str) -> int:
    """The folder of the file, which is made if it is missing."""
    os.makedirs(folder or ".", exist_ok=True)
    opened = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split("/")[:-1]:
        above = opened
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            opened = os.open(name, _FOLDER_FLAGS, dir_fd=above)
        finally:
            os.close(above)
    return opened


def _write(folder: int, name: str, source: CopySource, progress: Callable[[int], None]) -> None:
    partial = partial_name(name, source)
    _remove_other_partials(folder, partial)
    file = _open_partial(folder, partial)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two at once would leave holes
        there = min(os.fstat(file).st_size, source.file.size)
        os.ftruncate(file, there)
        os.lseek(file, there, os.SEEK_SET)
        progress(there)
        for data in source.read(there):
            _write_all(file, data)
            there += len(data)
            progress(there)
        os.utime(file, (source.file.modified_at, source.file.modified_at))
        os.fchmod(file, 0o666 & ~_umask())
        os.fsync(file)
    except BlockingIOError:
        raise CommandError(
            f"{source.name} is being copied to there by another command", 1
        ) from None
    except ChangedError:
        os.unlink(partial, dir_fd=folder)
        raise
    finally:
        os.close(file)
    os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def _open_partial(folder: int, partial: str) -> int:
    """Only if it is our own file: in a folder that others may write to, it could be anything."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(partial, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
            return os.open(partial, flags, dir_fd=folder)
        os.unlink(partial, dir_fd=folder)
    return os.open(partial, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)


def _remove_other_partials(folder: int, partial: str) -> None:
    """Of versions of this file that are no more."""
    stem = partial[: -len("0123456789abcdef.part")]
    for name in os.listdir(folder):
        if name != partial and name.startswith(stem) and is_partial(name):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _failure(path: str, error: OSError) -> CommandError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return CommandError(f"{path}: a part of it is a link or a file, which is not followed", 1)
    return CommandError(f"{path}: {error.strerror or error}", 1)
