"""Scripts beside a running job, as `scheduler-connect JOB -- sh` runs them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from cli.command import CommandError
from cli.connect import AHEAD_BYTES, PIECE_BYTES, Requests, Room, first_then
from cli.connection import Connection
from scheduler.v1 import scheduler_pb2 as pb

SAID_BYTES_MAX = 64 * 1024
END_SECONDS = 10.0


# In a pod, a command that ends before it has taken its input does not seem to end (kubectl exec
# waits as well). So the rest is taken, and no more is sent once something was said to be wrong.
_WITH_REST = """\
(
{script}
)
code=$?
cat > /dev/null
exit $code
"""


class _Input:
    """No more is under way than the script may have to take."""

    def __init__(self) -> None:
        self.queue: Requests = SimpleQueue()
        self.room = Room(AHEAD_BYTES)
        self._over = threading.Event()

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self.room.take(len(piece))
            if self._over.is_set():
                raise BrokenPipeError
            self.queue.put(pb.ConnectRequest(data=piece))

    def close(self) -> None:
        self.queue.put(pb.ConnectRequest(end=True))

    def end(self) -> None:
        """No more is taken; who waits for room is told so."""
        self._over.set()
        self.room.give_back(AHEAD_BYTES)


class _ScriptBesideJob:
    """What it prints goes through a pipe, so that it waits while nobody reads."""

    def __init__(self, client: Connection, job: str, script: str) -> None:
        self.stdin = _Input()
        reads, writes = os.pipe()
        self.stdout = os.fdopen(reads, "rb")
        self._said, self._code = b"", 1
        self._error: CommandError | None = CommandError("it was ended", 1)
        to = pb.ConnectTo(job=job, command=["sh", "-c", _WITH_REST.format(script=script)])
        replies = client.visit(first_then(to, self.stdin.queue))
        self._taking = threading.Thread(target=self._take, args=(replies, writes), daemon=True)
        self._taking.start()

    def wait(self) -> tuple[str, int]:
        self._taking.join()
        if self._error:
            raise self._error
        lines = self._said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._code}", self._code

    def end(self) -> None:
        self.stdin.queue.put(None)
        self.stdout.close()
        self._taking.join(END_SECONDS)

    def _take(self, replies: Iterator[pb.ConnectReply], writes: int) -> None:
        try:
            with os.fdopen(writes, "wb", buffering=0) as out, suppress(BrokenPipeError):
                for reply in replies:
                    rest = memoryview(reply.data)
                    while rest:
                        rest = rest[out.write(rest) :]
                    if reply.errors:
                        self._said = (self._said + reply.errors)[-SAID_BYTES_MAX:]
                        self.stdin.end()
                    self.stdin.room.give_back(reply.taken)
                    if reply.HasField("exit_code"):
                        self._said += reply.note.encode()
                        self._code, self._error = reply.exit_code, None
        except CommandError as error:
            self._error = error
        finally:
            self.stdin.end()


class JobScripts:
    def __init__(self, client: Connection, job: str, name: str) -> None:
        """`name`: of the place, in messages."""
        self._client, self._job, self.name = client, job, name

    @contextmanager
    def start(self, script: str) -> Iterator[_ScriptBesideJob]:
        running = _ScriptBesideJob(self._client, self._job, script)
        try:
            yield running
        finally:
            running.end()
