"""Health and reflection: what a caller without a token is told. They need no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from scheduler.api.aio_server import Methods
from scheduler.api.calls import Reception, parsed
from scheduler.core.errors import Busy, NotFound

WATCHERS_MAX = 8  # streams at a time

_ANSWER = health_pb2.HealthCheckResponse


class Probes:
    """For the thread of the event loop."""

    def __init__(self, services: Collection[str]) -> None:
        self._served = ("", *services)
        names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        self._reflection: Any = ReflectionServicer(names)  # whose stubs are wrong
        self._stopping = asyncio.Event()
        self._watchers = 0

    def handlers(self, reception: Reception) -> Methods:
        """By full name of the method."""

        async def check(request: bytes, context: Any) -> bytes:
            answer: bytes = self._status(_service(request)).SerializeToString()
            return answer

        async def watch(request: bytes, context: Any) -> None:
            with self._seat():
                service = _service(request)
                await context.write(self._status(service).SerializeToString())
                await self._stopping.wait()
                await context.write(self._status(service).SerializeToString())

        async def reflect(first: bytes, context: Any) -> None:
            request: bytes | None = first
            with self._seat():
                while request is not None:
                    asked = parsed(reflection_pb2.ServerReflectionRequest.FromString, request)
                    async for answer in self._reflection.ServerReflectionInfo(_each(asked), None):
                        await context.write(answer.SerializeToString())
                    request = await reception.read(context)

        entry, stream = reception.entry, grpc.stream_stream_rpc_method_handler
        return {
            f"/{health.SERVICE_NAME}/Check": grpc.stream_unary_rpc_method_handler(entry(check)),
            f"/{health.SERVICE_NAME}/Watch": stream(entry(watch)),
            f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": stream(entry(reflect)),
        }

    def stop(self) -> None:
        self._stopping.set()

    def _status(self, service: str) -> Any:
        if service not in self._served:
            raise NotFound("there is no service with that name")
        return _ANSWER(status=_ANSWER.NOT_SERVING if self._stopping.is_set() else _ANSWER.SERVING)

    @contextmanager
    def _seat(self) -> Iterator[None]:
        if self._watchers >= WATCHERS_MAX:
            raise Busy(f"too many watchers: at most {WATCHERS_MAX} at a time")
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1


def _service(request: bytes) -> str:
    name: str = parsed(health_pb2.HealthCheckRequest.FromString, request).service
    return name


async def _each(request: Any) -> Any:
    yield request
