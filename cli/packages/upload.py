"""Brings a package to the daemon: what it lacks, and nothing else."""

# ruff: noqa: PTH112  # texts, as git and manifests have them

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from cli.client import Client
from cli.command import CommandError, note
from cli.connection import Connection
from cli.packages import local_package, selection
from cli.packages.local_package import LocalPackage
from cli.packages.origin import origin_of, summary
from cli.terminal import ProgressLine
from scheduler.packages import manifest
from scheduler.v1 import scheduler_pb2 as pb

FETCHED_MAX = 10_000  # contents that one call names
_ROUNDS_MAX = 4  # a manifest, its files, and what was collected meanwhile
_BIG_BYTES = 16 * 2**20  # from here on, progress is shown
_MIB = 2**20


def store_of(connection: Connection) -> Client:
    """Raises CommandError if what a context names keeps no packages."""
    if not isinstance(connection, Client):
        raise CommandError(f"{connection.server} keeps no packages of code: leave out --code", 4)
    return connection


def package_of(client: Client, code: str, include: Sequence[str] = ()) -> str:
    """Returns the id of what --code names: a folder, which is uploaded, or a stored package."""
    if os.path.isdir(code) and not manifest.is_id(code):
        package, origin = read(code, include)
        upload(client, package, origin)
        note(told(package, origin))
        return package.id
    if "/" in code or code in (".", ".."):
        raise CommandError(f"--code {code}: no such folder", 2)
    if include:
        raise CommandError(f"--include takes files of a folder, and --code {code} is none", 2)
    return client.find_package(code).id


def read(folder: str, include: Sequence[str]) -> tuple[LocalPackage, pb.CodeOrigin]:
    chosen = selection.select(folder, include)
    size = sum(os.lstat(f"{chosen.root}/{path}").st_size for path in chosen.taken)
    with _Shown("reading", size) as shown:
        return local_package.pack(chosen.root, chosen.taken, shown), origin_of(chosen)


def upload(client: Client, package: LocalPackage, origin: pb.CodeOrigin) -> None:
    """Returns when the daemon has it."""
    for _ in range(_ROUNDS_MAX):
        reply = client.store_package(package.id, origin)
        if reply.HasField("package"):
            return
        size = sum(package.entries[line].size for line in reply.missing)
        with _Shown("uploading", size) as shown:
            parts = local_package.parts(package, reply.missing, reply.manifest_missing)
            _put(client, _counted(local_package.batches(parts), shown))
    raise CommandError("the scheduler keeps forgetting the files of the package: try again", 1)


def copy(source: Client, target: Client, package: str, origin: pb.CodeOrigin) -> None:
    """Brings a package from one scheduler to another."""
    own = bytes.fromhex(package.removeprefix(manifest.PREFIX))
    for _ in range(_ROUNDS_MAX):
        reply = target.store_package(package, origin)
        if reply.HasField("package"):
            return
        wanted = {own} if reply.manifest_missing else set[bytes]()
        if reply.missing:
            entries = manifest.decode(fetch(source, package, [own])[own])
            wanted |= {bytes.fromhex(entries[line].digest) for line in reply.missing}
        chosen = sorted(wanted)
        for at in range(0, len(chosen), FETCHED_MAX):
            _put(target, source.fetch_files(package, chosen[at : at + FETCHED_MAX]))
    raise CommandError("the scheduler keeps forgetting the files of the package: try again", 1)


def fetch(client: Client, package: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Returns contents by their hashes."""
    found: dict[bytes, bytearray] = {}
    digest = b""
    for at in range(0, len(digests), FETCHED_MAX):
        for message in client.fetch_files(package, digests[at : at + FETCHED_MAX]):
            for part in message.parts:
                digest = part.digest or digest
                found.setdefault(digest, bytearray()).extend(part.data)
    contents = {digest: bytes(content) for digest, content in found.items()}
    for digest, content in contents.items():
        if hashlib.sha256(content).digest() != digest:
            raise CommandError(f"{package[:19]}: the scheduler sent another content", 1)
    return contents


def told(package: LocalPackage, origin: pb.CodeOrigin) -> str:
    """`code: sha256:ab12cd34ef56 (41 files, git 3f2c1a9 dirty)`"""
    files = f"{len(package.entries)} file{'' if len(package.entries) == 1 else 's'}"
    about = ", ".join(filter(None, (files, summary(origin))))
    return f"code: {package.id[:19]} ({about})"


def _put(client: Client, messages: Iterator[pb.FileParts]) -> None:
    """An error of ours while the messages are made is told as it is, not as a failed call."""
    failed: list[CommandError] = []

    def checked() -> Iterator[pb.FileParts]:
        try:
            yield from messages
        except CommandError as error:
            failed.append(error)
            raise

    try:
        client.put_files(checked())
    except CommandError:
        raise (failed[0] if failed else sys.exception()) from None  # type: ignore[misc]


def _counted(
    messages: Iterator[pb.FileParts], shown: Callable[[int], None]
) -> Iterator[pb.FileParts]:
    sent = 0
    for message in messages:
        yield message
        sent += sum(len(part.data) for part in message.parts)
        shown(sent)


class _Shown:
    """Shows how far something is, if it may take long and a person looks."""

    def __init__(self, what: str, size: int) -> None:
        self._what, self._size = what, size
        self._line = ProgressLine(sys.stderr) if size >= _BIG_BYTES else None

    def __call__(self, done: int) -> None:
        if self._line:
            part = min(100, 100 * done // self._size)
            self._line.draw(f"{self._what} {part} % of {self._size / _MIB:,.0f} MiB")

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            self._line.clear()
