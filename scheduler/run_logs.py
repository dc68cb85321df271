"""A run's output in files that outlive its pod: where they are, and how to read them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from scheduler.core.errors import NotFound
from scheduler.core.model import JobId, Time
from scheduler.step_wrapper.wrapped_command import SKIPPED

CHUNK_BYTES = 64 * 1024
DELETED = "deleted"  # the file in a job's folder that says why its logs are gone
LINE_MAX = 200  # characters of a line that is quoted
RANKS_MAX = 8  # the processes of a run whose output is searched for the cause of a failure
TAIL_BYTES_MAX = 16 * 2**20  # of the last lines

_JOB_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_NAME = re.compile(r"attempt-([1-9][0-9]*)/rank([0-9]+)\.log", re.ASCII)

_LINE_END = re.compile(rb"[\r\n]+")

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

# How an old library ends a script that did nothing wrong: the scheduler was away, or the machine
# has no folder where it saves (see legacy/). The first group is the line that people are shown.
_OLD_LIBRARY = re.compile(
    rb"^(requests\.exceptions\.(?:Connection|Timeout|ReadTimeout|ConnectTimeout|ChunkedEncoding)"
    rb"[A-Za-z]*\b.*|FileNotFoundError: .*'/snapshots/[-0-9a-f]+'|"
    rb"PermissionError: .*'/snapshots/[-0-9a-f]+')\s*\Z",
    re.MULTILINE,
)
ITS_LIBRARY = "its old library"
_OF_THE_LIBRARY = re.compile(rb"kubernetesdlprofile/kubeprofiler\.py\", line [0-9]+")


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


def written_chunks(file: LogFile, start: int = 0) -> Iterator[bytes | int]:
    """The same without what was never written: the number of bytes of each hole instead."""
    with file.path.open("rb") as stream:
        at = start if start <= file.size else 0
        while at < file.size:
            data_at = _seek_data(stream, at, file.size)
            if data_at > at:
                yield data_at - at
            at = data_at
            data = _read(stream, at, min(at + CHUNK_BYTES, file.size, _seek_hole(stream, at)))
            if not data:
                return
            yield data
            at += len(data)


class Tail(NamedTuple):
    parts: list[tuple[LogFile, int]]  # the files, and the offset in each
    is_cut: bool  # the lines are longer than what is read of them


def tail(
    found: list[LogFile],
    lines: int,
    bytes_max: int = TAIL_BYTES_MAX,
    stop: threading.Event | None = None,
) -> Tail:
    """Returns where the last `lines` lines of all files are."""
    wanted: list[tuple[LogFile, int]] = []
    for file in reversed(found):
        if lines <= 0 or (stop and stop.is_set()):
            break
        start, seen, bytes_max = _last_lines(file, lines, bytes_max, stop)
        wanted.append((file, start))
        if start and seen < lines:
            return Tail(wanted[::-1], is_cut=True)
        lines -= seen
    return Tail(wanted[::-1], is_cut=False)


def follow(
    root: Path,
    job_id: JobId,
    has_ended: Callable[[], bool],
    stop: threading.Event,
    *,
    attempt: int | None = None,
    have: Mapping[str, int] | None = None,
) -> Iterator[tuple[LogFile, bytes | int] | None]:
    """Yields what exists beyond `have` (bytes, by name), then new output, until the job has ended
    or `stop` is set. None: there is no output now; ask again later."""
    read = dict(have or {})
    while not stop.is_set():
        last = has_ended()  # asked before reading, so that the last output is not missed
        for file in files(root, job_id, attempt):
            start = read.get(file.name, 0)
            if start != file.size:
                for data in written_chunks(file, start):
                    yield file, data
                read[file.name] = file.size
        if last:
            return
        yield None


# --- deleted logs ---------------------------------------------------------------------------------


def jobs(root: Path) -> Iterator[JobId]:
    """Yields the jobs that have logs, or had some."""
    yield from (JobId(folder.name) for folder in sorted(root.iterdir()) if is_job_id(folder.name))


def disk_bytes(root: Path, job_id: JobId) -> int:
    """Returns what the logs take of the disk: less than their sizes if parts are cut out."""
    return sum(file.path.stat().st_blocks * 512 for file in files(root, job_id))


def left_out_bytes(root: Path) -> int:
    """Returns how much of the output of all jobs was cut out or never written."""
    left_out = 0
    for job_id in jobs(root):
        with suppress(FileNotFoundError):  # it was just deleted
            for file in files(root, job_id):
                state = file.path.stat()
                left_out += max(0, state.st_size - state.st_blocks * 512)
    return left_out


def changed_at(root: Path, job_id: JobId) -> Time | None:
    """Returns when something was last written; None: there is no log."""
    return max((file.path.stat().st_mtime for file in files(root, job_id)), default=None)


def delete(root: Path, job_id: JobId, why: str) -> bool:
    """Deletes all logs of a job, and notes why. Returns whether there were any."""
    attempts = sorted(_folder(root, job_id).glob("attempt-*"))
    if attempts:
        (_folder(root, job_id) / DELETED).write_text(why, encoding="utf-8")
    for attempt in attempts:
        shutil.rmtree(attempt, ignore_errors=True)
    return bool(attempts)


def read_why_deleted(root: Path, job_id: JobId) -> str:
    """Empty: they were not deleted."""
    try:
        return (_folder(root, job_id) / DELETED).read_text(encoding="utf-8")
    except OSError:
        return ""


# --- what is said in them -------------------------------------------------------------------------


def read_out_of_memory_line(path: Path) -> str:
    """Returns the last line that says that a GPU's memory was too small; empty if the end of this
    output contains none."""
    return out_of_memory_line(_end_of(path))


def out_of_memory_line(output: bytes) -> str:
    lines = reversed(output.splitlines())
    found = next((line for line in lines if _OUT_OF_MEMORY.search(line)), b"")
    return found.decode(errors="replace").strip()[:LINE_MAX]


def read_skip_line(path: Path) -> str:
    """The same as `skip_line`, of the end of this output."""
    return skip_line(_end_of(path))


def skip_line(output: bytes) -> str:
    """Returns why the wrapper of a workflow's step did not run it; empty if it does not say."""
    lines = reversed(output.splitlines())
    found = next((line for line in lines if line.startswith(SKIPPED.encode())), b"")
    return _one_line(found[len(SKIPPED) :])


