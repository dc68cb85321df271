"""A job's logs as the stream that users get: where each file begins, and the note if there is
none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from scheduler import run_logs
from scheduler.core import admission
from scheduler.core.errors import NotFound
from scheduler.core.model import Job
from scheduler.run_logs import LogFile
from scheduler.v1 import scheduler_pb2 as pb


def stream(
    root: Path,
    job: Job,
    request: pb.GetLogsRequest,
    has_ended: Callable[[], bool],
    gone: threading.Event,
) -> Iterator[pb.LogChunk]:
    """`gone`: set when the caller has disconnected."""
    admission.check_integer("--attempt", request.attempt, 0, admission.INT_MAX)
    admission.check_integer("--tail", request.tail, 0, admission.INT_MAX)
    if request.attempt > job.attempts:
        raise NotFound(f"job {job.id} has had {job.attempts} attempts, not {request.attempt}")
    attempt = request.attempt or None
    found = run_logs.files(root, job.id, attempt)
    begins = _start_offsets(found, request)
    if request.follow:
        have = {file.name: file.size for file in found}
        have |= {file.name: start for file, start in begins}
        parts = run_logs.follow(root, job.id, has_ended, gone, attempt=attempt, have=have)
    else:
        parts = ((file, data) for file, start in begins for data in run_logs.chunks(file, start))
    if request.download:
        yield from _file_chunks(job, found, parts)
    else:
        if not any(file.size for file in found):
            yield pb.LogChunk(job_id=job.id, note=_empty_note(job))
        yield from _text_chunks(job, parts, several=len(begins) > 1)


def _start_offsets(found: list[LogFile], request: pb.GetLogsRequest) -> list[tuple[LogFile, int]]:
    if request.download:
        return [(file, min(max(0, request.have.get(file.name, 0)), file.size)) for file in found]
    if request.HasField("tail"):
        return run_logs.tail(found, request.tail)
    return [(file, 0) for file in found if file.size]


def _file_chunks(
    job: Job, found: list[LogFile], parts: Iterator[tuple[LogFile, bytes]]
) -> Iterator[pb.LogChunk]:
    """Names each file at least once, even if the caller already has all of it."""
    for file in found:
        yield pb.LogChunk(job_id=job.id, file=file.name)
    for file, data in parts:
        yield pb.LogChunk(job_id=job.id, file=file.name, data=data)


def _text_chunks(
    job: Job, parts: Iterator[tuple[LogFile, bytes]], several: bool
) -> Iterator[pb.LogChunk]:
    """Yields one text, with a title line between the output of different processes."""
    last, ends_line = "", True
    for file, data in parts:
        if file.name != last and (several or last):
            break_line = b"" if ends_line else b"\n"
            title = f"==> attempt {file.attempt} (rank {file.rank}) <==\n".encode()
            yield pb.LogChunk(job_id=job.id, data=break_line + title)
        yield pb.LogChunk(job_id=job.id, file=file.name, data=data)
        last, ends_line = file.name, data.endswith(b"\n")


def _empty_note(job: Job) -> str:
    if job.outcome:
        return "it ended without any output"
    if job.run:
        return "no output yet"
    since = datetime.fromtimestamp(job.submitted_at, UTC)
    return f"pending since {since:%Y-%m-%d %H:%M:%S} UTC, no output yet"
