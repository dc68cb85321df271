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

Parts = Iterator[tuple[LogFile, bytes | int] | None]

_CUT = f"the last lines are very long: this is the end of them, {run_logs.TAIL_BYTES_MAX >> 20} MiB"


def stream(
    root: Path,
    job: Job,
    request: pb.GetLogsRequest,
    has_ended: Callable[[], bool],
    gone: threading.Event,
) -> Iterator[pb.LogChunk | None]:
    """`gone`: set when the caller has disconnected. None: there is no output now."""
    admission.check_integer("--attempt", request.attempt, 0, admission.INT_MAX)
    admission.check_integer("--tail", request.tail, 0, admission.INT_MAX)
    if request.attempt > job.attempts:
        raise NotFound(f"job {job.id} has had {job.attempts} attempts, not {request.attempt}")
    attempt = request.attempt or None
    found = run_logs.files(root, job.id, attempt)
    if request.download:
        yield from _file_chunks(job, found, request)
        return
    # A caller that follows may have lost its connection: it continues with what it has not got.
    begins = [(file, request.have.get(file.name, 0)) for file in found if file.size]
    if request.HasField("tail"):
        begins, is_cut = run_logs.tail(found, request.tail, stop=gone)
        if is_cut:
            yield pb.LogChunk(job_id=job.id, note=_CUT)
    parts: Parts
    starts = {file.name: start for file, start in begins}
    if request.follow:
        left_out = {file.name: file.size for file in found if file.name not in starts}
        for name, size in left_out.items():
            yield pb.LogChunk(job_id=job.id, file=name, offset=size)
        have = starts | left_out
        parts = run_logs.follow(root, job.id, has_ended, gone, attempt=attempt, have=have)
    else:
        parts = (
            (file, data) for file, start in begins for data in run_logs.written_chunks(file, start)
        )
    if not any(file.size for file in found):
        yield pb.LogChunk(job_id=job.id, note=empty_note(root, job))
    yield from _text_chunks(job, parts, starts, several=len(begins) > 1)


def _file_chunks(
    job: Job, found: list[LogFile], request: pb.GetLogsRequest
) -> Iterator[pb.LogChunk]:
    """Names each file at least once, even if the caller already has all of it."""
    for file in found:
        yield pb.LogChunk(job_id=job.id, file=file.name)
    for file in found:
        start = min(max(0, request.have.get(file.name, 0)), file.size)
        for data in run_logs.written_chunks(file, start):
            if isinstance(data, int):
                start += data
                yield pb.LogChunk(job_id=job.id, file=file.name, offset=start)
            else:
                yield pb.LogChunk(job_id=job.id, file=file.name, data=data, offset=start)
                start += len(data)


def _text_chunks(
    job: Job, parts: Parts, starts: dict[str, int], several: bool
) -> Iterator[pb.LogChunk | None]:
    """Yields one text, with a title line between the output of different processes."""
    last, ends_line, at = "", True, dict(starts)
    for part in parts:
        if part is None:
            yield None
            continue
        file, data = part
        offset = at.get(file.name, 0)
        offset = offset if offset <= file.size else 0  # see run_logs.chunks
        at[file.name] = offset + (data if isinstance(data, int) else len(data))
        if file.name != last and (several or last):
            break_line = b"" if ends_line else b"\n"
            title = f"==> attempt {file.attempt} (rank {file.rank}) <==\n".encode()
            yield pb.LogChunk(job_id=job.id, data=break_line + title)
            ends_line = True
        last = file.name
        if isinstance(data, int):
            break_line = b"" if ends_line else b"\n"
            mark = f"[epoch-scheduler] {data} bytes of the output are not kept\n".encode()
            yield pb.LogChunk(job_id=job.id, data=break_line + mark)
            yield pb.LogChunk(job_id=job.id, file=file.name, offset=at[file.name])
            ends_line = True
        else:
            yield pb.LogChunk(job_id=job.id, file=file.name, data=data, offset=offset)
            ends_line = data.endswith(b"\n")


def empty_note(root: Path, job: Job) -> str:
    if why := run_logs.read_why_deleted(root, job.id):
        return f"its output was deleted: {why}"
    if job.outcome:
        return "it ended without any output"
    if job.run:
        return "no output yet"
    since = datetime.fromtimestamp(job.submitted_at, UTC)
    return f"pending since {since:%Y-%m-%d %H:%M:%S} UTC, no output yet"