def failure_line(root: Path, job_id: JobId, attempt: int) -> str:
    """Returns the line that says why a run failed: the last line of a traceback in the output of
    one of its first processes, else the last line of the first one. Only the end of each output
    is read."""
    lines = []
    for file in files(root, job_id, attempt)[:RANKS_MAX]:
        output = _end_of(file.path)
        if found := out_of_memory_line(output) or exception_line(output):
            return found
        lines += [_one_line(line) for line in _LINE_END.split(output)[::-1] if _one_line(line)][:1]
    return lines[0] if lines else ""


def exception_line(output: bytes) -> str:
    """Returns `ValueError: ...` of the last traceback. Some programs put the same words, such as
    `[rank0]: `, before each of its lines."""
    before, traceback, after = output.rpartition(b"Traceback (most recent call last):")
    if not traceback:
        return ""
    prefix = _LINE_END.split(before)[-1]
    for line in _LINE_END.split(after)[1:]:
        rest = line.removeprefix(prefix)
        if line.startswith(prefix) and rest.strip() and not rest[:1].isspace():
            return _one_line(rest)
    return ""


def _one_line(line: bytes) -> str:
    return line.replace(b"\0", b"").decode(errors="replace").strip()[:LINE_MAX]


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - CHUNK_BYTES))
            return stream.read(CHUNK_BYTES)
    except OSError:
        return b""


def read_old_library_error(path: Path) -> str:
    """The same as `old_library_error`, of the end of this output."""
    return old_library_error(_end_of(path))


def old_library_error(output: bytes) -> str:
    """Returns what people are told if an old library has ended the script for the world's fault;
    else empty."""
    found = _OLD_LIBRARY.search(output)
    if found is None or not _OF_THE_LIBRARY.search(output):
        return ""
    line = _one_line(found[1])
    if line.startswith("requests."):
        return f"{ITS_LIBRARY} could not reach the scheduler: {line}"
    return f"{ITS_LIBRARY} saves to /snapshots, which it cannot use here: {line}"


def _folder(root: Path, job_id: JobId) -> Path:
    if not is_job_id(job_id):
        raise NotFound(f"{job_id[:80]!r} is not the id of a job")
    return root / job_id


def _last_lines(
    file: LogFile, lines: int, bytes_max: int, stop: threading.Event | None
) -> tuple[int, int, int]:
    """Returns where the last `lines` lines begin, their number, and what is left of `bytes_max`.
    Reads blocks from the end, and skips holes, in which there are no lines."""
    with file.path.open("rb") as stream:
        seen, at, hole = 0, file.size, CHUNK_BYTES
        while at > 0 and bytes_max > 0 and not (stop and stop.is_set()):
            if _seek_data(stream, max(0, at - hole), at) == at:
                at, hole = max(0, at - hole), hole * 2
                continue
            hole = CHUNK_BYTES
            begin = max(0, at - min(CHUNK_BYTES, bytes_max))
            block = _read(stream, begin, at)
            bytes_max -= at - begin
            for newline in _newlines_from_end(block):
                if begin + newline + 1 == file.size:
                    continue  # it ends the last line and starts no new one
                seen += 1
                if seen == lines:
                    return begin + newline + 1, lines, bytes_max
            at = begin
    return at, seen + (file.size > 0 and at == 0), bytes_max


def _seek_data(stream: BinaryIO, begin: int, end: int) -> int:
    """Returns where the first written byte is; `end` if there is none before."""
    try:
        return min(end, os.lseek(stream.fileno(), begin, os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole is left
            return end
        return begin  # the file system does not know


def _seek_hole(stream: BinaryIO, begin: int) -> int:
    try:
        return os.lseek(stream.fileno(), begin, os.SEEK_HOLE)
    except OSError:
        return begin + CHUNK_BYTES


def _read(stream: BinaryIO, begin: int, end: int) -> bytes:
    stream.seek(begin)
    return stream.read(end - begin)


def _newlines_from_end(block: bytes) -> Iterator[int]:
    at = block.rfind(b"\n")
    while at >= 0:
        yield at
        at = block.rfind(b"\n", 0, at)
