"""Opens files below a folder without following any link: whoever may write there could exchange a
folder for a link at any moment. Standard library only: runners and clients import it."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Beneath:
    """The files below one folder. Keeps the folders on the way to the last file open. Not for
    several threads."""

    def __init__(self, folder: str) -> None:
        """Links on the way to the folder itself are followed."""
        self._files = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._names: list[str] = []

    def parent(self, path: str, make: bool = False) -> tuple[int, str]:
        """Returns the folder of this file, open, and the file's name in it. `make`: folders that
        are missing are made."""
        *names, last = path.split("/")
        same = 0
        while same < min(len(names), len(self._names)) and names[same] == self._names[same]:
            same += 1
        self._leave(same)
        for name in names[same:]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=self._files[-1])
            self._files.append(os.open(name, _FOLDER, dir_fd=self._files[-1]))
            self._names.append(name)
        return self._files[-1], last

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Also not a link at its end. Does not wait for a pipe."""
        folder, name = self.parent(path, make=bool(flags & os.O_CREAT))
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, mode, dir_fd=folder)

    def close(self) -> None:
        self._leave(0)
        os.close(self._files.pop())

    def _leave(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._files.pop())

    def __enter__(self) -> Beneath:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
