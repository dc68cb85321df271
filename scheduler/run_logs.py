"""A run's output in files that outlive its pod: where they are, and how to read them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scheduler.core.errors import NotFound
from scheduler.core.model import JobId

CHUNK_BYTES = 64 * 1024
LINE_MAX = 200  # characters of a line that is quoted
FOLLOW_SECONDS = 0.2

_JOB_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_NAME = re.compile(r"attempt-([1-9][0-9]*)/rank([0-9]+)\.log", re.ASCII)

# How frameworks report that a GPU has too little memory. Too little memory of the machine
# (`MemoryError`, a SIGKILL by the kernel) is different: more memory of the GPU would not help.
_OUT_OF_MEMORY = re.compile(
    rb"CUDA out of memory"
    rb"|CUDA error: out of memory"
    rb"|torch\.(cuda\.)?OutOfMemoryError"
    rb"|CUDA_ERROR_OUT_OF_MEMORY"
    rb"|cudaErrorMemoryAllocation"
    rb"|cudaMalloc (retry )?failed: out of memory"
    rb"|CUDNN_STATUS_ALLOC_FAILED"
    rb"|CUBLAS_STATUS_ALLOC_FAILED"
    rb"|OOM when allocating tensor"
    rb"|RESOURCE_EXHAUSTED: Out of memory"
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """The output of one rank of one attempt so far."""

    attempt: int
    rank: int
    path: Path
    size: int

    @property
    def name(self) -> str:
        """Relative to the job's folder, e.g. `attempt-1/rank0.log`."""
        return f"attempt-{self.attempt}/rank{self.rank}.log"


def is_job_id(job_id: str) -> bool:
    """Whether it may become part of a path: only a UUID may."""
    return _JOB_ID.fullmatch(job_id) is not None


def log_path(root: Path, job_id: JobId, attempt: int, rank: int) -> Path:
    return _folder(root, job_id) / f"attempt-{attempt}" / f"rank{rank}.log"


def files(root: Path, job_id: JobId, attempt: int | None = None) -> list[LogFile]:
    """Returns the files by attempt, then by rank; empty before any output."""
    folder = _folder(root, job_id)
    paths = folder.glob(f"attempt-{'*' if attempt is None else attempt}/rank*.log")
    found = [
        LogFile(int(match[1]), int(match[2]), path, path.stat().st_size)
        for path in paths
        if (match := _NAME.fullmatch(path.relative_to(folder).as_posix()))
    ]
    return sorted(found, key=lambda file: (file.attempt, file.rank))


def chunks(file: LogFile, start: int = 0) -> Iterator[bytes]:
    """Reads from `start` to the size that the file had when it was listed, and nothing later.

    A caller that has more than this file contains had another file of that name, and gets all of
    this one.
    """
    with file.path.open("rb") as stream:
        at = stream.seek(start if start <= file.size else 0)
        while data := stream.read(min(CHUNK_BYTES, max(0, file.size - at))):
            yield data
            at += len(data)


def tail(found: list[LogFile], lines: int) -> list[tuple[LogFile, int]]:
    """Returns the files, and the offset in each, that hold the last `lines` lines of all files."""
    wanted: list[tuple[LogFile, int]] = []
    for file in reversed(found):
        if lines <= 0:
            break
        start, seen = _last_lines(file, lines)
        wanted.append((file, start))
        lines -= seen
    return wanted[::-1]


def follow(
    root: Path,
    job_id: JobId,
    has_ended: Callable[[], bool],
    stop: threading.Event,
    *,
    attempt: int | None = None,
    have: Mapping[str, int] | None = None,
) -> Iterator[tuple[LogFile, bytes]]:
    """Yields what exists beyond `have` (bytes, by name), then new output, until the job has ended
    or `stop` is set."""
    read = dict(have or {})
    while not stop.is_set():
        last = has_ended()  # asked before reading, so that the last output is not missed
        for file in files(root, job_id, attempt):
            start = read.get(file.name, 0)
            if start != file.size:
                for data in chunks(file, start):
                    yield file, data
                read[file.name] = file.size
        if last or stop.wait(FOLLOW_SECONDS):
            return


def read_out_of_memory_line(path: Path) -> str:
    """Returns the last line that says that a GPU's memory was too small; empty if the end of this
    output contains none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - CHUNK_BYTES))
            return out_of_memory_line(stream.read(CHUNK_BYTES))
    except OSError:
        return ""


def out_of_memory_line(output: bytes) -> str:
    lines = reversed(output.splitlines())
    found = next((line for line in lines if _OUT_OF_MEMORY.search(line)), b"")
    return found.decode(errors="replace").strip()[:LINE_MAX]


def _folder(root: Path, job_id: JobId) -> Path:
    if not is_job_id(job_id):
        raise NotFound(f"{job_id[:80]!r} is not the id of a job")
    return root / job_id


def _last_lines(file: LogFile, lines: int) -> tuple[int, int]:
    """Returns where the last `lines` lines begin, and their number. Reads blocks from the end."""
    with file.path.open("rb") as stream:
        seen, at = 0, file.size
        while at > 0:
            begin = max(0, at - CHUNK_BYTES)
            block = _block(stream, begin, at)
            for newline in _newlines_from_end(block):
                if begin + newline + 1 == file.size:
                    continue  # it ends the last line and starts no new one
                seen += 1
                if seen == lines:
                    return begin + newline + 1, lines
            at = begin
    return 0, seen + (file.size > 0)


def _block(stream: BinaryIO, begin: int, end: int) -> bytes:
    stream.seek(begin)
    return stream.read(end - begin)


def _newlines_from_end(block: bytes) -> Iterator[int]:
    at = block.rfind(b"\n")
    while at >= 0:
        yield at
        at = block.rfind(b"\n", 0, at)
