"""A proxy before the API server that injects faults of networks and servers into chosen requests.

It speaks TLS with a certificate of the tests' authority, reads the head of each request, and passes
bytes on as they come, watches and upgraded connections too. A connection carries one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.kube.control import LOOPBACK, ControlPlane
from tests.kube.processes import free_port

END_OF_HEAD = b"\r\n\r\n"
REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True)
class Delay:
    """The request is passed on after a delay."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """The request is not passed on; this is the answer."""

    status: int
    reason: str = ""  # of a Kubernetes Status; by default the usual one
    retry_after: int | None = None  # seconds


@dataclass(frozen=True)
class Reset:
    """The connection breaks. What is `late` was passed on: it was done, and its answer is lost."""

    late: bool = False


@dataclass(frozen=True)
class Silence:
    """Nothing comes back, and the connection stays. What is `late` was passed on."""

    late: bool = False


@dataclass(frozen=True)
class Expire:
    """A watch begins normally, and its first event is the error 410."""


Effect = Delay | Answer | Reset | Silence | Expire


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # with its query


@dataclass(eq=False)
class Fault:
    """What happens to the next `times` requests that match."""

    effect: Effect
    method: str  # these are regular expressions; the path's is searched
    path: str
    times: int
    hit: list[Request] = field(default_factory=list)

    def matches(self, request: Request) -> bool:
        return (
            len(self.hit) < self.times
            and re.fullmatch(self.method, request.method) is not None
            and re.search(self.path, request.path) is not None
        )


class Proxy:
    """`url` is where it listens; `seen` are all requests that came, in their order."""

    def __init__(self, control: ControlPlane) -> None:
        self._folder, self._api = control.folder, urlsplit(control.url)
        self.url = f"https://{LOOPBACK}:{free_port()}"
        self.seen: list[Request] = []
        self._faults: list[Fault] = []
        self._open: dict[asyncio.Task[None], tuple[Request, asyncio.StreamWriter]] = {}
        self._trust = ssl.create_default_context(cafile=control.authority.certificate)
        self._identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._identity.load_cert_chain(*control.authority.issue("proxy", LOOPBACK))

    # --- for tests --------------------------------------------------------------------------

    def inject(self, effect: Effect, method: str = ".*", path: str = "", times: int = 1) -> Fault:
        """Injects a fault from now on. If several match a request, the last one applies."""
        fault = Fault(effect, method, path, times)
        self._faults.insert(0, fault)
        return fault

    def heal(self) -> None:
        """Removes all faults. Requests that are left without an answer stay so."""
        self._faults.clear()

    def cut(self, path: str = "") -> None:
        """Resets all open connections, such as watches."""

        def now() -> None:
            for request, writer in self._open.values():
                if re.search(path, request.path):
                    _reset(writer)

        self._loop.call_soon_threadsafe(now)

    def kubeconfig(self, of: Path) -> Path:
        """A kubeconfig for the same user and token file, through the proxy."""
        told = json.loads(of.read_text())
        told["clusters"][0]["cluster"]["server"] = self.url
        path = self._folder / f"{of.stem}-proxied.kubeconfig"
        path.write_text(json.dumps(told))
        return path

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        started: Future[None] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="proxy")
        thread.start()
        started.result()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join()

    # --- its own thread ---------------------------------------------------------------------

    async def _run(self, started: Future[None]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        port = urlsplit(self.url).port
        try:
            server = await asyncio.start_server(self._serve, LOOPBACK, port, ssl=self._identity)
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(None)
        await self._end.wait()
        server.close()
        for task in (open := list(self._open)):
            task.cancel()
        await asyncio.gather(*open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # Broken connections are the purpose of this proxy; the client must cope with them.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            async with _closing(writer):
                head = await reader.readuntil(END_OF_HEAD)
                method, path, _ = head.decode("latin-1").split(" ", 2)
                request = Request(method, path)
                self.seen.append(request)
                self._open[task] = request, writer
                fault = next((fault for fault in self._faults if fault.matches(request)), None)
                if fault:
                    fault.hit.append(request)
                await self._answer(fault.effect if fault else None, head, reader, writer)
        self._open.pop(task, None)

    async def _answer(
        self,
        effect: Effect | None,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        match effect:
            case None:
                await self._pass_on(head, reader, writer)
            case Delay(seconds):
                await asyncio.sleep(seconds)
                await self._pass_on(head, reader, writer)
            case Answer() | Expire():
                await _body(head, reader)  # else closing would reset what is not read yet
                writer.write(_encode(effect))
                await writer.drain()
            case Reset(late) | Silence(late):
                body = await _body(head, reader)
                if late:
                    async with self._upstream() as (answer, above):
                        above.write(_with_close(head) + body)
                        await answer.readuntil(END_OF_HEAD)
                if isinstance(effect, Reset):
                    _reset(writer)
                else:
                    await reader.read()  # until the client gives up

    async def _pass_on(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Both ways, until one side has nothing to say any more."""
        async with self._upstream() as (answer, above):
            above.write(_with_close(head))
            ways = [
                asyncio.create_task(_copy(reader, above)),
                asyncio.create_task(_copy(answer, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _upstream(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        host, port = self._api.hostname, self._api.port
        reader, writer = await asyncio.open_connection(host, port, ssl=self._trust)
        async with _closing(writer):
            yield reader, writer


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        try:
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()  # even if it is cancelled while TLS closes the connection


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    length = re.search(rb"^content-length: *(\d+)", head, re.I | re.M)
    return await reader.readexactly(int(length[1])) if length else b""


def _with_close(head: bytes) -> bytes:
    """Adds a header that ends the connection with the answer, so no answer has to be parsed."""
    if re.search(rb"^upgrade:", head, re.I | re.M):
        return head
    kept = re.sub(rb"^connection:.*\r\n", b"", head, flags=re.I | re.M)
    return kept.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"


def _encode(effect: Answer | Expire) -> bytes:
    code = effect.status if isinstance(effect, Answer) else 410
    reason = (isinstance(effect, Answer) and effect.reason) or REASONS[code]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"the tests' proxy answers {code}",
        "reason": reason,
        "code": code,
    }
    event = {"type": "ERROR", "object": status}
    watched = isinstance(effect, Expire)
    body = json.dumps(event if watched else status).encode() + b"\n"
    lines = [
        "HTTP/1.1 200 OK" if watched else f"HTTP/1.1 {code} {reason}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if isinstance(effect, Answer) and effect.retry_after is not None:
        lines.append(f"Retry-After: {effect.retry_after}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _reset(writer: asyncio.StreamWriter) -> None:
    """Breaks the connection instead of closing it: the other side reads ECONNRESET."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
