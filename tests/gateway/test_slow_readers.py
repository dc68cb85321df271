"""Pages that take their events slowly, or not at all, as the wire has them: each loses its place,
nothing piles up for it, and it can go on where it was."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
import uvicorn

from scheduler.access.identity import user_token
from scheduler.gateway import app
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.events import Events
from scheduler.gateway.http_connection import HttpConnection
from tests.gateway.serving_http import Served
from tests.serving import SECRET, Serving

BUFFER_BYTES = 4096  # of the kernel, at both ends: else it takes megabytes for a reader
ID = re.compile(rb"^id: (.+)\ndata: .*\n\n", re.M)


class Impatient(HttpConnection):
    stuck_seconds = 0.01


@dataclass
class Small:
    """A gateway in this process, with a kernel that keeps little."""

    port: int
    events: Events
    server: uvicorn.Server

    def waiting(self) -> int:
        """Bytes that the gateway holds for its readers."""
        buffered = [
            connection.transport.get_write_buffer_size()
            for connection in self.server.server_state.connections
        ]
        return sum(buffered) + sum(each.waiting_bytes for each in self.events._followers)


@asynccontextmanager
async def small(daemon: Serving) -> AsyncIterator[Small]:
    calls = DaemonCalls(f"127.0.0.1:{daemon.server.port}")
    events = Events(calls)
    config = uvicorn.Config(
        app.create(calls, events, "1", encrypted=False),
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)  # those accepted have it
        await server.startup([wire])
        try:
            yield Small(wire.getsockname()[1], events, server)
        finally:
            events.close()
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            server.servers[0].close()
            await calls.close()


@pytest.mark.parametrize("at_once", [0, 1])
@pytest.mark.parametrize("query", ["", "?user=ada"])
def test_a_slow_reader_loses_its_place_and_goes_on(
    at_once: int, query: str, served: Served
) -> None:
    """`at_once`: bytes that it reads, and then does something else."""

    async def life() -> None:
        loop = asyncio.get_running_loop()
        async with small(served.daemon) as made:
            page = socket.socket()
            page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            page.setblocking(False)
            with page:
                await loop.sock_connect(page, ("127.0.0.1", made.port))
                await loop.sock_sendall(page, _request(f"/events{query}"))
                got = await loop.sock_recv(page, 2)
                while b"\nid: " not in got:  # it has its place
                    got += await loop.sock_recv(page, 1)
                jobs: list[str] = []
                while made.events._streams:
                    name = f"job-{len(jobs)}-{'x' * 200}"
                    jobs.append(await asyncio.to_thread(served.daemon.submit, name, held=True))
                    assert made.waiting() < 2**20
                    if at_once:
                        with suppress(ConnectionError):
                            got += await loop.sock_recv(page, at_once)
                with suppress(ConnectionError):
                    while part := await loop.sock_recv(page, 2**16):
                        got += part
            place = ID.findall(_body(got))[-1].decode()
            assert jobs[-1].encode() not in got
            page_again = served.listen(**({"user": "ada"} if query else {}))
            page_again.last_id = place
            with page_again:
                while jobs[-1] not in page_again.jobs:
                    await asyncio.sleep(0.02)
                known = set(page_again.jobs) | {job for job in jobs if job.encode() in got}
                assert known >= set(jobs)
                first = int(place.partition(".")[0]) + 1
                assert page_again.facts == list(range(first, first + len(page_again.facts)))

    asyncio.run(life())


def _request(path: str) -> bytes:
    token = user_token(SECRET, "ada")
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def _body(got: bytes) -> bytes:
    """Without the headers, and the lengths of chunks."""
    return re.sub(rb"\r\n[0-9a-f]+\r\n", b"", got.partition(b"\r\n\r\n")[2])
