"""The folder of a job's checkpoints, and moves and removals in it."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from kubernetesdlprofile.log import warn


def folder(snapshots: str, job_id: str) -> str:
    """The job's own folder below `snapshots`; a temporary one if it cannot be made."""
    wanted = Path(snapshots, job_id)
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(str(wanted), os.W_OK | os.X_OK):
            return str(wanted)
        why = "no permission to write there"
    except (OSError, ValueError) as error:
        why = str(error)
    private = temporary()
    lost = f"snapshots go to {private}, and a preemption will lose the work"
    warn(f"{wanted} cannot be used ({why}): {lost}")
    return private


def temporary() -> str:
    """A private folder; the current one if none can be made, as on a machine without a disk."""
    import tempfile  # slow to import and rarely needed

    try:
        return tempfile.mkdtemp(prefix="kubeprofiler-")
    except OSError:
        return "."


def replace(new: Path, path: Path) -> None:
    """Moves a file or folder to `path`. A folder cannot replace another in one step: if the process
    is killed between the two, `restore` finds the older one."""
    if path.is_dir():
        remove(_aside(path))
        path.replace(_aside(path))
    new.replace(path)
    remove(_aside(path))


def restore(path: Path) -> None:
    """Moves back what `replace` has moved aside without replacing it."""
    with suppress(OSError):
        if not path.exists():
            _aside(path).replace(path)


def remove(path: Path) -> None:
    """Removes a file or a folder, also while another process still puts files there."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
        for inside in list(path.iterdir()):
            remove(inside)
        path.rmdir()
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            remove(path)
        elif error.errno != errno.ENOENT:
            raise


def _aside(path: Path) -> Path:
    return path.with_name(".old-" + path.name)
