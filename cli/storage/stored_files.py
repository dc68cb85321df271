"""What every storage offers, and which names of files are safe to use. No files, no network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from cli.command import CommandError

FILE, FOLDER, OTHER = "file", "folder", "other"
PIECE_BYTES = 1024 * 1024


class StoredFile(NamedTuple):
    path: str  # from the folder on that was asked for; "": the file itself
    kind: str
    size: int = 0
    modified_at: float = 0.0
    version: str = ""  # changes when the content does
    why: str = ""  # it cannot be copied


class CopySource(NamedTuple):
    """A file that is to be copied."""

    name: str  # of the place and the path, for messages
    file: StoredFile
    read: Callable[[int], Iterator[bytes]]  # from this byte on; raises ChangedError

    @property
    def identity(self) -> str:
        """Of these bytes. What an interrupted copy has got belongs to one of them only."""
        told = "\0".join((self.name, str(self.file.size), self.file.version))
        return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:16]


class ChangedError(CommandError):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} changed while it was copied: run the command again", 1)


class Storage(Protocol):
    """Paths are those of the user. Each method raises CommandError, which names the file."""

    def named(self, path: str) -> str:
        """As messages name it."""

    def look(self, path: str, follow: bool = True) -> StoredFile:
        """One file or folder; `follow`: what a link leads to. A missing one is a MissingError."""

    def list(self, path: str) -> list[StoredFile]:
        """What is in a folder, sorted by name."""

    def below(self, path: str) -> Iterator[StoredFile]:
        """All files in a folder and in its folders, and what is no file."""

    def read(self, path: str, file: StoredFile, start: int) -> Iterator[bytes]:
        """Raises ChangedError if it is no longer that version."""

    def has(self, path: str, file: StoredFile) -> bool:
        """Whether a copy of that version is there."""

    def write(
        self, folder: str, path: str, source: CopySource, progress: Callable[[int], None]
    ) -> None:
        """Goes on where an interrupted copy of the same version stopped. The file is there when it
        is whole. `progress` is told how many bytes are there."""

    def remove(self, path: str, progress: Callable[[int], None]) -> None:
        """A file, or a folder with all that is in it."""


class MissingError(CommandError):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: no such file or folder", 2)


def joined(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path}" if path else folder


def unsafe(path: str) -> str:
    """Why a name from elsewhere cannot be a path below a folder here; "": it can."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "its name leaves the folder, or is no name of a file"
    if any(len(part.encode(errors="surrogateescape")) > 255 for part in parts):
        return "its name is too long"
    return ""
