"""What trainings log: taken from relays. A relay shows the token of its job."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from typing import Any

from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.schemas import INTEGER, STRING, list_of, object_of
from scheduler.gateway.problems import Problem
from scheduler.gateway.series.intake import NEXT_MAX, SentEntries, Taken
from scheduler.gateway.series.series_writer import TakenLater
from scheduler.relay.entries import BadEntry, check_path
from scheduler.v1 import scheduler_pb2 as pb

BODY_BYTES_MAX = 4 * 2**20
UNPACKED_BYTES_MAX = 16 * 2**20
ENTRIES_MAX = 20_000  # at once: one that is refused costs microseconds, however short it is
ARTIFACT_BYTES_MAX = 2**30
PIECE_BYTES = 2**20
SPOOL_MAX = 100  # characters
NO_ATTEMPT = 0
NDJSON = "application/x-ndjson"


async def take_entries(asked: Asked) -> Any:
    """Answers when they are on disk."""
    given, job = asked.given, job_of(asked)
    spool = given.get("spool", "")
    if not (0 < len(spool) <= SPOOL_MAX and spool.isprintable()):
        raise Problem(400, f"spool: 1 to {SPOOL_MAX} characters are needed", "spool")
    taken = await _take(asked, job, given.get("attempt", 0), spool, given.get("first", 0))
    return {"next": taken.next, "refused": taken.refused, "reasons": taken.reasons}


async def add_entries(asked: Asked) -> Any:
    """They belong to none of its attempts: what an attempt has logged goes before them."""
    request = pb.ListJobsRequest(jobs=[asked.job], limit=1, all_users=True, brief=True)
    reply = await asked.daemon.ask("Scheduler/ListJobs", request, pb.ListJobsReply, asked.token)
    (job,) = reply.jobs
    if asked.caller_user != job.spec.user:
        raise Problem(403, f"this job is {job.spec.user}'s: only they may add to what it logged")
    taken = await _take(asked, job.id, NO_ATTEMPT, "", 0)
    return {"job": job.id, "refused": taken.refused, "reasons": taken.reasons}


async def _take(asked: Asked, job: str, attempt: int, spool: str, first: int) -> Taken:
    body = await asked.request.body()
    content = await asyncio.to_thread(
        unpacked, body, asked.request.headers.get("content-encoding", "")
    )
    if content.count(b"\n") > ENTRIES_MAX:
        raise Problem(413, f"at most {ENTRIES_MAX} entries are taken at once")
    delivery = SentEntries(job, attempt, spool, first, content, time.time())
    try:
        return await asyncio.wrap_future(asked.series.deliver(delivery))
    except TakenLater as error:
        raise Problem(503, str(error)) from None


async def take_artifact(asked: Asked) -> Any:
    """Answers when it is on disk."""
    job, path, store = job_of(asked), asked.request.path_params["path"], asked.series
    try:
        check_path(path)
        half = store.receive_artifact(job, int(asked.request.headers.get("content-length", 0)))
        try:
            async for piece in _pieces(asked.request.stream()):
                await asyncio.to_thread(half.write, piece)
        except BaseException:  # also a relay that has gone
            half.discard()
            raise
        await asyncio.to_thread(store.keep_artifact, job, path, half)
    except BadEntry as error:
        raise Problem(400, str(error), "path") from None
    except (TakenLater, OSError) as error:
        raise Problem(503, str(error)) from None
    return {"path": path, "size": half.size, "sha256": half.sha256}


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Not too small, because each is written by a thread."""
    piece = bytearray()
    async for content in stream:
        piece += content
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def job_of(asked: Asked) -> str:
    """The job whose token was shown. Raises Problem."""
    if not asked.caller_job:
        raise Problem(403, "only a job tells what it logs: this is the token of somebody else")
    return asked.caller_job


def unpacked(body: bytes, encoding: str) -> bytes:
    """Raises Problem: a small body may have a huge content."""
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() != "gzip":
        raise Problem(415, "the only encoding of a body that is known here is gzip")
    inflating = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        content = inflating.decompress(body, UNPACKED_BYTES_MAX)
    except zlib.error:
        raise Problem(400, "the body is not what gzip makes") from None
    if inflating.unconsumed_tail:
        raise Problem(413, f"the body has more than {UNPACKED_BYTES_MAX} bytes when unpacked")
    if not inflating.eof or inflating.unused_data:
        raise Problem(400, "the body is not what gzip makes: its end is missing, or more follows")
    return content


ENDPOINTS = (
    Endpoint(
        "POST",
        "/tracking",
        take_entries,
        "Takes entries of a spool, one JSON object in a line, of the job whose token is shown. "
        "All before `next` are on disk; those that were sent before are skipped. At most "
        f"{ENTRIES_MAX} are taken at once.",
        object_of(next=INTEGER, refused=INTEGER, reasons=list_of(STRING)),
        (
            Parameter("attempt", "of the job", "integer"),
            Parameter("spool", "which one: entries of each are numbered from 0 on"),
            Parameter("first", "the number of the first entry", "integer", False, 0, NEXT_MAX),
        ),
        content=NDJSON,
    ),
    Endpoint(
        "PUT",
        "/tracking/artifacts/{path:path}",
        take_artifact,
        "Takes a file that the job whose token is shown has logged, under this path. It is on disk "
        "when the answer comes, and replaces an earlier one.",
        object_of(path=STRING, size=INTEGER, sha256=STRING),
        (Parameter("attempt", "of the job", "integer"),),
        content="application/octet-stream",
    ),
    Endpoint(
        "POST",
        "/jobs/{job}/entries",
        add_entries,
        "Adds to what a job of the caller's has logged: entries as above, of none of its attempts. "
        "The same point again is one.",
        object_of(job=STRING, refused=INTEGER, reasons=list_of(STRING)),
        content=NDJSON,
    ),
)
