"""What differs between the packages of two jobs, as a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from cli.client import Client
from cli.packages.upload import fetch
from scheduler.packages import manifest
from scheduler.packages.manifest import LINK, PROGRAM, PackagedFile

SHOWN_BYTES_MAX = 2**20  # of a file whose lines are compared
_LINES_MAX = 20_000

Files = Mapping[str, PackagedFile]


def files_of(client: Client, package: str) -> Files:
    """Raises CallError with NOT_FOUND if it is gone, or another user's."""
    own = bytes.fromhex(package.removeprefix(manifest.PREFIX))
    return {file.path: file for file in manifest.decode(fetch(client, package, [own])[own])}


def difference(client: Client, old: str, new: str) -> Iterator[str]:
    """Line by line; none if the packages are the same."""
    before, after = files_of(client, old), files_of(client, new)
    paths = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    texts = (_texts(client, old, before, paths), _texts(client, new, after, paths))
    for path in paths:
        yield from _of_file(path, before.get(path), after.get(path), *texts)


def _texts(client: Client, package: str, files: Files, paths: list[str]) -> dict[str, bytes]:
    """The contents by hash, of all that are small enough to be shown."""
    wanted = {
        bytes.fromhex(files[path].digest)
        for path in paths
        if path in files and files[path].digest and files[path].size <= SHOWN_BYTES_MAX
    }
    return {key.hex(): text for key, text in fetch(client, package, sorted(wanted)).items()}


def _of_file(
    path: str,
    old: PackagedFile | None,
    new: PackagedFile | None,
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
) -> Iterator[str]:
    for sign, file in (("-", old), ("+", new)):
        if file and file.kind == LINK:
            yield f"{sign} {path} is a link to {file.target}"
    if old and new and (old.kind == PROGRAM) != (new.kind == PROGRAM):
        yield f"{path} is {'now' if new.kind == PROGRAM else 'no longer'} executable"
    old, new = (file if file and file.kind != LINK else None for file in (old, new))
    if (old and old.digest) == (new and new.digest):
        return
    were, are = _lines(old, before), _lines(new, after)
    if were is None or are is None:
        yield f"{path} differs: {_size(old)}, {_size(new)}"
        return
    names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
    found = list(difflib.unified_diff(were, are, *names, lineterm=""))
    yield from found or [f"{path} is {'new' if new else 'gone'}, and empty"]


def _lines(file: PackagedFile | None, texts: Mapping[str, bytes]) -> list[str] | None:
    """None: it cannot be shown line by line."""
    if file is None:
        return []
    text = texts.get(file.digest)
    if text is None or b"\0" in text or text.count(b"\n") > _LINES_MAX:
        return None
    try:
        return text.decode().splitlines()
    except UnicodeDecodeError:
        return None


def _size(file: PackagedFile | None) -> str:
    return f"{file.size:,} bytes" if file else "not there"
