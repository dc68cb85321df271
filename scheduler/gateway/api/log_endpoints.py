"""The output of jobs, by ranges of bytes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.v1 import scheduler_pb2 as pb

LENGTH, BYTES_MAX = 64 * 1024, 2**20
OFFSET_MAX = 2**62


async def read_log(asked: Asked) -> Any:
    """The bytes as they are, so that nothing is lost or doubled whatever a job writes; as a type
    that no browser shows."""
    given = asked.given
    listing = given.get("list", False)
    request = pb.ReadLogRequest(
        job=asked.job,
        attempt=given.get("attempt", 0),
        rank=given.get("rank", 0),
        offset=given.get("offset", 0),
        length=1 if listing else given.get("length", LENGTH),
        list=listing,
    )
    reply = await asked.daemon.ask("Gateway/ReadLog", request, pb.ReadLogReply, asked.token)
    if listing:
        return _files(reply)
    content, gaps = _content(reply, request.length)
    headers = {
        "Log-Job": reply.job_id,
        "Log-Attempt": str(reply.attempt),
        "Log-Rank": str(reply.rank),
        "Log-Size": str(reply.size),
        "Log-Offset": str(reply.offset),
        "Log-Next": str(reply.offset + len(content)),
        "Log-Gaps": gaps,
        # Only who has read to the end knows that nothing follows.
        "Log-Ended": "true" if reply.ended else "false",
        "Cache-Control": "no-store",
        "Content-Disposition": "attachment",
    }
    return Response(content, headers=headers, media_type="application/octet-stream")


def _content(reply: pb.ReadLogReply, length: int) -> tuple[bytes, str]:
    """Output that was not kept is zeros, as in a sparse file, so that offsets are those of the log;
    and where that is, as `OFFSET+LENGTH ...`."""
    content, gaps = bytearray(), []
    for part in reply.parts:
        left = length - len(content)
        if part.gap and left > 0:
            gaps.append(f"{reply.offset + len(content)}+{part.gap}")
            content += bytes(min(part.gap, left))
        content += part.data[: max(0, left)]
    return bytes(content), " ".join(gaps)


def _files(reply: pb.ReadLogReply) -> dict[str, Any]:
    return {
        "job_id": reply.job_id,
        "files": [
            {"attempt": file.attempt, "rank": file.rank, "size": file.size} for file in reply.files
        ],
        "left_out": reply.files_left_out,
        "note": reply.note,
    }


_NUMBER = {"type": "integer"}
_FILE = {
    "type": "object",
    "properties": {"attempt": _NUMBER, "rank": _NUMBER, "size": _NUMBER},
    "required": ["attempt", "rank", "size"],
}

_FILES = {
    "type": "object",
    "properties": {
        "job_id": {"type": "string"},
        "files": {"type": "array", "items": _FILE},
        "left_out": _NUMBER,
        "note": {"type": "string"},
    },
    "required": ["job_id", "files", "left_out", "note"],
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/jobs/{job}/log",
        read_log,
        "A part of the output of a job, as bytes. The headers Log-Size, Log-Offset, Log-Next, "
        "Log-Gaps, Log-Ended, Log-Attempt and Log-Rank say which part.",
        {"type": "string", "format": "binary"},
        (
            Parameter("attempt", "of this attempt; 0: the newest with output", "integer"),
            Parameter("rank", "of this process", "integer"),
            Parameter(
                "offset",
                "from this byte on; negative: so many before the end",
                "integer",
                False,
                -OFFSET_MAX,
                OFFSET_MAX,
            ),
            Parameter("length", f"default {LENGTH:,}", "integer", False, 1, BYTES_MAX),
            Parameter("list", "instead, as JSON, which files there are", "boolean"),
        ),
        type="application/octet-stream",
        or_json=_FILES,
    ),
)
