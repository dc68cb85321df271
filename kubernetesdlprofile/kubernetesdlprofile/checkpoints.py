"""Where a job keeps its checkpoints, and which one to resume from."""

import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import List, Optional, Tuple

from kubernetesdlprofile.log import warn

_EPOCH = re.compile(r"epoch=(\d+)")  # as PyTorch Lightning names its files


def folder(snapshots: str, job_id: str) -> str:
    """The job's own folder below `snapshots`; a temporary one if it cannot be made."""
    wanted = Path(snapshots, job_id)
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(str(wanted), os.W_OK | os.X_OK):
            return str(wanted)
        why = "no permission to write there"
    except OSError as error:
        why = error.strerror or str(error)
    private = tempfile.mkdtemp(prefix="kubeprofiler-")
    warn(
        f"{wanted} cannot be used ({why}): snapshots go to {private}, "
        "and a preemption will lose the work"
    )
    return private


def newest(root: str) -> Optional[str]:
    """The complete checkpoint with the most training in it: Lightning's, else TensorFlow's."""
    named: List[Tuple[int, float, str]] = []
    last: List[Tuple[float, str]] = []
    for path in sorted(Path(root).rglob("*.ckpt")):
        if not _complete(path):
            continue
        saved_at = path.stat().st_mtime
        epoch = _EPOCH.search(path.name)
        if epoch:
            named.append((int(epoch.group(1)), saved_at, str(path)))
        else:
            last.append((saved_at, str(path)))
    if last and (not named or max(last)[0] >= max(named)[1]):
        return max(last)[1]  # "last.ckpt", unless a newer run has left it behind
    if named:
        return max(named)[2]
    return _tensorflow(root)


def _complete(path: Path) -> bool:
    """Whether its writing has ended, as far as the file itself can tell."""
    try:
        with path.open("rb") as file:
            head = file.read(2)
        # torch writes archives, whose table of contents comes last.
        return bool(head) and (head != b"PK" or zipfile.is_zipfile(str(path)))
    except OSError:  # a folder, or gone meanwhile
        return False


def _tensorflow(root: str) -> Optional[str]:
    """`tf_ckpt` or `tf_ckpts`: a folder, a file, or the beginning of the names of several files."""
    for name in ("tf_ckpts", "tf_ckpt"):
        path = Path(root, name)
        if path.is_dir() and any(path.iterdir()):
            return str(path)
        if path.is_file() or path.with_name(name + ".index").is_file():
            return str(path)
    return None
