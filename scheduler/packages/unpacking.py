"""Makes the folder of a package from its manifest and the contents of its files.

The folder is new and nobody else's. Nothing is written through a link: links are made last, no
file is below one (the manifest is checked), and no folder on the way is followed if it is one.
Nothing is written that the manifest does not name: not more bytes, and no other content. Standard
library only: runners import it.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH108, PTH112, PTH116, PTH123
# No pathlib: a runner stays small.

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler.packages import manifest
from scheduler.packages.folders import Beneath
from scheduler.packages.manifest import LINK, PROGRAM, BadPackage, PackagedFile

PIECE_BYTES = 1 << 20
TREES = "code"  # the folder of unpacked packages in the state folder
UNFINISHED, LOCK, BOOT = ".unfinished", ".lock", ".boot"


class Unpacking:
    """One package on its way into an empty folder. Not for several threads."""

    def __init__(self, folder: str, entries: Sequence[PackagedFile]) -> None:
        self._folder, self._entries = folder, entries
        self._wanted: dict[str, list[PackagedFile]] = {}  # by content
        for entry in entries:
            if entry.kind != LINK:
                self._wanted.setdefault(entry.digest, []).append(entry)
        self._beneath = Beneath(folder)

    def digests(self) -> list[str]:
        """The contents that are still missing."""
        return list(self._wanted)

    def write(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Writes each file that has this content. Raises BadPackage if it is another one."""
        if digest not in self._wanted:
            raise BadPackage(f"{digest[:100]}: the package has no such content, or has it already")
        first, *others = self._wanted[digest]
        found, size = hashlib.sha256(), 0
        file = self._create(first)
        try:
            for piece in pieces:
                size += len(piece)
                if size > first.size:
                    break
                found.update(piece)
                _write(file, piece)
        finally:
            os.close(file)
        if size != first.size or found.hexdigest() != digest:
            raise BadPackage(f"{manifest.quote(first.path)}: its content is not that of its hash")
        del self._wanted[digest]
        for other in others:
            self._copy(first, other)

    def finish(self, folders: Mapping[str, str]) -> None:
        """Makes the links, also those to folders elsewhere, and nothing can be written any more."""
        if self._wanted:
            missing = next(iter(self._wanted.values()))[0].path
            raise BadPackage(f"{manifest.quote(missing)}: its content is missing")
        for entry in self._entries:
            if entry.kind == LINK:
                self._link(entry.path, entry.target)
        for name, target in folders.items():
            manifest.check_path(name)
            self._link(name, target)
        self.close()
        for path, _, _ in os.walk(self._folder, topdown=False):
            os.chmod(path, 0o555)

    def close(self) -> None:
        if self._beneath:
            self._beneath.close()
            self._beneath = None  # type: ignore[assignment]  # never used again

    def _create(self, entry: PackagedFile) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file = self._beneath.open(entry.path, flags, 0o600)
        os.fchmod(file, 0o555 if entry.kind == PROGRAM else 0o444)
        return file

    def _copy(self, first: PackagedFile, other: PackagedFile) -> None:
        source = self._beneath.open(first.path, os.O_RDONLY)
        try:
            file = self._create(other)
            try:
                while piece := os.read(source, PIECE_BYTES):
                    _write(file, piece)
            finally:
                os.close(file)
        finally:
            os.close(source)

    def _link(self, path: str, target: str) -> None:
        folder, name = self._beneath.parent(path, make=True)
        try:
            os.symlink(target, name, dir_fd=folder)
        except FileExistsError:
            raise BadPackage(f"{manifest.quote(path)}: the package has a file there") from None


def unpacked(store: str, package: str, trees: str, folders: Mapping[str, str]) -> str:
    """Returns the folder of a package that a store has: made once, and shared by all jobs."""
    os.makedirs(trees, mode=0o700, exist_ok=True)
    name = tree_name(package, folders)
    final = f"{trees}/{name}"
    with _locked(f"{final}{LOCK}"):
        if not _is_of_this_boot(final):
            discard(final)
            _unpack(store, package, final, folders)
        os.utime(f"{final}{LOCK}")
    return final


def _is_of_this_boot(final: str) -> bool:
    """Whether it is there, and whole: what was written before a power cut need not be on the disk.
    Only what is unpacked again after each start of the machine need not be synced."""
    with contextlib.suppress(FileNotFoundError), open(f"{final}{BOOT}") as file:
        return file.read() == _boot_id() and os.path.isdir(final)
    return False


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def tree_name(package: str, folders: Mapping[str, str]) -> str:
    name = package.removeprefix(manifest.PREFIX)
    if not folders:
        return name
    links = "\0".join(f"{link}\0{target}" for link, target in sorted(folders.items()))
    return f"{name}-{hashlib.sha256(links.encode()).hexdigest()[:16]}"


def remove_tree(trees: str, name: str, unused_seconds: float = 3600.0) -> None:
    """Removes an unpacked package, unless a run has begun to use it within the last hour: that run
    may be too new to be known to who removes."""
    final = f"{trees}/{name}"
    with _locked(f"{final}{LOCK}"):
        if time.time() - os.stat(f"{final}{LOCK}").st_mtime < unused_seconds:
            return
        gone = f"{final}{UNFINISHED}"
        discard(gone)
        with contextlib.suppress(FileNotFoundError):
            os.rename(final, gone)
        discard(gone)
        for part in (BOOT, LOCK):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{final}{part}")


def discard(folder: str) -> None:
    """Deletes a folder in which nothing can be written, if it is there."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def content_path(store: str, digest: str) -> str:
    return f"{store}/{digest[:2]}/{digest}"


def read_manifest(store: str, package: str) -> list[PackagedFile]:
    digest = package.removeprefix(manifest.PREFIX)
    with open(content_path(store, digest), "rb") as file:
        found = file.read(manifest.MANIFEST_BYTES_MAX + 1)
    if manifest.package_id(found) != package:
        raise BadPackage(f"{package[:19]}: its manifest is damaged")
    return manifest.decode(found)


def sync(folder: str) -> None:
    """Returns when all that was written on the disk of this folder will survive a power cut."""
    file = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(file):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    finally:
        os.close(file)


def pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _unpack(store: str, package: str, final: str, folders: Mapping[str, str]) -> None:
    unfinished = f"{final}{UNFINISHED}"
    discard(unfinished)
    os.mkdir(unfinished, 0o700)
    try:
        work = Unpacking(unfinished, read_manifest(store, package))
        try:
            for digest in work.digests():
                work.write(digest, pieces(content_path(store, digest)))
            work.finish(folders)
        finally:
            work.close()
        os.rename(unfinished, final)
        with open(f"{final}{BOOT}", "w") as file:
            file.write(_boot_id())
    except BaseException:
        discard(unfinished)
        raise


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Only one process at a time unpacks or removes a tree. The file may have been removed while
    this one waited."""
    while True:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                same = os.path.samestat(os.fstat(file), os.stat(path))
            except FileNotFoundError:
                same = False
            if same:
                yield
                return
        finally:
            os.close(file)


def _write(file: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(file, left) :]
