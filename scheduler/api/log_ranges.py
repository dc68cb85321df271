"""Parts of log files by their bytes, for viewers that show a part of a long log."""

from __future__ import annotations

from pathlib import Path

from scheduler import run_logs
from scheduler.api.log_stream import empty_note
from scheduler.api.wire import RANK_MAX
from scheduler.core import admission
from scheduler.core.errors import NotFound, Rejected, Unavailable
from scheduler.core.model import Job
from scheduler.run_logs import LogFile
from scheduler.v1 import scheduler_pb2 as pb

LENGTH_DEFAULT, LENGTH_MAX = 64 * 1024, 2**20
PARTS_MAX = 1_000  # a log may have many gaps
FILES_MAX = 1_000  # that are listed


def read(root: Path, job: Job, request: pb.ReadLogRequest) -> pb.ReadLogReply:
    """`job`: as it was before this call, so that `ended` is not told too early."""
    try:
        return _read(root, job, request)
    except FileNotFoundError:
        raise Unavailable("its output is being deleted: try again") from None


def _read(root: Path, job: Job, request: pb.ReadLogRequest) -> pb.ReadLogReply:
    admission.check_integer("attempt", request.attempt, 0, admission.INT_MAX)
    admission.check_integer("rank", request.rank, 0, RANK_MAX)
    admission.check_integer("length", request.length, 0, LENGTH_MAX)
    if request.attempt > job.attempts:
        raise NotFound(f"job {job.id} has had {job.attempts} attempts, not {request.attempt}")
    found = run_logs.files(root, job.id, None if request.list else request.attempt or None)
    attempts = {file.attempt for file in found}
    attempt = request.attempt or max(attempts, default=job.attempts)
    reply = pb.ReadLogReply(
        job_id=job.id,
        attempt=attempt,
        rank=request.rank,
        ended=job.outcome is not None or attempt < job.attempts,
    )
    if request.list:
        _list_files(reply, found)
    file = next(
        (file for file in found if (file.attempt, file.rank) == (attempt, request.rank)), None
    )
    if file is None:
        if attempt in attempts:
            ranks = [file.rank for file in found if file.attempt == attempt]
            raise NotFound(
                f"attempt {attempt} of job {job.id} has no output of rank {request.rank}: its ranks"
                f" are {min(ranks)} to {max(ranks)}"
            )
        reply.note = empty_note(root, job)
        return reply
    _read_parts(reply, file, request)
    return reply


def _list_files(reply: pb.ReadLogReply, found: list[LogFile]) -> None:
    reply.files_left_out = max(0, len(found) - FILES_MAX)
    for file in found[reply.files_left_out :]:
        reply.files.add(attempt=file.attempt, rank=file.rank, size=file.size)


def _read_parts(reply: pb.ReadLogReply, file: LogFile, request: pb.ReadLogRequest) -> None:
    offset = request.offset
    if offset < -(2**62):
        raise Rejected(f"offset {offset}: is too small")
    at = max(0, file.size + offset) if offset < 0 else min(offset, file.size)
    reply.size, reply.offset = file.size, at
    left = request.length or LENGTH_DEFAULT
    for part in run_logs.written_chunks(file, at):
        if isinstance(part, int):
            reply.parts.add(gap=part)
            at += part
        else:
            data = part[:left]
            reply.parts.add(data=data)
            at, left = at + len(data), left - len(data)
        if left <= 0 or len(reply.parts) >= PARTS_MAX:
            break
    reply.next = at
