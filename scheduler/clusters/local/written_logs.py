"""Which files a training writes for TensorBoard or wandb, seen from beside it.

A script that knows of no scheduler writes them wherever it likes, perhaps where other jobs do. What
a process of the training has open is the training's, and so is what bears the number of such a
process, or the job's id.
"""

# Part of the runner, which stays as small as it can: no pathlib.
# ruff: noqa: PTH115, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator

ENTRIES_MAX, DEPTH_MAX = 2000, 4  # of a folder
OPEN_FILES_MAX = 5000  # of a process
_OF_PROCESS = re.compile(r"\.tfevents\.\d+\..*\.(\d+)\.\d+(\.v2)?")


def is_log(name: str) -> bool:
    """Or what a relay has left."""
    return ".tfevents." in name or name.endswith((".wandb", ".ndjson"))


def has_logs(folder: str) -> bool:
    return next(logs_in(folder), None) is not None


def logs_in(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields those among the first entries below it."""
    left, folders = ENTRIES_MAX, [(folder, 0)]
    while folders and left > 0:
        place, depth = folders.pop()
        with contextlib.suppress(OSError), os.scandir(place) as found:
            for entry in found:
                left -= 1
                if is_log(entry.name):
                    yield entry
                elif depth < DEPTH_MAX and entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))
                if left <= 0:
                    break


def descendants(pid: int) -> set[int]:
    """Its children, and theirs. All of /proc need not be read for this; where the kernel tells no
    children, none are found."""
    found, left = set[int](), [pid]
    while left:
        tasks = f"/proc/{left.pop()}/task"
        with contextlib.suppress(OSError):
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/children", encoding="ascii") as file:
                    more = [int(child) for child in file.read().split()]
                found.update(more)
                left += more
    return found


def open_logs(pids: Iterable[int]) -> set[str]:
    """What these processes have open."""
    found = set()
    for pid in pids:
        files = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for number in os.listdir(files)[:OPEN_FILES_MAX]:
                with contextlib.suppress(OSError):  # closed by now
                    path = os.readlink(f"{files}/{number}")
                    if is_log(os.path.basename(path)):
                        found.add(path)
    return found


def left_logs(
    places: Iterable[str], known: Iterable[str], since: float, pids: set[int], job_id: str
) -> set[str]:
    """What a training has closed: what was written since then and is its own. In `places`, others
    may write; a folder in which it had a file open, one of `known`, belongs to its run. Beside
    such a folder it may have written, too."""
    shared, found = set(places), set()
    own = {os.path.dirname(path) for path in known} - shared
    shared |= {os.path.dirname(folder) for folder in own} - {"/"}
    for place in (*shared, *own):
        for entry in logs_in(place):
            named = _OF_PROCESS.search(entry.name)
            is_own = int(named[1]) in pids if named else entry.name == f"run-{job_id}.wandb"
            with contextlib.suppress(OSError):
                is_new = entry.stat(follow_symlinks=False).st_mtime >= since
                if is_new and (is_own or (not named and place in own)):
                    found.add(entry.path)
    return found
