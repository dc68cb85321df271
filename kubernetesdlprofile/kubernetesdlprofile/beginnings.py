"""When the last epochs of a run began. The next run compares the time of its checkpoint with them,
however this one ends.

The times are those of a file in the job's folder, so they are by the same clock as those of the
checkpoints beside it, also on a file server.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Dict, Tuple

from kubernetesdlprofile.fence import Fence

FILE = ".epochs"
KEPT = 100


def mark(root: str, epoch: int, lacks: int, begun: "Dict[int, float]", fence: Fence) -> float:
    """The epoch (from 0) begins now: returns the time. The run has `begun` others before; `lacks`
    of the epochs before the run are not in the weights (-1: not known)."""
    last = [*begun.items()][-KEPT:]
    numbers = [lacks, epoch, *(number for pair in last for number in pair)]
    beside = Path(root, f"{FILE}.{os.getpid()}")
    try:
        beside.write_text(" ".join(map(repr, numbers)), encoding="utf-8")
        now = beside.stat().st_mtime
        fence.put(beside, Path(root, FILE))
    except OSError:
        return time.time()
    return now


def read(root: str) -> "Tuple[Dict[int, float], int]":
    """When the last epochs began, and how many of those before them are not in the weights."""
    with suppress(OSError, ValueError):  # the file may contain anything
        file = Path(root, FILE)
        lacks, epoch, *pairs = file.read_text(encoding="utf-8").split()
        begun = {int(each): float(at) for each, at in zip(pairs[::2], pairs[1::2])}
        begun[int(epoch)] = file.stat().st_mtime
        return begun, int(lacks)
    return {}, -1
