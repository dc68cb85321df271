"""Names of methods that would end grpc's own server."""

from __future__ import annotations

import queue
import socket

import grpc
import pytest

from benchmarks.malformed import END, GREETING, HEADERS, frame
from scheduler.api.grpc_server import GrpcServer
from scheduler.core.errors import SchedulerError
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.serving import Serving, by, refused


def _call(path: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """POST, http, and as literals (RFC 7541, section 6.2.2) the rest."""
    fields = (
        (b":path", path),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *headers,
    )
    words = (b"\0" + bytes([len(n)]) + n + bytes([len(value)]) + value for n, value in fields)
    return GREETING + frame(HEADERS, END, 1, b"\x83\x86" + b"".join(words))


@pytest.mark.parametrize("header", [b"authorization", b"x-bin", b"grpc-timeout", b"user-agent"])
@pytest.mark.parametrize(
    "path",
    [b"/\xff\xfe/x", b"\xc3", b"", b"/", b"/a\0b", b"/scheduler.v1.Scheduler/GetCluster"],
)
def test_no_name_and_no_header_ends_the_server(served: Serving, path: bytes, header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=60) as raw:
        raw.sendall(_call(path, (header, b"\xff\xfe\xfd")))
        raw.shutdown(socket.SHUT_WR)
        while True:
            try:
                if not raw.recv(4096):
                    break
            except ConnectionResetError:
                break
    served.people.ListJobs(pb.ListJobsRequest(), metadata=by("ada"), timeout=60)


def test_a_method_that_does_not_exist_is_unimplemented(served: Serving) -> None:
    for name in ("/scheduler.v1.Scheduler/Destroy", "/x", "/" + "ä" * 100):
        method = served.channel.unary_unary(name, lambda data: data, lambda data: data)
        with refused(grpc.StatusCode.UNIMPLEMENTED, "Method not found"):
            method(b"", timeout=60)


def test_the_daemon_hears_that_its_server_has_ended() -> None:
    ended: queue.SimpleQueue[SchedulerError] = queue.SimpleQueue()
    services = pb_grpc.SchedulerServicer(), pb_grpc.ProfilerServicer()
    for by_itself in (True, False):
        server = GrpcServer("127.0.0.1:0", *services, ended=ended.put)
        server.start()
        if by_itself:
            server._run(server._server.stop(None))
            assert str(ended.get(timeout=60)) == "the gRPC server has ended by itself"
        server.stop(0)
    assert ended.empty(), "it was asked to end"
