"""The gRPC server: its port, threads and limits, and the statuses of errors. It knows no jobs.

Every call passes `Guard`, so no method has to handle malformed bytes or exceptions.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from scheduler.core.errors import Busy, ConfigError, NotFound, Rejected, SchedulerError
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

REQUEST_BYTES_MAX = 2**20
STREAMS_MAX = 32  # a stream blocks a thread for as long as a client watches
ANONYMOUS_MAX = 8  # streams of health and reflection, which need no token
CALLS_MAX = 32  # threads that streams can never take
WAITING_MAX = 1000  # calls accepted and not answered yet
_THIS_MACHINE = (
    "ipv4:127.",
    "ipv6:[::1]:",
    "ipv6:[::ffff:127.",
)  # how a local caller's address begins
_DETAILS_MAX = 2000  # characters; details are sent in a header, and headers must be small

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port in use is refused, not shared
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.keepalive_time_ms", 60_000),  # detects watchers on machines that are gone
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)

TlsAddress = tuple[str, grpc.ServerCredentials]  # another address to listen on, and how

log = structlog.get_logger("scheduler.api.grpc_server")


class GrpcServer:
    """The port is bound on creation, so that it is known or the error is raised; `start` serves."""

    def __init__(
        self,
        listen: str,
        scheduler: pb_grpc.SchedulerServicer,
        profiler: pb_grpc.ProfilerServicer,
        encrypted: TlsAddress | None = None,
        agents: pb_grpc.AgentsServicer | None = None,
    ) -> None:
        """`agents`: None on the embedded cluster, because its agent is in this process."""
        threads = CALLS_MAX + STREAMS_MAX + ANONYMOUS_MAX
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rpc")
        self._server = grpc.server(
            self._pool,
            interceptors=[Guard(STREAMS_MAX, ANONYMOUS_MAX)],
            options=_OPTIONS,
            maximum_concurrent_rpcs=WAITING_MAX,
        )
        pb_grpc.add_SchedulerServicer_to_server(scheduler, self._server)
        pb_grpc.add_ProfilerServicer_to_server(profiler, self._server)
        services = dict(pb.DESCRIPTOR.services_by_name)
        if agents:
            pb_grpc.add_AgentsServicer_to_server(agents, self._server)
        else:
            del services["Agents"]
        names = [service.full_name for service in services.values()]
        self._health = _Health(("", *names))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        for name in ("", *names):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self.port = self._bind(listen)
        self.ports = [self.port, *([self._bind(*encrypted)] if encrypted else [])]

    def _bind(self, listen: str, credentials: grpc.ServerCredentials | None = None) -> int:
        try:
            if credentials:
                return self._server.add_secure_port(listen, credentials)
            return self._server.add_insecure_port(listen)
        except RuntimeError as error:  # it does not say why
            self._pool.shutdown()
            raise ConfigError(f"cannot listen on {listen}: {_bind_error(listen)}") from error

    def start(self) -> None:
        self._server.start()

    def stop(self, grace: float) -> None:
        """Accepts no more calls, and gives the present ones `grace` seconds. Returns when all have
        ended."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()
        self._pool.shutdown()


def token_of(context: grpc.ServicerContext) -> str | None:
    """What the caller sent as `authorization: Bearer TOKEN`."""
    for key, value in context.invocation_metadata():
        if key == "authorization" and isinstance(value, str):
            kind, _, token = value.partition(" ")
            return token.strip() if kind.lower() == "bearer" else None
    return None


def is_insecure(context: grpc.ServicerContext) -> bool:
    """Whether others could read the call: it came from another machine, unencrypted."""
    if b"ssl" in context.auth_context().get("transport_security_type", ()):
        return False
    return not unquote(context.peer()).startswith(_THIS_MACHINE)


class Guard(grpc.ServerInterceptor):
    """The entry of every thread that serves a call, and the only place where errors become
    statuses."""

    def __init__(self, streams_max: int, anonymous_max: int) -> None:
        self._streams = _StreamSlots(streams_max)
        self._anonymous = _StreamSlots(anonymous_max)
        self._guarded: dict[str, Any] = {}  # by method, so that a call costs one lookup

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = handler_call_details.method
        if method not in self._guarded:
            handler = continuation(handler_call_details)
            if handler is None:
                return None  # no such method; not cached, because the number of names is unlimited
            seats = self._anonymous if method.startswith("/grpc.") else self._streams
            self._guarded[method] = _guard(handler, seats)
        return self._guarded[method]


class _StreamSlots:
    """Limits the number of streams, because each blocks a thread for as long as it lasts."""

    def __init__(self, most: int) -> None:
        self._most, self._free = most, threading.BoundedSemaphore(most)

    def __enter__(self) -> None:
        if not self._free.acquire(blocking=False):
            raise Busy(f"too many watchers: at most {self._most} at a time")

    def __exit__(self, *_: object) -> None:
        self._free.release()


class _Health(health.HealthServicer):
    """Only existing services can be watched: grpc keeps every watched name forever."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(experimental_non_blocking=False)  # else their number is unlimited
        self._names = names

    def Watch(self, request: Any, context: Any, send_response_callback: Any = None) -> Any:
        if request.service not in self._names:
            raise NotFound("there is no service with that name")
        return super().Watch(request, context, send_response_callback)


def _guard(handler: Any, seats: _StreamSlots) -> Any:
    """Returns a handler that parses the request itself: grpc reports garbage as an internal
    error."""
    parse = handler.request_deserializer
    bare = handler._replace(request_deserializer=None)
    if handler.unary_unary:
        return bare._replace(unary_unary=_call(handler.unary_unary, parse))
    if handler.unary_stream:
        return bare._replace(unary_stream=_stream(handler.unary_stream, parse, seats))

    def parse_each(requests: Iterator[bytes]) -> Iterator[Any]:
        return (_parse(parse, request) for request in requests)

    # Reflection: our own methods take no streams.
    return bare._replace(stream_stream=_stream(handler.stream_stream, parse_each, seats))


def _stream(behaviour: Any, parse: Callable[[Any], Any], seats: _StreamSlots) -> Any:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            with seats:
                yield from behaviour(_parse(parse, request), context)
        except Exception as error:  # noqa: BLE001 - a thread's entry
            _abort(context, error)

    return answer


def _call(behaviour: Any, parse: Callable[[bytes], Any]) -> Any:
    def answer(request: bytes, context: grpc.ServicerContext) -> Any:
        try:
            return behaviour(_parse(parse, request), context)
        except Exception as error:  # noqa: BLE001 - a thread's entry
            _abort(context, error)

    return answer


def _parse(parse: Callable[[Any], Any], request: Any) -> Any:
    try:
        return parse(request)
    except DecodeError as error:
        raise Rejected(
            "the request is not the protobuf message that this method expects"
        ) from error


def _abort(context: grpc.ServicerContext, error: Exception) -> None:
    """Ends the call with an exception that grpc knows."""
    if isinstance(error, SchedulerError):
        status, details = error.status, str(error)
    else:
        log.error("call_failed", exc_info=error)
        status, details = "INTERNAL", f"{type(error).__name__}; the daemon's log has the details"
    context.abort(grpc.StatusCode[status], details[:_DETAILS_MAX])


def _bind_error(listen: str) -> str:
    """Asks the system for the reason, because grpc gives none."""
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(re.sub(r"[\[\]]", "", host), int(port), type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return "the system refuses"
