"""The output of a job as one text until the job ends, also if the daemon restarts meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from cli.client import PAUSES_SECONDS, CallError
from cli.connection import Connection
from scheduler.v1 import scheduler_pb2 as pb


def follow(
    client: Connection,
    request: pb.GetLogsRequest,
    lost: Callable[[], None],
    pause: float = PAUSES_SECONDS[-1],
) -> Iterator[pb.LogChunk]:
    """Ends when the job has ended. If the connection breaks, calls `lost`, waits for the daemon
    to return, and continues where the output was cut."""
    text, connected = ResumedText(), False
    while True:
        try:
            for chunk in client.get_logs(request, wait=connected):
                connected = True
                request.job = chunk.job_id  # later, the name may be that of another job
                request.ClearField("tail")
                if chunk.file:
                    request.have[chunk.file] = chunk.offset + len(chunk.data)
                yield from text.add(chunk)
            if client.get_job(request.job).job.HasField("ended_at"):
                return
        except CallError as error:
            if not connected or error.status not in ("UNAVAILABLE", "CANCELLED"):
                raise
        lost()
        text.resume()
        time.sleep(pause)


class ResumedText:
    """The chunks of several streams of one text, without what a stream repeats when it begins: the
    title of the file that is being read, and notes."""

    def __init__(self) -> None:
        self._file, self._ends_line = "", True
        self._title: pb.LogChunk | None = None  # is printed if output of another file follows
        self._resumed = False
        self._notes: set[str] = set()

    def resume(self) -> None:
        self._resumed, self._title = True, None

    def add(self, chunk: pb.LogChunk) -> Iterator[pb.LogChunk]:
        if chunk.note and chunk.note not in self._notes:
            self._notes.add(chunk.note)
            yield chunk
        elif chunk.data and not chunk.file:
            self._title = chunk
        elif chunk.data:
            if self._title and not (self._resumed and chunk.file == self._file):
                if self._resumed and not self._ends_line:
                    self._title.data = b"\n" + self._title.data
                yield self._title
            yield chunk
            self._file, self._ends_line = chunk.file, chunk.data.endswith(b"\n")
            self._title, self._resumed = None, False
