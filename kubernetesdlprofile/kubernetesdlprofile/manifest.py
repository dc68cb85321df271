"""The list of what `save` wrote, with the number of epochs in each checkpoint.

Each process has its own list in the job's folder, so that no two write the same file. A list is
replaced in one step, like a checkpoint, so an older run cannot replace it either.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import List, NamedTuple, Optional

from kubernetesdlprofile import folders
from kubernetesdlprofile.fence import Fence
from kubernetesdlprofile.log import warn

KEPT = 100  # the newest ones
_LISTS = ".saved-{}.json"


class Entry(NamedTuple):
    name: str  # the path, relative to the job's folder if it is below it
    written_at: float  # of the file; another time: another program has written it since
    epoch: int  # how many epochs count as done with this checkpoint; -1: not known
    trained: int  # how many of them are in its weights; -1: not known


def read(root: str) -> List[Entry]:
    """What all processes of the job have saved and what still exists, the newest last."""
    entries: List[Entry] = []
    for path in Path(root).glob(_LISTS.format("*")):
        with suppress(OSError, ValueError, TypeError):  # the file may contain anything
            for name, *numbers in json.loads(path.read_text(encoding="utf-8")):
                written_at, epoch, trained = map(float, numbers)
                entries.append(Entry(str(name), written_at, int(epoch), int(trained)))
    for entry in entries:
        folders.restore(Path(root, entry.name))
    found = (entry for entry in entries if Path(root, entry.name).exists())
    return sorted(found, key=lambda entry: entry.written_at)


def entry_of(root: str, path: str) -> Optional[Entry]:
    """The entry of a checkpoint; None: it was not saved with `save`, or was changed since."""
    for entry in reversed(read(root)):
        with suppress(OSError):
            file = Path(root, entry.name)
            if str(file) == path and file.stat().st_mtime == entry.written_at:
                return entry
    return None


def add(root: str, process: str, path: Path, numbers: "List[int]", fence: Optional[Fence]) -> None:
    """Lists a file that has been saved, or warns."""
    top, kept = Path(root), []
    name = str(path.relative_to(top)) if top in path.parents else str(path)
    own = top / _LISTS.format(process)
    with suppress(OSError, ValueError, TypeError, LookupError):
        kept = [each for each in json.loads(own.read_text(encoding="utf-8")) if each[0] != name]
    try:
        beside = own.with_name(f"{own.name}.{os.getpid()}")
        entry = [name, path.stat().st_mtime, *numbers]
        beside.write_text(json.dumps([*kept[-KEPT:], entry]), encoding="utf-8")
        (fence.put if fence else folders.replace)(beside, own)
    except OSError as error:
        if not (fence and fence.closed):
            warn(f"{name} is saved, but not listed in {own}: {error}", "list")
