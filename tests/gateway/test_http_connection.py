"""Slow and many connections, as the wire has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import uvicorn
from starlette.types import Receive, Scope, Send

from scheduler.gateway.http_connection import HEADER_BYTES_MAX, HttpConnection

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


class Impatient(HttpConnection):
    idle_seconds = 0.01
    stuck_seconds = 0.01
    most = 3


class Patient(HttpConnection):
    most = 3


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while scope["path"] == "/endless":
        await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
        await asyncio.sleep(0)  # nothing tells an application that its reader has gone
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listening(kind: type[HttpConnection]) -> AsyncIterator[Connect]:
    config = uvicorn.Config(
        large,
        http=kind,
        port=0,
        ws="none",
        lifespan="off",
        log_config=None,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]

    async def connect() -> Streams:
        return await asyncio.open_connection("127.0.0.1", port)

    try:
        yield connect
    finally:
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        server.servers[0].close()


def test_a_header_that_does_not_end_is_cut() -> None:
    async def life() -> None:
        async with listening(Impatient) as connect:
            for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
                reader, writer = await connect()
                writer.write(sent)
                assert await reader.read() == b""
                writer.close()

    asyncio.run(life())


def test_a_connection_that_asks_no_more_is_cut() -> None:
    async def life() -> None:
        async with listening(Impatient) as connect:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
            assert (await reader.read()).count(b"200 OK") == 1
            writer.close()

    asyncio.run(life())


def test_a_reader_that_takes_nothing_is_cut() -> None:
    async def life() -> None:
        async with listening(Impatient) as connect:
            reader, writer = await connect()
            writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
            # The stream's own buffer is full at some time, and then nothing is taken any more.
            await _lost(writer)
            writer.close()
            reader.feed_eof()

    asyncio.run(life())


async def _lost(writer: asyncio.StreamWriter) -> None:
    """Sends now and then, because a reader of nothing is told nothing."""
    with suppress(ConnectionError):
        while True:
            writer.write(b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)


def test_beyond_the_limit_a_connection_is_told_to_come_again() -> None:
    async def life() -> None:
        async with listening(Patient) as connect:
            taken = [await connect() for _ in range(3)]
            for reader, writer in taken:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            reader, writer = await connect()
            refused = await reader.read()
            assert refused.startswith(b"HTTP/1.1 503")
            assert b"\r\nRetry-After: 2\r\n" in refused
            for _, each in [*taken, (reader, writer)]:
                each.close()

    asyncio.run(life())


def test_a_header_that_is_too_large_is_refused() -> None:
    async def life() -> None:
        async with listening(Patient) as connect:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (HEADER_BYTES_MAX + 1))
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()

    asyncio.run(life())
