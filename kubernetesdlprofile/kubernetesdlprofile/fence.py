"""Keeps leftover processes of an older run from replacing the checkpoints of a newer run.

Theory of operation. A run that begins makes a folder inside the job's folder, with the run's number
in the name, and then removes the folders of all older runs. A process that saves makes a folder for
itself, moves each file into it first, and from there to its place. A move into or out of a folder
that is gone fails at the file system, in one step, and without a lock that a dead process might
hold. So once a run has begun, no file of an older run gets into place any more; a process of the
older run that makes its folder later finds the newer run's folder.

This works where every machine sees a rename in one step: on local disks and, because the server
knows which folder is gone, on NFS. It does not work on object stores that imitate folders.
"""

import os
from pathlib import Path
from typing import Iterator, Optional, Tuple

from kubernetesdlprofile import folders
from kubernetesdlprofile.log import warn

_BEGINNING = ".run-"


class Fence:
    def __init__(self, root: str, attempt: int) -> None:
        """From now on, older runs can put no file into place below `root`."""
        self._root, self._attempt = Path(root), attempt
        self._own: Optional[Path] = None
        try:
            self._enter(str(attempt))
        except OSError as error:
            warn(f"older runs of this job may still replace its checkpoints: {error}")

    def put(self, file: Path, path: Path) -> None:
        """Moves a file to `path`. Raises OSError, also if a newer run has begun."""
        if path.parent.stat().st_dev == self._root.stat().st_dev:  # no move between file systems
            if self._own is None:
                self._own = self._enter(f"{self._attempt}-{os.urandom(6).hex()}")
            passed = self._own / file.name
            file.replace(passed)
            file = passed
        folders.replace(file, path)

    @property
    def closed(self) -> bool:
        """Whether a newer run has begun."""
        return self._own is not None and not self._own.is_dir()

    def _enter(self, name: str) -> Path:
        own = self._root / (_BEGINNING + name)
        own.mkdir(exist_ok=True)
        for attempt, folder in list(
            self._folders()
        ):  # after mkdir, or two runs might miss each other
            if attempt < self._attempt:
                folders.remove(folder)
            elif attempt > self._attempt:
                folders.remove(own)
        return own

    def _folders(self) -> Iterator[Tuple[int, Path]]:
        for folder in self._root.iterdir():
            attempt = folder.name[len(_BEGINNING) :].partition("-")[0]
            if folder.name.startswith(_BEGINNING) and attempt.isdecimal():
                yield int(attempt), folder
