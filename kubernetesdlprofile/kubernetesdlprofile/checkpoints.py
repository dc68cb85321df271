"""Writes checkpoints atomically, and finds the one to resume from."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from kubernetesdlprofile import folders, manifest
from kubernetesdlprofile.fence import Fence
from kubernetesdlprofile.log import warn

# When it was written, its place in the order of `save`, the number in its name, its name; -1: none.
_Found = Tuple[float, int, int, str]

# Lightning, Hugging Face and TensorFlow number their checkpoints by epochs or by steps.
_NUMBER = re.compile(r"(?:epoch=|checkpoint-|ckpt-)(\d+)")
# The endings of checkpoints, and of files that are either checkpoints or other results.
_FILES = ".ckpt .pt .pth .keras .h5 .hdf5 .npz .safetensors .msgpack .orbax".split()  # noqa: SIM905
_MAYBE = ".npy .pkl .pickle .joblib .bin .tar .weights".split()  # noqa: SIM905
# `save` writes also these, but they are taken only if it has written nothing else.
_NOTES = ".json .txt .yaml .yml .csv .log .md .html .png .svg".split()  # noqa: SIM905
_STATE = "trainer_state.json"  # the last file that Hugging Face writes into a checkpoint's folder


def save(path: Path, writer: Callable[[str], Any], fence: Optional[Fence] = None) -> bool:
    """Calls `writer(name)`, which writes a file of that name beside `path`, and moves the complete
    file to `path`. If it cannot be written, or `fence` is closed, warns and returns False; the
    previous file is then still there."""
    beside = path.with_name(f".{os.getpid()}-{path.name}")  # the ending tells Keras the format
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(str(beside))
        written = _written(beside)
        for file in [*written.rglob("*"), written]:  # some frameworks write folders
            _flush(file)
        (fence.put if fence else folders.replace)(written, path)
    except (OSError, RuntimeError) as error:  # torch has RuntimeErrors for a full disk
        if fence is not None and fence.closed:
            warn("a newer run of this job has begun: this run's checkpoint is dropped", "fence")
            return False
        warn(f"no checkpoint was written ({error}): a preemption will lose the work", "save")
        return False
    finally:
        with suppress(OSError):
            folders.remove(beside)
    return True


def _written(path: Path) -> Path:
    """The file that was to be written, or the only one with an ending added, as numpy does."""
    longer = [each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}.")]
    return longer[0] if len(longer) == 1 and not path.exists() else path


def _flush(path: Path) -> None:
    written = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(written)
    finally:
        os.close(written)


def newest(root: str) -> Optional[str]:
    """The complete checkpoint with the most training in it: what `save` wrote last, unless
    something else that looks at least as much like a checkpoint was written later."""
    listed = [str(Path(root, entry.name)) for entry in manifest.read(root)]
    saved = _best(_dated(Path(name), name, order) for order, name in enumerate(listed))
    other = _best(found for found in _complete(Path(root)) if not _is_below(found[-1], listed))
    if saved and other:
        return (saved if saved[0] < other[0] or saved[1] >= other[1] else other)[2]
    return (saved or other or (0, 0.0, None))[2]


def last_write(root: str) -> float:
    """When a file was last written that may be a checkpoint, of whatever kind; 0: there is none."""
    newest = 0.0
    with suppress(OSError):
        for path in Path(root).rglob("*"):
            hidden = any(part[0] == "." for part in path.relative_to(root).parts)
            notes = path.suffix in _NOTES or ".tfevents." in path.name
            if not hidden and not notes and path.is_file():
                newest = max(newest, path.stat().st_mtime)
    return newest


def _is_below(name: str, folders: List[str]) -> bool:
    """Whether it is one of these, or in one of them."""
    return not {name, *map(str, Path(name).parents)}.isdisjoint(folders)


def _best(found: Iterator[_Found]) -> Optional[Tuple[int, float, str]]:
    """How little the best one looks like a checkpoint, when it was written, and its name. One
    without a number, such as `last.ckpt`, comes before all numbered ones that are not newer."""
    kinds: Dict[int, List[_Found]] = {}
    for each in found:
        ending = Path(each[-1]).suffix
        kinds.setdefault((ending in _MAYBE) + 2 * (ending in _NOTES), []).append(each)
    if not kinds:
        return None
    numbered = max(((each[2], each) for each in kinds[min(kinds)] if each[2] >= 0), default=None)
    others = max((each for each in kinds[min(kinds)] if each[2] < 0), default=None)
    if numbered and not (others and others[0] >= numbered[1][0]):
        others = numbered[1]
    assert others is not None
    return min(kinds), others[0], others[-1]


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


def _complete(root: Path) -> Iterator[_Found]:
    with suppress(OSError):
        for path in root.rglob("*"):
            with suppress(OSError):  # it was deleted meanwhile
                hidden = any(part[0] == "." for part in path.relative_to(root).parts)
                name = "" if hidden else _whole(path)
                if name:
                    yield _dated(path, name)


def _dated(path: Path, name: str, order: int = -1) -> _Found:
    number = _NUMBER.search(path.parent.name if path.name == _STATE else path.name)
    return path.stat().st_mtime, order, int(number.group(1)) if number else -1, name


def _whole(path: Path) -> str:
    """The name that a framework would load; empty if the checkpoint looks unfinished."""
    if path.is_dir():
        return ""
    if path.name == "_CHECKPOINT_METADATA":  # Orbax writes it into a folder
        return str(path.parent)
    if path.suffix == ".index":  # TensorFlow writes it after the data
        parts = [p.name for p in path.parent.iterdir() if p.name.startswith(path.stem + ".data-")]
        return str(path.with_suffix("")) if parts and _of(parts[0]) == len(parts) else ""
    if path.parent.name.startswith("checkpoint-"):
        return str(path.parent) if path.name == _STATE else ""
    if path.suffix not in _FILES + _MAYBE:
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
