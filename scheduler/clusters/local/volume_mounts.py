"""A job's volumes on this machine: folders that it sees at other places as well.

A daemon that is root shows them in a view of the file system that only the job has. What is shown,
and where, is opened with the rights of the job's user. The job gets no further rights by programs
such as sudo, which would trust a folder that is shown in place of their own. Any other daemon can
mount nothing: words of the command that begin with DST get SRC instead (see environment.py).
Standard library only: runners import it.
"""

# ruff: noqa: PTH103  # no pathlib: a runner stays small

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator, Sequence

from scheduler.clusters.local import code_folder

FOLDER = os.O_PATH | os.O_DIRECTORY
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # the numbers of the calls, since Linux 5.12
CLONE, CLOSE_ON_EXEC, RECURSIVE, OF_FILE = 0x1, 0x80000, 0x8000, 0x1000  # flags of such calls
FILE_TO_FILE = 0x4 | 0x40
READ_ONLY, NO_SETUID, NO_DEVICES = 0x1, 0x2, 0x4
NO_NEW_PRIVILEGES = 38

Wanted = Sequence[tuple[str, str, bool]]  # SRC, DST, whether it is read-only; the outer DST first


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "cleared", "propagation", "users")]


def mount(wanted: Wanted) -> None:
    """Shows each SRC at its DST to this process, and to no other. Raises OSError.

    The real user is root, the effective one the job's. Nothing may be read as root after this: what
    is at a path is the job's choice.
    """
    with _as_root():
        libc = code_folder.make_own_view()
    with contextlib.ExitStack() as files:
        # All before the first is shown: a SRC is not meant to be in another volume.
        trees = [
            _tree(libc, files, _opened(files, source), source, read_only)
            for source, _, read_only in wanted
        ]
        for tree, (_, path, _) in zip(trees, wanted, strict=True):
            os.makedirs(path, exist_ok=True)
            place = _opened(files, path)
            with _as_root():
                _call(libc, path, MOVE_MOUNT, tree, b"", place, b"", FILE_TO_FILE)
    code_folder.check(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), wanted[0][1])


def _opened(files: contextlib.ExitStack, path: str) -> int:
    file = os.open(path, FOLDER)
    files.callback(os.close, file)
    return file


def _tree(
    libc: ctypes.CDLL, files: contextlib.ExitStack, folder: int, path: str, read_only: bool
) -> int:
    """What is mounted at the folder and below it once more, and nowhere yet."""
    own = _Attributes(NO_SETUID | NO_DEVICES | (READ_ONLY if read_only else 0))
    with _as_root():
        kind = CLONE | CLOSE_ON_EXEC | RECURSIVE | OF_FILE
        tree = _call(libc, path, OPEN_TREE, folder, b"", kind)
        files.callback(os.close, tree)
        how = ctypes.byref(own), ctypes.sizeof(own)
        _call(libc, path, MOUNT_SETATTR, tree, b"", OF_FILE | RECURSIVE, *how)
    return tree


def _call(libc: ctypes.CDLL, path: str, number: int, *arguments: object) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0 and ctypes.get_errno() == errno.ENOSYS:
        raise OSError(errno.ENOSYS, "--volume needs Linux 5.12 or newer", path)
    code_folder.check(result < 0, path)
    return result


@contextlib.contextmanager
def _as_root() -> Iterator[None]:
    user = os.geteuid()
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(user)
