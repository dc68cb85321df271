"""File servers that fail: mounts of FUSE without a server that answers. They take root."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

MNT_DETACH = 2


@contextlib.contextmanager
def silent_file_server(folder: Path) -> Iterator[None]:
    """A mounted file system that never answers."""
    with _mounted(folder):
        yield


@contextlib.contextmanager
def dead_file_server(folder: Path) -> Iterator[None]:
    """A mounted file system that has lost its server."""
    with _mounted(folder) as server:
        os.close(server)
        yield


@contextlib.contextmanager
def _mounted(folder: Path) -> Iterator[int]:
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("cannot mount a file system here")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    c = ctypes.CDLL(None)
    try:
        if c.mount(b"server", bytes(folder), b"fuse", 0, options.encode()):
            pytest.skip("cannot mount a file system here")
        try:
            yield server
        finally:
            c.umount2(bytes(folder), MNT_DETACH)
    finally:
        with contextlib.suppress(OSError):
            os.close(server)
