"""A small disk for a daemon's state folder, filled beyond the reserve and freed again all the time.

It is a file with an ext4 on it, mounted where only this process and its children see it, so that
the mount is gone when they are, however they end. Logs have a cap that each of them exceeds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from scheduler.clusters.capped_log import free_bytes

MIB = 2**20
DISK_MIB = 8192  # most of it never written: the ballast is allocated only
LOG_MIB, RESERVE_MIB = 1, 64
SETTINGS = {
    "SCHEDULER_HOUSEKEEPING__LOG_MIB": str(LOG_MIB),
    "SCHEDULER_HOUSEKEEPING__DISK_RESERVE": str(RESERVE_MIB),
}
# What is left free: surely too little, surely enough, or so little more than the reserve that the
# logs themselves use it up.
LOW_MIB, ROOM_MIB, EDGE_MIB = RESERVE_MIB // 2, 4 * RESERVE_MIB, RESERVE_MIB + 1
WITHIN_SECONDS = 2.0
AROUND_SECONDS = 0.1  # between a moment and the time that a file system notes for it
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000

Spans = Sequence[tuple[float, float]]


class CannotMountError(Exception):
    """Why, in one line."""


@contextlib.contextmanager
def mounted(folder: Path, chance: random.Random) -> Iterator[SmallDisk]:
    """The mount namespace of this process is another one from here on."""
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        raise CannotMountError("--full mounts a small disk, and only root can")
    image = folder.with_name("disk.img")
    with image.open("wb") as file:
        file.truncate(DISK_MIB * MIB)
    folder.mkdir()
    for words in (
        ("mkfs.ext4", "-q", "-F", "-m", "0", image),
        ("mount", "-o", "loop", image, folder),
    ):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join(done.stderr.split())
            raise CannotMountError(f"--full cannot mount a small disk here: {said}")
    disk = SmallDisk(folder, chance)
    disk.start()
    try:
        yield disk
    finally:
        disk.stop()
        subprocess.run(["umount", "--lazy", folder], check=True)


class SmallDisk:
    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = str(folder), chance
        self._ballast = os.open(folder / "ballast", os.O_RDWR | os.O_CREAT, 0o600)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._change_on)
        self.crossings = 0
        self._had_room: list[tuple[float, float]] = []
        self._was_low: list[tuple[float, float]] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        os.close(self._ballast)

    def had_room(self, begin: float, end: float) -> bool:
        """Whether there surely was more than the reserve free all this time."""
        return _within(self._had_room, begin, end)

    def was_low(self, begin: float, end: float) -> bool:
        """Whether there surely was less than the reserve free all this time."""
        return _within(self._was_low, begin, end)

    def _change_on(self) -> None:
        low, left = False, ROOM_MIB  # at first, so that there are jobs
        while not self._stopped.is_set():
            self._leave(left)
            began_at = time.time()
            self._stopped.wait(self._chance.uniform(0.0, WITHIN_SECONDS))
            free, span = free_bytes(self._folder), (began_at, time.time())
            if left == LOW_MIB and free < RESERVE_MIB * MIB:
                self._was_low.append(span)
            if left == ROOM_MIB and free > 2 * RESERVE_MIB * MIB:
                self._had_room.append(span)
            self.crossings += low != (free < RESERVE_MIB * MIB)
            low = free < RESERVE_MIB * MIB
            left = self._chance.choice((LOW_MIB, ROOM_MIB, EDGE_MIB))

    def _leave(self, mib: int) -> None:
        """Allocates or frees ballast until so much is free."""
        more = free_bytes(self._folder) - mib * MIB
        size = max(0, os.fstat(self._ballast).st_size + more)
        if more > 0:
            os.posix_fallocate(self._ballast, 0, size)
        else:
            os.ftruncate(self._ballast, size)


def _within(spans: Spans, begin: float, end: float) -> bool:
    first, last = begin - AROUND_SECONDS, end + AROUND_SECONDS
    return any(span[0] <= first and last <= span[1] for span in spans)
