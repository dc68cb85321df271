"""A job's package on this machine: unpacked once, read-only, and shared by all jobs that have it.

The state folder is closed to everybody but the daemon's user. A daemon that is root shows the job
the folder as /code, in a view of the file system that only this job has. Any other daemon has the
user of its jobs, so these use the folder where it is. Standard library only: runners import it.
"""

# ruff: noqa: PTH101, PTH102, PTH112  # no pathlib: a runner stays small

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

PLACE = "/code"
PLACE_MODE = 0o555  # of the folder in which it is shown, if this program makes it
_NEW_NAMESPACE = 0x20000  # CLONE_NEWNS
_BIND, _REMOUNT, _RECURSIVE, _SLAVE = 0x1000, 0x20, 0x4000, 0x80000
_READ_ONLY = 0x1 | 0x2 | 0x4  # MS_RDONLY | MS_NOSUID | MS_NODEV


def is_mounted() -> bool:
    """Whether jobs see their packages as /code."""
    return os.geteuid() == 0


def place(trees: str, package: str, folders: Mapping[str, str]) -> str:
    """Where a job sees its package."""
    from scheduler.packages import unpacking  # 2.4 MB, which a runner without a package lacks

    return PLACE if is_mounted() else f"{trees}/{unpacking.tree_name(package, folders)}"


def unpack(wanted: Mapping[str, Any]) -> str:
    """Returns the folder of the package. Raises OSError, or BadPackage."""
    from scheduler.packages import unpacking  # at the start of a run, and as above

    return unpacking.unpacked(
        wanted["store"], wanted["package"], wanted["trees"], wanted["folders"]
    )


def mount(tree: str) -> None:
    """Shows the folder to this process as /code, and to no other. Raises OSError."""
    if not os.path.isdir(PLACE):
        os.mkdir(PLACE)
        os.chmod(PLACE, PLACE_MODE)
    libc = make_own_view()
    file = os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        check(libc.mount(b"/proc/self/fd/%d" % file, PLACE.encode(), None, _BIND, None), PLACE)
    finally:
        os.close(file)
    check(libc.mount(None, PLACE.encode(), None, _BIND | _REMOUNT | _READ_ONLY, None), PLACE)


def make_own_view() -> ctypes.CDLL:
    """What this process mounts from now on, no other one sees. Returns the C library."""
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.unshare(_NEW_NAMESPACE), "/")
    check(libc.mount(None, b"/", None, _RECURSIVE | _SLAVE, None), "/")
    return libc


def check(result: int, path: str) -> None:
    if result:
        why = f"{os.strerror(ctypes.get_errno())}: the daemon may not mount (CAP_SYS_ADMIN)"
        raise OSError(ctypes.get_errno(), why, path)
