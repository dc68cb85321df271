"""Whether logs that took more than they may have kept what they promise: their begin, their end,
and the size of what lies between. With it the disk's reserve: see small_disk.py.

Each training of crash_train.py numbers the lines that it writes, and notes in a file of its own how
many there are. The logs are read as users read them, through the daemon.

All but the counts must be 0:

    logs            attempts whose output was compared; logs_cut: of which parts are left out
    logs_wrong      logs of which any of what follows is not as it must be
    begins, ends    how many were written while the disk had room: those have to be there
    begins_lost     of these
    ends_lost       of these: a line that was written is missing at the end, and nothing says so
    gaps_untold     how often lines are missing, and no line says how many bytes are left out
    lines_damaged   lines that are neither whole nor at the edge of what is left out
    logs_too_large  logs that take more of the disk than they may
    crossings       how often the disk fell below its reserve, or rose above it
    refused         submissions that were refused because of it
    taken_when_low  submissions that were accepted nevertheless
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.small_disk import LOG_MIB, MIB, SmallDisk
from scheduler import run_logs
from scheduler.clusters.capped_log import UNIT
from scheduler.core.model import JobId
from scheduler.v1 import scheduler_pb2 as pb
from tests.support import Daemon

LINE_BYTES = 128  # as crash_train.py writes them
OTHER_BYTES_MAX = 4096  # what the library says meanwhile
_LINE = re.compile(rb"([0-9]{9}) ={117}")
_GAP = re.compile(rb"\[epoch-scheduler\] ([0-9]+) bytes of the output are not kept")
_PART = re.compile(rb"[0-9]* ?=*")  # of a line, where a gap begins or ends
_OTHER = re.compile(rb"\[(KUBE_API_LIBRARY|epoch-scheduler)\] [ -~]*")  # lines of ours
KEYS = (
    *("logs", "logs_cut", "logs_wrong", "begins", "begins_lost", "ends", "ends_lost"),
    *("gaps_untold", "lines_damaged", "logs_too_large"),
)


class Note(NamedTuple):
    """How many lines an attempt has written, and when it wrote the newest of them."""

    attempt: int
    lines: int
    began_at: float
    ended_at: float

    @classmethod
    def of(cls, text: str) -> Note:
        attempt, lines, *times = text.split()
        return cls(int(attempt), int(lines), *map(float, times))


class Kept(NamedTuple):
    """What is found in a log."""

    first: int  # 0: no line at all
    last: int
    gaps: int
    is_cut_at_begin: bool
    is_cut_at_end: bool
    untold: int
    damaged: int


def compare(
    daemon: Daemon, notes: Mapping[str, list[Note]], disk: SmallDisk, lost_ends: Collection[str]
) -> dict[str, int]:
    """`notes`: by job. `lost_ends`: runs whose runner was killed, with all that it had not yet
    written to the log."""
    figures = Counter(dict.fromkeys(KEYS, 0))
    with daemon.stub() as (stub, metadata):
        for job_id, noted in notes.items():
            for attempt in sorted({note.attempt for note in noted}):
                request = pb.GetLogsRequest(job=job_id, attempt=attempt)
                chunks = stub.GetLogs(request, metadata=metadata, timeout=60)
                kept = read(b"".join(chunk.data for chunk in chunks))
                path = run_logs.log_path(daemon.state / "logs", JobId(job_id), attempt, 0)
                mine = [note for note in noted if note.attempt == attempt]
                has_end = f"{job_id}-{attempt}" not in lost_ends
                figures.update(_judged(kept, mine, path, disk, has_end))
    return dict(figures)


def _judged(
    kept: Kept, noted: list[Note], path: Path, disk: SmallDisk, has_end: bool
) -> dict[str, int]:
    state = path.stat()
    # So much was written at first that the first lines had left the pipe when it was.
    begins = disk.had_room(noted[0].began_at, noted[0].ended_at)
    ends = has_end and disk.had_room(noted[-1].began_at, state.st_mtime)
    end_lost = kept.last < noted[-1].lines
    wrong = {
        "begins_lost": kept.first != 1 and (begins or not kept.is_cut_at_begin),
        "ends_lost": end_lost and (ends or (has_end and not kept.is_cut_at_end)),
        "gaps_untold": kept.untold,
        "lines_damaged": kept.damaged,
        "logs_too_large": state.st_blocks * 512 > LOG_MIB * MIB + 2 * UNIT,
    }
    counts = {"logs": 1, "logs_cut": kept.gaps > 0, "begins": begins, "ends": ends}
    return {**counts, "logs_wrong": any(wrong.values()), **wrong}


def read(text: bytes) -> Kept:
    """A log as users see it."""
    first = last = gaps = untold = damaged = 0
    told, is_cut_at_begin = 0, False  # since the last whole line
    lines = text.split(b"\n")
    for at, line in enumerate(lines):
        if found := _LINE.fullmatch(line):
            number = int(found[1])
            if not first:
                first, is_cut_at_begin = number, told > 0
            damaged += number <= last
            untold += not _is_told((number - last - 1) * LINE_BYTES, told)
            last, told = number, 0
        elif found := _GAP.fullmatch(line):
            told += int(found[1])
            gaps += 1
        elif not _OTHER.fullmatch(line):
            beside = lines[max(0, at - 1) : at] + lines[at + 1 : at + 2]
            at_edge = len(lines) - 2 <= at or any(_GAP.fullmatch(each) for each in beside)
            damaged += not (at_edge and _PART.fullmatch(line))
    is_cut_at_end = told > 0
    return Kept(
        *(first, last, gaps),
        *(is_cut_at_begin if first else is_cut_at_end, is_cut_at_end),
        *(untold, damaged),
    )


def _is_told(missing: int, told: int) -> bool:
    """Of the lines at both ends of a gap parts may be left."""
    if not told:
        return missing == 0
    return -2 * LINE_BYTES <= told - missing <= 2 * LINE_BYTES + OTHER_BYTES_MAX
