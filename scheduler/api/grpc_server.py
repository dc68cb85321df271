"""The gRPC server: its ports, its thread, its limits. It knows no jobs."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc

from scheduler.api.aio_server import AioServer, Methods
from scheduler.api.calls import Reception
from scheduler.api.connections import CONNECTIONS_MAX, ConnectionLimits, Connections
from scheduler.api.lanes import Lane
from scheduler.api.probes import Probes
from scheduler.core.errors import ConfigError, InUseError, InvariantError, SchedulerError
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

REQUEST_BYTES_MAX = 2**20
_THIS_MACHINE = (
    "ipv4:127.",
    "ipv6:[::1]:",
    "ipv6:[::ffff:127.",
)  # how a local caller's address begins

# Threads, and calls that may wait for them. A report waits for the disk, and one write serves all
# that wait for it: so trainings have the most. A node has one agent, which reports now and then.
_LANES = {
    **{"Scheduler": (32, 500), "Profiler": (64, 2000), "Agents": (4, 1000), "Gateway": (16, 500)},
    "Packages": (8, 500),
}
_STREAMS = (8, 10_000)  # limited by user elsewhere (api/jobs.py)
# Pages can ask again from where they were, so those that take nothing are not waited for.
_PATIENCE_SECONDS = {"Gateway": 20.0}

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port in use is refused, not shared
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.keepalive_time_ms", 60_000),  # detects watchers on machines that are gone
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_concurrent_streams", 200),  # of a connection
    ("grpc.http2.max_requests_per_read", 2),  # then other connections have their turn
    ("grpc.enable_channelz", 0),
    ("grpc.max_channel_trace_event_memory_per_node", 0),
    ("grpc.server_handshake_timeout_ms", 5_000),  # a connection that sends no HTTP/2 is closed
    ("grpc.max_connection_idle_ms", 300_000),  # without a call; clients connect again
    # Calls of a method that we have not taken yet. Beyond the first number, grpc would cancel some
    # at random, beyond the second all; its own are so low that a burst ends calls of others.
    ("grpc.server.max_pending_requests", CONNECTIONS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", CONNECTIONS_MAX),
    ("grpc.experimental.tcp_tx_zerocopy_max_simultaneous_sends", 0),  # its records, never used
)

# Beyond it, grpc closes a connection at once: the limit that holds between two looks at them.
_ACCEPTED_MAX = "grpc.max_allowed_incoming_connections"
_IN_USE = os.strerror(errno.EADDRINUSE).lower()

TlsAddress = tuple[str, grpc.ServerCredentials]  # another address to listen on, and how
Result = TypeVar("Result")


class GrpcServer:
    """The port is bound on creation, so that it is known or the error is raised; `start` serves."""

    def __init__(
        self,
        listen: str,
        scheduler: pb_grpc.SchedulerServicer,
        profiler: pb_grpc.ProfilerServicer,
        encrypted: TlsAddress | None = None,
        agents: pb_grpc.AgentsServicer | None = None,
        reception: Reception | None = None,
        ended: Callable[[SchedulerError], None] = lambda _: None,
        gateway: pb_grpc.GatewayServicer | None = None,
        packages: pb_grpc.PackagesServicer | None = None,
    ) -> None:
        """`agents`: None on the embedded cluster, because its agent is in this process; `ended`: is
        called if the server ends by itself."""
        self._methods = _Collector()
        pb_grpc.add_SchedulerServicer_to_server(scheduler, self._methods)
        pb_grpc.add_ProfilerServicer_to_server(profiler, self._methods)
        if agents:
            pb_grpc.add_AgentsServicer_to_server(agents, self._methods)
        if gateway:
            pb_grpc.add_GatewayServicer_to_server(gateway, self._methods)
        if packages:
            pb_grpc.add_PackagesServicer_to_server(packages, self._methods)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True)
        self._thread.start()
        self._lanes: list[Lane] = []
        self._reception = reception or Reception()
        self._server: AioServer
        self._probes: Probes
        self._sweeper: asyncio.Task[None]
        self._end: asyncio.Task[None]  # never cancelled: that would cancel the server's own waiting
        self._ended, self._stopping = ended, False
        try:
            limits = ConnectionLimits.by_descriptors()
            self.ports = self._run(self._create(listen, encrypted, limits))
        except ConfigError:
            self._close()
            raise
        self.port = self.ports[0]
        self._connections = Connections(self.ports, limits)

    @property
    def refused(self) -> dict[str, int]:
        """How many calls ended with each status other than OK since the start."""
        return dict(self._reception.refused)

    @property
    def connections_closed(self) -> int:
        """How many connections were closed since the start because there were too many."""
        return self._connections.closed_total

    def start(self) -> None:
        self._run(self._start())
        self._connections.start()

    def stop(self, grace: float) -> None:
        """Accepts no more calls, and gives the present ones `grace` seconds. Returns when all have
        ended."""
        self._connections.stop()
        self._run(self._stop(grace))
        self._close()

    # --- in the thread of the event loop ------------------------------------------------------

    async def _create(
        self, listen: str, encrypted: TlsAddress | None, limits: ConnectionLimits
    ) -> list[int]:
        reception = self._reception
        self._probes = Probes(self._methods.services)
        lanes = {
            f"{pb.DESCRIPTOR.package}.{name}": Lane(name.lower(), *size)
            for name, size in _LANES.items()
        }
        streams = Lane("streams", *_STREAMS)
        self._lanes = [*lanes.values(), streams]
        handlers = {
            f"/{service}/{method}": reception.method(
                handler,
                lanes[service],
                streams,
                _PATIENCE_SECONDS.get(service.rpartition(".")[2]),
            )
            for service, methods in self._methods.services.items()
            for method, handler in methods.items()
        }
        handlers |= self._probes.handlers(reception)
        self._server = AioServer(handlers, (*_OPTIONS, (_ACCEPTED_MAX, limits.most)))
        ports = [self._bind(listen), *([self._bind(*encrypted)] if encrypted else [])]
        reception.peers.ports = tuple(ports)
        self._sweeper = asyncio.create_task(reception.sweep())
        return ports

    async def _start(self) -> None:
        await self._server.start()
        self._end = asyncio.create_task(self._await_end())

    async def _await_end(self) -> None:
        """Nobody would be served by a daemon that goes on without its server."""
        try:
            await self._server.wait_for_termination()
        finally:
            if not self._stopping:
                self._ended(InvariantError("the gRPC server has ended by itself"))

    def _bind(self, listen: str, credentials: grpc.ServerCredentials | None = None) -> int:
        try:
            if credentials:
                return self._server.add_secure_port(listen, credentials)
            return self._server.add_insecure_port(listen)
        except RuntimeError as error:  # it does not say why
            why = _bind_error(listen)
            kind = InUseError if why == _IN_USE else ConfigError
            raise kind(f"cannot listen on {listen}: {why}") from error

    async def _stop(self, grace: float) -> None:
        self._stopping = True
        self._probes.stop()
        self._sweeper.cancel()
        await self._server.stop(grace)

    # --- in any thread ------------------------------------------------------------------------

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Collector:
    """Collects the handlers that generated code adds to a server."""

    def __init__(self) -> None:
        self.services: dict[str, Methods] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        pass  # the same methods once more

    def add_registered_method_handlers(self, service: str, methods: Methods) -> None:
        self.services[service] = methods


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
