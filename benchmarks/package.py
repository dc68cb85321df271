"""Seconds to package code: what has not changed, what is new, and what a node unpacks.

`python -m benchmarks.package --json`.
There is a real daemon. A folder of 1,000 files is uploaded, in a git work tree, then again as it
is, and with one change. Then new bytes in files of 50 MB are uploaded, and the throughput is
compared with that of the disk, to which as many bytes are written and synced, and of SHA-256, which
both sides compute. Of each, the median of some rounds.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import options, show
from scheduler.packages import unpacking
from tests.support import Daemon

MB = 10**6
FILE_MB = 50
GIT = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def main() -> None:
    given = options(__doc__, files=1_000, new_mb=1_000, rounds=5)
    with tempfile.TemporaryDirectory(dir=_disk()) as folder:
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            code = _code(Path(folder) / "code", given.files)
            first = _seconds(lambda: _upload(daemon, code))
            same = [_seconds(lambda: _upload(daemon, code)) for _ in range(given.rounds)]
            changed = [_changed(daemon, code, number) for number in range(given.rounds)]
            big = [_new(daemon, Path(folder), given.new_mb) for _ in range(3)]
            disk = [_written(Path(folder), given.new_mb) for _ in range(3)]
            package = _upload(daemon, code)
            trees = str(Path(folder) / "trees")
            store = str(daemon.state / "packages" / "contents")
            unpack = _seconds(lambda: unpacking.unpacked(store, package, trees, {}))
            again = _seconds(lambda: unpacking.unpacked(store, package, trees, {}))
            show(
                files=given.files,
                first_seconds=round(first, 3),
                unchanged_seconds=round(statistics.median(same), 3),
                one_changed_seconds=round(statistics.median(changed), 3),
                new_mb=given.new_mb,
                new_mb_per_second=round(given.new_mb / statistics.median(big)),
                disk_mb_per_second=round(given.new_mb / statistics.median(disk)),
                hash_mb_per_second=round(_hashed()),
                unpack_seconds=round(unpack, 3),
                unpacked_before_seconds=round(again, 4),
            )
        finally:
            daemon.end()
            for each in Path(folder).glob("trees/*"):
                unpacking.discard(str(each))
            for each in Path(folder).glob("state/code/*"):
                unpacking.discard(str(each))


def _disk() -> str:
    """A folder on a disk, not in memory."""
    return os.environ.get("TMPDIR", "/var/tmp")


def _code(folder: Path, files: int) -> Path:
    for number in range(files):
        path = folder / f"part{number % 20}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" + "x = 1\n" * 500)
    for words in (("init", "--quiet"), ("add", "."), (*GIT, "commit", "--quiet", "-m", "x")):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


def _upload(daemon: Daemon, folder: Path) -> str:
    done = daemon.run("scheduler-upload-code", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _changed(daemon: Daemon, code: Path, number: int) -> float:
    (code / "part0" / "module0.py").write_text(f"y = {number}\n")
    return _seconds(lambda: _upload(daemon, code))


def _new(daemon: Daemon, folder: Path, megabytes: int) -> float:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for number in range(megabytes // FILE_MB):
        (data / f"{number}.bin").write_bytes(os.urandom(FILE_MB * MB))
    os.sync()  # what is measured is not the writing of these
    return _seconds(lambda: _upload(daemon, data))


def _written(folder: Path, megabytes: int) -> float:
    """Of as many bytes in a file, by one process that does nothing else."""
    piece, path = os.urandom(MB), folder / "plain"

    def write() -> None:
        with path.open("wb") as file:
            for _ in range(megabytes):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    taken = _seconds(write)
    path.unlink()
    return taken


def _hashed() -> float:
    """Megabytes a second that one processor hashes."""
    piece = os.urandom(FILE_MB * MB)
    return FILE_MB / min(_seconds(lambda: hashlib.sha256(piece).digest()) for _ in range(5))


if __name__ == "__main__":
    main()
