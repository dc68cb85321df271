"""A room: a new home and a network of its own, on this machine or on a bare Debian.

README's port is 7070, which another daemon of this machine may have; in a room it is free. When the
room is closed, the kernel ends every process in it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cache import absent
from tests.first_hour.terminal import Terminal
from tests.kube.processes import Process
from tests.support import eventually

ROOT = Path(__file__).parents[2]
NEEDED = ("git", "ip", "nsenter", "setpriv", "unshare")
SPACES = ("--net", "--pid", "--mount")
BEGIN = "set -e; ip link set lo up; {mounts} touch {ready}; exec sleep infinity"


def missing(*programs: str) -> str | None:
    """Returns why there can be no room here; empty if there can be one."""
    if os.geteuid() != 0:
        return "only root can make a network with a free port 7070"
    return absent(*NEEDED, *programs)


@dataclass(frozen=True, slots=True)
class Room:
    pid: int  # of a process in it
    home: Path  # as it is called inside
    environment: Mapping[str, str]
    into: tuple[str, ...] = field(default=())  # words that lead to its root folder and user

    def terminal(self, folder: Path | None = None) -> Terminal:
        enter = ("nsenter", "--target", str(self.pid), *SPACES, *self.into)
        home = {"HOME": str(self.home), "LANG": "C.UTF-8"}
        return Terminal(folder or self.home, {**home, **self.environment}, enter)


@contextlib.contextmanager
def opened(
    folder: Path,
    home: Path,
    environment: Mapping[str, str],
    mounts: str = "",
    into: tuple[str, ...] = (),
) -> Iterator[Room]:
    """`mounts`: shell commands that prepare its files, each ended by `;`."""
    ready = folder / "ready"
    words = ["sh", "-c", BEGIN.format(mounts=mounts, ready=ready)]
    apart = ["unshare", *SPACES, "--fork", "--kill-child", "--mount-proc", "--"]
    process = Process("room", [*apart, *words], folder / "room.log")
    process.start()
    try:
        eventually(lambda: process.check() or ready.exists())  # type: ignore[func-returns-value]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        yield Room(int(children), home, environment, into)
    finally:
        process.kill()


def bundle(folder: Path) -> Path:
    """The last commit as a file from which anybody can clone."""
    path = folder / "epoch-scheduler.bundle"
    subprocess.run(["git", "-C", ROOT, "bundle", "create", "--quiet", path, "HEAD"], check=True)
    path.chmod(0o644)
    return path
