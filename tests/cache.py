"""What tests build or download once and keep outside the checkout, such as bare Debians."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CacheError(Exception):
    """An error, in one line for the user."""


class Cache:
    """A folder of this user. What is in it is complete: it was made as a `.part`."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def folder(self) -> Path:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "epoch-scheduler" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time fills it."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def say(self, line: str) -> None:
        print(f"{self.name}: {line}", file=sys.stderr, flush=True)

    def run(self, *words: str | Path) -> str:
        """Returns what it prints. Its mounts and processes end with it, and it ends with this
        process."""
        dying = ("setpriv", "--pdeathsig", "KILL", "--")
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
        log = self.folder / "log"
        with log.open("w") as told:
            done = subprocess.run(
                [*dying, *apart, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
                env={**os.environ, "PATH": f"{os.environ['PATH']}:{PATH}"},
            )
        if done.returncode != 0:
            with log.open("a") as told:
                told.write(done.stdout)  # debootstrap complains there
            raise CacheError(f"{words[0]} failed; {log} says why")
        return done.stdout.strip()

    def make_debian(self, suite: str, root: Path, *packages: str) -> None:
        """Debian's smallest system, with these packages."""
        self.say(f"making a bare {suite}")
        included = [f"--include={','.join(packages)}"] if packages else []
        self.run("debootstrap", "--variant=minbase", *included, suite, root)


def absent(*programs: str) -> str | None:
    """Names those that this machine lacks; None if it has all."""
    lacking = [name for name in programs if not shutil.which(name)]
    return f"no {' and no '.join(lacking)} on this machine" if lacking else None
