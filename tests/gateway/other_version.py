"""A daemon of another version: the real one, with what another one would not know or says more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from tests.serving import Serving

Call = Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]
Change = Callable[[str, bytes], bytes]  # of a reply of a method; both as on the wire


class _Between(grpc.GenericRpcHandler):
    def __init__(self, daemon: Serving, unknown: Collection[str], change: Change) -> None:
        self._daemon, self._unknown, self._change = daemon, unknown, change
        self.asked: list[str] = []

    def service(
        self, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = details.method.removeprefix("/scheduler.v1.")
        self.asked.append(method)
        if method in self._unknown:
            return None  # as a server answers that has no such method
        return grpc.unary_stream_rpc_method_handler(self._forward(method))

    def _forward(self, method: str) -> Call:
        """On the wire, a call with one reply is a stream of one."""
        ask: grpc.UnaryStreamMultiCallable[bytes, bytes]
        ask = self._daemon.channel.unary_stream(f"/scheduler.v1.{method}")

        def forward(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            sent = context.invocation_metadata()
            token = tuple((key, value) for key, value in sent if key == "authorization")
            call = ask(request, metadata=token)

            def end() -> None:
                call.cancel()

            context.add_callback(end)
            try:
                for reply in call:
                    yield self._change(method, reply)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")

        return forward


@contextmanager
def other_version(
    daemon: Serving, unknown: Collection[str] = (), change: Change = lambda _, reply: reply
) -> Iterator[tuple[str, list[str]]]:
    """Yields its address, and the methods that it is asked for. `unknown`: what it does not know,
    as `Gateway/GetUsage`; `change`: what it says instead."""
    between = _Between(daemon, unknown, change)
    server = grpc.server(ThreadPoolExecutor(8), handlers=[between])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", between.asked
    finally:
        server.stop(0).wait()
