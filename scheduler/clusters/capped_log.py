"""A log file that takes no more of the disk than it may: its begin and its end are kept.

What is cut out is a hole in the file. So each byte that is kept stays at its place, and a reader
that knows how far it has read finds the rest. The runner of a training uses this, therefore it
imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os

UNIT = 64 * 1024  # holes begin and end at multiples of this: file systems cut out whole blocks
LEAST_BYTES = 8 * UNIT
RESERVE_PARTS = 20  # the reserve is at most this part of a disk, so that small disks are usable
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class CappedLog:
    """The open file; only this object writes to it."""

    def __init__(self, file: int, bytes_max: int, reserve_bytes: int) -> None:
        """`bytes_max`: on disk, 0 for no limit. With less than `reserve_bytes` free there, the file
        does not grow."""
        self._file, self._bytes_max, self._reserve_bytes = file, bytes_max, reserve_bytes
        state = os.fstat(file)
        self._end, self._block = state.st_size, min(state.st_blksize, UNIT)
        # What was not written of the last block: holes consist of whole blocks, and of a block that
        # is half written the other half would be shown as zeros.
        self._left_out = b""

    def write(self, data: bytes) -> None:
        """Never fails: what has no place becomes a hole."""
        at, self._end = self._end - len(self._left_out), self._end + len(data)
        data, self._left_out = self._left_out + data, b""
        try:
            now = data
            if not self._may_grow(len(data)):
                now = data[: -at % self._block]  # what the last block has room for
            while now:
                written = os.pwrite(self._file, now, at)
                now, data, at = now[written:], data[written:], at + written
        except OSError:  # a full disk, or a quota
            pass
        if data:
            self._leave_out(data, at)

    def _leave_out(self, data: bytes, at: int) -> None:
        try:
            os.ftruncate(self._file, self._end)
        except OSError:
            self._end = at  # not even its size can be changed
            return
        self._left_out = data[max(0, len(data) - self._end % self._block) :]

    def _may_grow(self, by_bytes: int) -> bool:
        full = lacks_room(self._file, self._reserve_bytes, by_bytes)
        return not full and cut(self._file, self._bytes_max)


def cut(file: int, bytes_max: int) -> bool:
    """Makes a hole in the middle of a file that takes more of the disk than this. Returns whether
    it may grow: no, if the file system knows no holes."""
    if not bytes_max:
        return True
    state, most = os.fstat(file), max(bytes_max, LEAST_BYTES)
    if state.st_blocks * 512 < most:
        return True
    begin = most // 8 // UNIT * UNIT
    end = (state.st_size - most // 2) // UNIT * UNIT
    if end <= begin:
        return True
    span = ctypes.c_long(begin), ctypes.c_long(end - begin)
    done: int = ctypes.CDLL(None).fallocate(file, _PUNCH_HOLE, *span)
    return done == 0


def lacks_room(place: int | str, reserve_bytes: int, more: int = 0) -> bool:
    """Whether less than the reserve is free on the disk of a file or folder, or would be with so
    many bytes more."""
    return free_bytes(place) - more < min(reserve_bytes, disk_bytes(place) // RESERVE_PARTS)


def free_bytes(place: int | str) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def disk_bytes(place: int | str) -> int:
    disk = os.statvfs(place)
    return disk.f_blocks * disk.f_frsize
