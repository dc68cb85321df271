"""The daemon as the gateway reaches it: one connection, and with each call the token of the person
who asks. What fails is told in the words of the commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from scheduler.gateway import problems
from scheduler.presentation.call_errors import call_error_text

DEADLINE_SECONDS = 15.0  # the daemon gives up after 10, with a better message

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # http_proxy is for the web, and would break 127.0.0.1
    ("grpc.max_receive_message_length", -1),  # a reply is long only if we asked for a long list
    ("grpc.max_reconnect_backoff_ms", 2_000),  # a restarting daemon is back soon
    ("grpc.keepalive_time_ms", 60_000),
)

Reply = TypeVar("Reply", bound=Message)


class DaemonCalls:
    def __init__(self, server: str, ca: Path | None = None) -> None:
        """`server`: HOST:PORT; `ca`: the authority that signed its certificate, else no TLS."""
        self.server, self._ca = server, ca
        self._authority = ca.read_bytes() if ca else b""
        self._channel: Any = None  # of grpc.aio, which has no complete types

    async def ask(
        self, method: str, request: Message, reply: type[Reply], token: str | None
    ) -> Reply:
        """`method`: with its service, as `Scheduler/GetJob`. Raises Problem."""
        call = self._connection().unary_unary(
            f"/scheduler.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            answer: Reply = await call(request, timeout=DEADLINE_SECONDS, metadata=_metadata(token))
        except grpc.aio.AioRpcError as error:
            raise self._problem(method, error) from None
        return answer

    async def stream(
        self, method: str, request: Message, reply: type[Reply], token: str | None
    ) -> AsyncGenerator[Reply, None]:
        call = self._connection().unary_stream(
            f"/scheduler.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )(request, metadata=_metadata(token))
        try:
            async for each in call:
                yield each
        except grpc.aio.AioRpcError as error:
            raise self._problem(method, error) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        if self._channel:
            await self._channel.close(None)

    def _connection(self) -> Any:
        """Made at the first call, because it belongs to the running event loop."""
        if self._channel is None:
            if self._ca:
                trusted = grpc.ssl_channel_credentials(self._authority)
                self._channel = grpc.aio.secure_channel(self.server, trusted, options=_OPTIONS)
            else:
                self._channel = grpc.aio.insecure_channel(self.server, options=_OPTIONS)
        return self._channel

    def _problem(self, method: str, error: grpc.aio.AioRpcError) -> problems.Problem:
        status, details = error.code().name, error.details() or ""
        if status == "UNIMPLEMENTED":  # grpc does not say what
            details = f"it does not know {method}"
        ca = str(self._ca) if self._ca else ""
        return problems.of_call(status, call_error_text(status, details, self.server, ca))


def _metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()
