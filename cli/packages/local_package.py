"""From the files of a folder to a manifest, and to the parts in which they are sent.

No link is followed, not even one that takes the place of a folder while this reads. A file that
changes between two looks is noticed: its hash would not be that of what is sent.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cli.command import CommandError
from cli.packages.selection import JOB_IGNORE
from scheduler.packages import manifest
from scheduler.packages.folders import Beneath
from scheduler.packages.manifest import FILE, LINK, PROGRAM, BadPackage, PackagedFile
from scheduler.v1 import scheduler_pb2 as pb

MESSAGE_BYTES = 512 * 1024
_READ_BYTES = 512 * 1024
_REFUSED = 4


@dataclass(frozen=True, slots=True)
class LocalPackage:
    root: str
    entries: list[PackagedFile]  # in the order of the manifest
    manifest: bytes
    id: str
    stamps: dict[str, tuple[int, ...]]  # of each file, by which a change is noticed

    @property
    def size(self) -> int:
        return manifest.total(self.entries)


def pack(
    root: str, paths: Iterable[str], progress: Callable[[int], None] = lambda _: None
) -> LocalPackage:
    """`progress` is told how many bytes have been read."""
    entries, read = list[PackagedFile](), 0
    stamps: dict[str, tuple[int, ...]] = {}
    with Beneath(root) as beneath:
        for path in sorted(paths, key=os.fsencode):
            entries.append(_entry(beneath, path, stamps))
            read += entries[-1].size
            progress(read)
    try:
        encoded = manifest.encode(entries)
    except BadPackage as error:
        raise CommandError(f"{error}: leave it out by {JOB_IGNORE}", _REFUSED) from None
    return LocalPackage(root, entries, encoded, manifest.package_id(encoded), stamps)


def parts(
    package: LocalPackage, lines: Iterable[int], with_manifest: bool = False
) -> Iterator[pb.FilePart]:
    """The contents of these entries, each content once, and before them the manifest."""
    if with_manifest:
        data, size = package.manifest, len(package.manifest)
        for at in range(0, size, MESSAGE_BYTES):
            digest = bytes.fromhex(package.id.removeprefix(manifest.PREFIX)) if at == 0 else b""
            yield pb.FilePart(digest=digest, size=size, data=data[at : at + MESSAGE_BYTES])
    sent = set()
    with Beneath(package.root) as beneath:
        for line in lines:
            entry = package.entries[line]
            if entry.digest not in sent:
                sent.add(entry.digest)
                yield from _content(beneath, entry, package.stamps[entry.path])


def batches(these: Iterable[pb.FilePart]) -> Iterator[pb.FileParts]:
    """As few messages as possible: most files are small."""
    batch, size = pb.FileParts(), 0
    for part in these:
        if size and size + len(part.data) + 64 > MESSAGE_BYTES:
            yield batch
            batch, size = pb.FileParts(), 0
        batch.parts.append(part)
        size += len(part.data) + 64
    if size:
        yield batch


def _entry(beneath: Beneath, path: str, stamps: dict[str, tuple[int, ...]]) -> PackagedFile:
    try:
        folder, name = beneath.parent(path)
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise _unreadable(path, error) from None
    if stat.S_ISLNK(status.st_mode):
        try:
            return PackagedFile(path, LINK, target=os.readlink(name, dir_fd=folder))
        except OSError as error:
            raise _unreadable(path, error) from None
    digest, size = hashlib.sha256(), 0
    try:
        file = beneath.open(path, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise CommandError(f"{manifest.quote(path)}: is not a file", _REFUSED)
        while data := os.read(file, _READ_BYTES):
            digest.update(data)
            size += len(data)
            if size > before.st_size:  # it may grow as fast as this reads
                break
        stamps[path] = _stamp(file)
    finally:
        os.close(file)
    if size != before.st_size or stamps[path] != _stamp_of(before):
        raise _changed(path)
    kind = PROGRAM if before.st_mode & stat.S_IXUSR else FILE
    return PackagedFile(path, kind, size, digest.hexdigest())


def _content(
    beneath: Beneath, entry: PackagedFile, stamp: tuple[int, ...]
) -> Iterator[pb.FilePart]:
    """It is not hashed again: a change shows in the file's times, and the scheduler hashes it."""
    try:
        file = beneath.open(entry.path, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(entry.path, error) from None
    left, first = entry.size, bytes.fromhex(entry.digest)
    try:
        while first or left:
            data = os.read(file, min(_READ_BYTES, left))
            left -= len(data)
            # The last part is held back until the file is known to be as it was.
            if (left and not data) or (not left and _stamp(file) != stamp):
                raise _changed(entry.path)
            yield pb.FilePart(digest=first, size=entry.size if first else 0, data=data)
            first = b""
    finally:
        os.close(file)


def _stamp(file: int) -> tuple[int, ...]:
    return _stamp_of(os.fstat(file))


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _changed(path: str) -> CommandError:
    return CommandError(f"{manifest.quote(path)}: changed while it was read: try again", 1)


def _unreadable(path: str, error: OSError) -> CommandError:
    return CommandError(f"{manifest.quote(path)}: {error.strerror}", 1)
