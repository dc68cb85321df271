"""What a code package is: a list of files, and its id, the hash of that list.

The same tree has the same id on any machine: names are sorted by their bytes, a file is executable
or not, and neither times nor owners count. Both sides check a manifest before they use it, so that
unpacking can never write outside of its folder. Standard library only: runners import it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PREFIX = "sha256:"
FILES_MAX = 100_000
BYTES_MAX = 2**30 * 64  # of all files together, unpacked
MANIFEST_BYTES_MAX = 32 * 2**20
NAME_BYTES_MAX, PATH_BYTES_MAX = 255, 1024

_HEADER = "epoch-scheduler package 1"
_ID = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIZE = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)
_CONTROL = re.compile("[\0-\x1f\x7f]")
FILE, PROGRAM, LINK = "file", "program", "link"


class BadPackage(ValueError):
    """The message is one line that names the culprit."""


@dataclass(frozen=True, slots=True)
class PackagedFile:
    path: str
    kind: str = FILE
    size: int = 0
    digest: str = ""  # of its content, in hex; empty for a link
    target: str = ""  # of a link

    @property
    def line(self) -> str:
        what = [self.target] if self.kind == LINK else [str(self.size), self.digest]
        return "\t".join([self.kind, self.path, *what])


def encode(entries: Iterable[PackagedFile]) -> bytes:
    """Returns the manifest. Raises BadPackage if these files cannot be a package."""
    ordered = sorted(entries, key=lambda entry: entry.path.encode(errors="surrogatepass"))
    check(ordered)
    lines = [_HEADER, *(entry.line for entry in ordered)]
    return "".join(f"{line}\n" for line in lines).encode()


def decode(manifest: bytes) -> list[PackagedFile]:
    """Raises BadPackage unless the manifest is one that `encode` could have made."""
    if len(manifest) > MANIFEST_BYTES_MAX:
        raise BadPackage(f"its manifest has {len(manifest)} bytes, {MANIFEST_BYTES_MAX} at most")
    try:
        header, *lines = manifest.decode().split("\n")
    except UnicodeDecodeError:
        raise BadPackage("its manifest is not UTF-8") from None
    if header != _HEADER or not lines or lines.pop():
        raise BadPackage("its manifest is not one of this version")
    if len(lines) > FILES_MAX:
        raise BadPackage(f"it has {len(lines)} files, {FILES_MAX} at most")
    entries = [_entry(line) for line in lines]
    check(entries)
    return entries


def package_id(manifest: bytes) -> str:
    return PREFIX + hashlib.sha256(manifest).hexdigest()


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def total(entries: Iterable[PackagedFile]) -> int:
    """The bytes of all files, unpacked."""
    return sum(entry.size for entry in entries)


# --- what is refused ------------------------------------------------------------------------------


def check(entries: Sequence[PackagedFile]) -> None:
    if len(entries) > FILES_MAX:
        raise BadPackage(f"it has {len(entries)} files, {FILES_MAX} at most")
    paths = {entry.path for entry in entries}
    before = b""
    sizes: dict[str, int] = {}
    for entry in entries:
        check_path(entry.path)
        name = entry.path.encode()
        if name <= before:
            raise BadPackage(f"{quote(entry.path)}: is there twice, or the order is wrong")
        before = name
        if above := _file_above(entry.path, paths):
            raise BadPackage(f"{quote(entry.path)}: {quote(above)} is not a folder")
        _check_content(entry)
        if entry.kind != LINK and sizes.setdefault(entry.digest, entry.size) != entry.size:
            raise BadPackage(f"{quote(entry.path)}: two sizes are told of its content")
    if (size := total(entries)) > BYTES_MAX:
        raise BadPackage(f"it has {size} bytes, {BYTES_MAX} at most")


def check_path(path: str) -> None:
    """Raises BadPackage unless it names something below the folder of a package."""
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        raise BadPackage(f"{quote(path)}: the name is not UTF-8") from None
    if _CONTROL.search(path):
        raise BadPackage(f"{quote(path)}: the name has control characters")
    if len(raw) > PATH_BYTES_MAX:
        raise BadPackage(f"{quote(path)}: the path has {len(raw)} bytes, {PATH_BYTES_MAX} at most")
    for name in path.split("/"):
        if name in ("", ".", ".."):
            raise BadPackage(f"{quote(path)}: is not a path in a package")
        if name == ".git":
            raise BadPackage(f"{quote(path)}: a package contains no .git")
        if len(name.encode()) > NAME_BYTES_MAX:
            raise BadPackage(f"{quote(path)}: a name is longer than {NAME_BYTES_MAX} bytes")


def check_link(path: str, target: str) -> None:
    """Raises BadPackage unless the link leads to a place in the package, wherever the other links
    in it lead: `..` only goes up from where the link is, and never out."""
    parts = target.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    inside = ups <= path.count("/") and ".." not in parts[ups:] and not target.startswith("/")
    if not (target and inside):
        raise BadPackage(f"{quote(path)}: is a link that leaves the package: {quote(target)}")
    if _CONTROL.search(target) or len(target.encode(errors="replace")) > PATH_BYTES_MAX:
        raise BadPackage(f"{quote(path)}: its target has control characters, or is too long")


def quote(path: str) -> str:
    """One printable line, not too long."""
    shown = path if len(path) <= 200 else path[:200] + "..."
    return shown if shown.isprintable() and shown else ascii(shown)


def _entry(line: str) -> PackagedFile:
    match line.split("\t"):
        case [("file" | "program") as kind, path, size, digest] if _SIZE.fullmatch(size):
            return PackagedFile(path, kind, int(size), digest)
        case ["link", path, target]:
            return PackagedFile(path, LINK, target=target)
    raise BadPackage(f"{quote(line)}: is not a line of a manifest")


def _check_content(entry: PackagedFile) -> None:
    if entry.kind == LINK:
        check_link(entry.path, entry.target)
    elif entry.kind not in (FILE, PROGRAM):
        raise BadPackage(f"{quote(entry.path)}: is neither a file nor a link")
    elif not _DIGEST.fullmatch(entry.digest) or entry.size < 0:
        raise BadPackage(f"{quote(entry.path)}: its hash or size is not valid")


def _file_above(path: str, paths: set[str]) -> str:
    """A file or link on the way to this path; empty: there is none."""
    at = path.find("/")
    while at > 0:
        if path[:at] in paths:
            return path[:at]
        at = path.find("/", at + 1)
    return ""
