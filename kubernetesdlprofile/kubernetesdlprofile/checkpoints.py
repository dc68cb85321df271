"""Writes checkpoints atomically, and finds the one to resume from."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Tuple

from kubernetesdlprofile.fence import Fence
from kubernetesdlprofile.log import warn

# Lightning, Hugging Face and TensorFlow number their checkpoints by epochs or by steps.
_NUMBER = re.compile(r"(?:epoch=|checkpoint-|ckpt-)(\d+)")
_FILES = (".ckpt", ".pt", ".pth", ".keras", ".h5", ".npz")
_STATE = "trainer_state.json"  # the last file that Hugging Face writes into a checkpoint's folder


def save(path: Path, writer: Callable[[str], Any], fence: Optional[Fence] = None) -> bool:
    """Calls `writer(name)`, which writes a file of that name beside `path`, and moves the complete
    file to `path`. If it cannot be written, or `fence` is closed, warns and returns False; the
    previous file is then still there."""
    beside = path.with_name(f".{os.getpid()}-{path.name}")  # the ending tells Keras the format
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(str(beside))
        written = os.open(str(beside), os.O_RDONLY)
        try:
            os.fsync(written)
        finally:
            os.close(written)
        if fence is None:
            beside.replace(path)
        else:
            fence.put(beside, path)
    except (OSError, RuntimeError) as error:  # torch has RuntimeErrors for a full disk
        if fence is not None and fence.closed:
            warn("a newer run of this job has begun: this run's checkpoint is dropped", "fence")
            return False
        warn(f"no checkpoint was written ({error}): a preemption will lose the work", "save")
        return False
    finally:
        with suppress(OSError):
            beside.unlink()
    return True


def newest(root: str) -> Optional[str]:
    """The complete checkpoint with the most training in it. One without a number in its name, such
    as `last.ckpt`, comes before all numbered ones that are not newer."""
    found = sorted(_complete(Path(root)))
    numbered = [(number, at, name) for at, number, name in found if number >= 0]
    others = [(at, name) for at, number, name in found if number < 0]
    if others and (not numbered or max(others)[0] >= max(numbered)[1]):
        return max(others)[1]
    return max(numbered)[2] if numbered else None


def at_start(root: str) -> Optional[str]:
    """What to resume from, as the first library returned it: TensorFlow's `tf_ckpts` or `tf_ckpt`
    (a folder, a file or the common prefix of several files) are returned unchanged."""
    for name in ("tf_ckpts", "tf_ckpt"):
        path = Path(root, name)
        with suppress(OSError):
            whole = any(path.iterdir()) if path.is_dir() else path.is_file()
            if whole or path.with_name(name + ".index").is_file():
                return str(path)
    return newest(root)


def _complete(root: Path) -> Iterator[Tuple[float, int, str]]:
    """Yields when each was saved, its number or -1, and its name."""
    with suppress(OSError):
        for path in root.rglob("*"):
            with suppress(OSError):  # it was deleted meanwhile
                name = _whole(path)
                number = _NUMBER.search(path.parent.name if path.name == _STATE else path.name)
                if name:
                    yield path.stat().st_mtime, int(number.group(1)) if number else -1, name


def _whole(path: Path) -> str:
    """The name that a framework would load; empty if the checkpoint looks unfinished."""
    if path.name.startswith(".") or path.is_dir():
        return ""
    if path.suffix == ".index":  # TensorFlow writes it after the data
        parts = [p.name for p in path.parent.iterdir() if p.name.startswith(path.stem + ".data-")]
        return str(path.with_suffix("")) if parts and _of(parts[0]) == len(parts) else ""
    if path.parent.name.startswith("checkpoint-"):
        return str(path.parent) if path.name == _STATE else ""
    if path.suffix not in _FILES:
        return ""
    with path.open("rb") as file:
        head = file.read(2)
    if head == b"PK":  # torch, Keras and numpy write archives; the table of contents comes last
        import zipfile  # slow to import and rarely needed

        return str(path) if zipfile.is_zipfile(str(path)) else ""
    return str(path) if head else ""


def _of(name: str) -> int:
    """Returns the N of `….data-00000-of-0000N`."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
