"""The control groups of a test run: all below one, `ROOT`, and removed with it.

The kernel does not remove them by itself, so each run removes those that an earlier one left.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support import eventually

MOUNT = Path("/sys/fs/cgroup")
ROOT = "epoch-scheduler-test"


def create(name: str) -> str:
    """Makes a group below ours, in every hierarchy. Returns the path that a kubelet uses for it."""
    for hierarchy in _hierarchies():
        group = hierarchy / ROOT / name
        group.mkdir(parents=True, exist_ok=True)
        for parent in (group.parent.parent, group.parent):  # version 2 requires it
            _delegate(parent)
    for cpuset in MOUNT.glob(f"cpuset/{ROOT}"):  # version 1 begins with an empty one
        for group in (cpuset, cpuset / name):
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((group.parent / file).read_text())
    return f"/{ROOT}/{name}"


def remove() -> None:
    """Removes all of our groups, and the processes that still run in them."""
    eventually(_gone)


def _gone() -> bool:
    for top in (hierarchy / ROOT for hierarchy in _hierarchies()):
        for folder, _, _ in os.walk(top, topdown=False):
            for pid in _processes(Path(folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):  # its last process is not quite gone
                Path(folder).rmdir()
    return not any((hierarchy / ROOT).exists() for hierarchy in _hierarchies())


def _hierarchies() -> list[Path]:
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return sorted({path.resolve() for path in MOUNT.iterdir() if path.is_dir()})


def _delegate(group: Path) -> None:
    controllers = group / "cgroup.controllers"
    if controllers.exists():
        with contextlib.suppress(OSError):  # some may be in use otherwise
            wanted = " ".join(f"+{name}" for name in controllers.read_text().split())
            (group / "cgroup.subtree_control").write_text(wanted)


def _processes(group: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from map(int, (group / "cgroup.procs").read_text().split())
