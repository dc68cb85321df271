"""grpc's asynchronous server, without its one fault: a method whose name is no text ended it.

It decodes the name of each method that it does not know, strictly, in the task that receives all
calls: one such call, from anybody, and it serves nobody any more. So all methods are registered,
which makes it know their names, and calls of others are refused here, where no name is read.
This rests on inner parts of grpc (1.85); tests/api/test_aio_server.py notices when they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

Methods = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]  # by full name


class AioServer(_server.Server):
    """To be made and used in the thread of the event loop."""

    def __init__(self, methods: Methods, options: Sequence[tuple[str, int]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = _Core(self._loop, None, (), (), options, None)
        self._server.add_registered_method_handlers(dict(methods))


class _Core(cygrpc.AioServer):  # type: ignore[misc]  # it has no types
    async def _request_call(self) -> Any:
        """Waits for a call of a method that is not registered, for ever: it refuses them all."""
        loop = asyncio.get_running_loop()
        refusals: set[asyncio.Task[None]] = set()  # the loop itself would forget them
        while True:
            call = await super()._request_call()
            refusal = cygrpc._handle_rpc("", _NoMethods(), (), call, loop, False)
            task = loop.create_task(cygrpc._schedule_rpc_coro(refusal, call, loop, ""))
            refusals.add(task)
            task.add_done_callback(refusals.discard)


class _NoMethods:
    def resolve_handler(self, details: object) -> None:
        return None
