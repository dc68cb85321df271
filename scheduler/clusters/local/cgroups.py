"""A cgroup for each run, where the kernel lets us make one: no process of the run can leave it.

This needs cgroup v2, and root or a part of the tree that is delegated to us. Runners use this
module, therefore it imports only the standard library.
"""

# ruff: noqa: PTH102, PTH106, PTH118, PTH123  # as in runner.py

from __future__ import annotations

import contextlib
import os
import signal


def make(name: str) -> str:
    """Makes a cgroup below our own and returns its folder; empty: this is not possible."""
    try:
        folder = os.path.join(own_folder(), name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        with open(f"{folder}/cgroup.procs", "wb"):
            return folder
    except OSError:
        return ""


def own_folder() -> str:
    """Raises OSError if there is no cgroup v2."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line.split(" - ") for line in file]
    for before, after in (mount for mount in mounts if len(mount) == 2):
        if after.startswith("cgroup2 "):
            root, place = before.split()[3:5]
            with open("/proc/self/cgroup", encoding="utf-8") as file:
                own = next((line[3:].strip() for line in file if line.startswith("0::")), "/")
            return os.path.normpath(f"{place}/{os.path.relpath(own, root)}")
    raise FileNotFoundError("cgroup2")


def enter(folder: str) -> None:
    """Puts this process, and all that it will start, into the cgroup; not possible: nothing."""
    with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", "wb", buffering=0) as file:
        file.write(b"0")


def processes(folder: str) -> list[int]:
    """Returns the processes in the cgroup and in those below it."""
    found: list[int] = []
    for inner, _, _ in os.walk(folder):
        with contextlib.suppress(OSError), open(f"{inner}/cgroup.procs", "rb") as file:
            found += map(int, file.read().split())
    return found


def end(folder: str) -> bool:
    """Kills all that is in the cgroup, and removes it if it is empty. Returns whether any was
    alive."""
    left = processes(folder)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if not left:
        for inner, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(inner)
    return bool(left)
