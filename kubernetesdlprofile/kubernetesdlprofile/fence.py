"""Keeps what is left of an older run of a job from replacing the checkpoints of a newer one.

Theory of operation. Whoever begins makes a folder with its run's number in the name, in that of
the job, and then removes those of all older runs. A process that saves makes one for itself, and
what it puts into place it moves there first, and from there. A move into or out of a folder that is
gone fails, at the file system, in one step, and without a lock that a dead process might hold. So
as soon as a run has begun, nothing of an older one gets into place any more; a process of that
which makes its folder later finds the newer run's.

It holds where all see a name change in one step: on local disks and, as it is the server that knows
which folder is gone, on NFS. It does not on object stores that pretend to have folders.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Iterator, Optional, Tuple

from kubernetesdlprofile.log import warn

_BEGINNING = ".run-"


class Fence:
    def __init__(self, root: str, attempt: int) -> None:
        """From now on older runs put nothing into place below `root`."""
        self._root, self._attempt = Path(root), attempt
        self._own: Optional[Path] = None
        try:
            self._enter(str(attempt))
        except OSError as error:
            warn(f"older runs are not kept from this one's checkpoints: {error}")

    def put(self, file: Path, path: Path) -> None:
        """Move a file to `path`. Raises OSError, also if a newer run has begun."""
        if path.parent.stat().st_dev == self._root.stat().st_dev:  # else it could not be moved
            if self._own is None:
                self._own = self._enter(f"{self._attempt}-{os.urandom(6).hex()}")
            passed = self._own / file.name
            file.replace(passed)
            file = passed
        file.replace(path)

    @property
    def closed(self) -> bool:
        """Whether that was why."""
        return self._own is not None and not self._own.is_dir()

    def _enter(self, name: str) -> Path:
        own = self._root / (_BEGINNING + name)
        own.mkdir(exist_ok=True)
        for attempt, folder in list(self._folders()):  # now, or two might miss each other
            if attempt < self._attempt:
                _remove(folder)
            elif attempt > self._attempt:
                _remove(own)
        return own

    def _folders(self) -> Iterator[Tuple[int, Path]]:
        for folder in self._root.iterdir():
            attempt = folder.name[len(_BEGINNING) :].partition("-")[0]
            if folder.name.startswith(_BEGINNING) and attempt.isdecimal():
                yield int(attempt), folder


def _remove(folder: Path) -> None:
    """Also while somebody goes on to put files there."""
    try:
        for file in list(folder.iterdir()):
            with suppress(FileNotFoundError):
                file.unlink()
        folder.rmdir()
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            _remove(folder)
        elif error.errno != errno.ENOENT:
            raise
