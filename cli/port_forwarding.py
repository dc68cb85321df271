"""Ports of this machine that are ports of a job: each connection is a call of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType

from cli.command import CommandError, note
from cli.connection import Connection
from scheduler.v1 import scheduler_pb2 as pb

PIECE_BYTES = 256 * 1024
HERE = "127.0.0.1"


class PortForwarding:
    """From its creation on the ports are taken; within the block they are served."""

    def __init__(self, client: Connection, job: str, ports: Sequence[tuple[int, int]]) -> None:
        """`ports`: of the job, and of this machine; 0: any that is free."""
        self.used_at = time.monotonic()  # when a connection last began, brought data, or ended
        self._client, self._job = client, job
        self._listening = ExitStack()
        self._listeners = [(port, self._listen(local)) for port, local in ports]
        self.ports = [(port, each.getsockname()[1]) for port, each in self._listeners]

    def __enter__(self) -> PortForwarding:
        for port, listener in self._listeners:
            threading.Thread(target=self._accept, args=(port, listener), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.close()

    def _listen(self, local: int) -> socket.socket:
        try:
            return self._listening.enter_context(socket.create_server((HERE, local)))
        except OSError as error:
            self._listening.close()
            why = (error.strerror or str(error)).lower()
            raise CommandError(
                f"--port: cannot listen on {HERE}:{local}: {why}; name another one after a colon", 1
            ) from None

    def _accept(self, port: int, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return  # it has been closed
            threading.Thread(target=self._serve, args=(port, accepted), daemon=True).start()

    def _serve(self, port: int, accepted: socket.socket) -> None:
        self.used_at = time.monotonic()
        with accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for reply in self._client.visit(_requests(self._job, port, accepted)):
                    self.used_at = time.monotonic()
                    if reply.data:
                        accepted.sendall(reply.data)
                    if reply.end:
                        accepted.shutdown(socket.SHUT_WR)
            except CommandError as error:
                note(f"scheduler-connect: {error}")
            except OSError:
                pass  # the program here has closed it
            finally:
                self.used_at = time.monotonic()
                with suppress(OSError):
                    accepted.shutdown(socket.SHUT_RDWR)  # wakes the thread that receives


def _requests(job: str, port: int, accepted: socket.socket) -> Iterator[pb.ConnectRequest]:
    yield pb.ConnectRequest(to=pb.ConnectTo(job=job, port=port))
    with suppress(OSError):
        while data := accepted.recv(PIECE_BYTES):
            yield pb.ConnectRequest(data=data)
    yield pb.ConnectRequest(end=True)
