"""How a checkpoint is written whole, and which one to resume from."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Tuple

from kubernetesdlprofile.fence import Fence
from kubernetesdlprofile.log import warn

# As Lightning, Hugging Face and TensorFlow number what they save, by epochs or by steps.
_NUMBER = re.compile(r"(?:epoch=|checkpoint-|ckpt-)(\d+)")
_FILES = (".ckpt", ".pt", ".pth", ".keras", ".h5", ".npz")
_STATE = "trainer_state.json"  # what Hugging Face writes last into the folder of a checkpoint


def save(path: Path, writer: Callable[[str], Any], fence: Optional[Fence] = None) -> bool:
    """`writer(name)` writes a file of that name beside `path`, which is moved there when it is
    whole. False, and a warning, if it cannot be written, or if `fence` is closed: what was there
    before still is."""
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
            warn("a newer run of this job has begun: its checkpoints stay as they are", "fence")
            return False
        warn(f"no checkpoint was written ({error}): a preemption will lose the work", "save")
        return False
    finally:
        with suppress(OSError):
            beside.unlink()
    return True


def newest(root: str) -> Optional[str]:
    """The complete checkpoint with the most training in it. One without a number in its name, as
    `last.ckpt`, counts more than all those with one, unless they are newer."""
    found = sorted(_complete(Path(root)))
    numbered = [(number, at, name) for at, number, name in found if number >= 0]
    others = [(at, name) for at, number, name in found if number < 0]
    if others and (not numbered or max(others)[0] >= max(numbered)[1]):
        return max(others)[1]
    return max(numbered)[2] if numbered else None


def at_start(root: str) -> Optional[str]:
    """What to resume from, as the first library told it: TensorFlow's `tf_ckpts` or `tf_ckpt`, a
    folder, a file or the beginning of the names of several files, are told as they are."""
    for name in ("tf_ckpts", "tf_ckpt"):
        path = Path(root, name)
        with suppress(OSError):
            whole = any(path.iterdir()) if path.is_dir() else path.is_file()
            if whole or path.with_name(name + ".index").is_file():
                return str(path)
    return newest(root)


def _complete(root: Path) -> Iterator[Tuple[float, int, str]]:
    """When it was saved, its number or -1, its name."""
    with suppress(OSError):
        for path in root.rglob("*"):
            with suppress(OSError):  # gone meanwhile
                name = _whole(path)
                number = _NUMBER.search(path.parent.name if path.name == _STATE else path.name)
                if name:
                    yield path.stat().st_mtime, int(number.group(1)) if number else -1, name


def _whole(path: Path) -> str:
    """What a framework would load if its writing has ended, as far as can be told; else empty."""
    if path.name.startswith(".") or path.is_dir():
        return ""
    if path.suffix == ".index":  # which TensorFlow writes after the data
        parts = [p.name for p in path.parent.iterdir() if p.name.startswith(path.stem + ".data-")]
        return str(path.with_suffix("")) if parts and _of(parts[0]) == len(parts) else ""
    if path.parent.name.startswith("checkpoint-"):
        return str(path.parent) if path.name == _STATE else ""
    if path.suffix not in _FILES:
        return ""
    with path.open("rb") as file:
        head = file.read(2)
    if head == b"PK":  # torch, Keras and numpy write archives, whose table of contents comes last
        import zipfile  # slow to import, and seldom needed

        return str(path) if zipfile.is_zipfile(str(path)) else ""
    return str(path) if head else ""


def _of(name: str) -> int:
    """N of `….data-00000-of-0000N`."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
