"""The HTTP transport, used without grpcio, with every kind of answer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest

from kubernetesdlprofile import wire
from kubernetesdlprofile.http import HttpTransport
from kubernetesdlprofile.transport import GrpcTransport, Refused, Unreachable, connect

PROFILE = wire.Profile("job", 2, 0, 3, 0.1, 1.0, 320.0, 4000, 0.0, 10, 30, -1)
QUESTION = wire.StartEpoch("job", 2, 0, 0, 3)
LONG = 30.0


def test_what_the_first_library_said_is_said_in_its_order(web: Any) -> None:
    transport = HttpTransport(web.address, "a-token")
    assert transport.call("StartEpoch", QUESTION, LONG) == (False, "")
    transport.call("Report", [PROFILE], LONG)
    transport.call("EndEpoch", [PROFILE, PROFILE._replace(epoch=4)], LONG)
    transport.call("Finish", wire.Finish("job", 2, 0, False), LONG)
    assert [(method, path) for method, path, _ in web.heard] == [
        ("GET", "/has_to_stop/job"),
        ("POST", "/profiling/job"),
        ("POST", "/profiling/job"),
        ("POST", "/profiling/job"),
        ("POST", "/end_epoch/job"),
        ("POST", "/signal_end/job"),
    ]
    sign_of_life, *ended = web.bodies("/profiling/")
    assert "epochDur" not in sign_of_life
    assert [body["epochDur"] for body in ended] == [1.0, 1.0]
    told = {name: sign_of_life[name] for name in ("jobid", "iternum", "meandur", "gpumem", "rank")}
    assert told == {"jobid": "job", "iternum": 30, "meandur": 0.1, "gpumem": 4000, "rank": 0}
    assert web.bodies("/end_epoch/") == [{"done": 4}]
    assert {headers["Authorization"] for headers in web.headers} == {"Bearer a-token"}


def test_a_preempted_run_leaves_without_a_word_and_its_exit_code_tells(web: Any) -> None:
    HttpTransport(web.address, "").call("Finish", wire.Finish("job", 2, 0, True), LONG)
    assert web.heard == []


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, Refused), (404, Refused), (408, Unreachable), (429, Unreachable), (500, Unreachable)],
)
def test_a_status_is_a_refusal_or_trouble(web: Any, status: int, error: type[Exception]) -> None:
    web.status = status
    with pytest.raises(error, match=f"HTTP {status} to has_to_stop"):
        HttpTransport(web.address, "").call("StartEpoch", QUESTION, LONG)


def test_without_grpcio_http_is_spoken_where_the_scheduler_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(connect("host:7070", "host:7080", ""), GrpcTransport)
    monkeypatch.setitem(__import__("sys").modules, "grpc", None)
    assert isinstance(connect("host:7070", "host:7080", ""), HttpTransport)


@contextmanager
def answering(reply: bytes, reset: bool = False) -> Iterator[str]:
    """A server that gives this answer to every request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer, suppress(OSError):
                        peer.recv(65536)
                        peer.sendall(reply)
                        if reset:
                            linger = struct.pack("ii", 1, 0)
                            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


HOSTILE = {
    "nothing": b"",
    "half a line": b"HTTP/1.1 2",
    "garbage": bytes(range(256)) * 4,
    "no status": b"HTTP/1.1 \r\n\r\n",
    "a status that is none": b"HTTP/1.1 abc OK\r\n\r\n1",
    "a length that is none": b"HTTP/1.1 500 No\r\nContent-Length: minus\r\n\r\n1",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: /1\r\nContent-Length: 0\r\n\r\n",
    "a status of 500": b"HTTP/1.1 500 Trouble\r\nContent-Length: 1\r\n\r\n1",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n1",
    "a body that is shorter": b"HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\n1",
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "another protocol": b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x04\x00@\x00\x00",
}
VOID = {
    "10 MB": b"HTTP/1.1 200 OK\r\n\r\n" + b"1" * 10_000_000,
    "a page": b"HTTP/1.1 200 OK\r\n\r\n<html>1</html>",
    "a line": b"HTTP/1.1 200 OK\r\n\r\n1\n",
    "nothing in it": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("method", ["StartEpoch", "EndEpoch"])
def test_an_answer_that_is_none_is_no_answer(reply: bytes, method: str) -> None:
    message: Any = QUESTION if method == "StartEpoch" else [PROFILE]
    with answering(reply) as address, pytest.raises(Unreachable):
        HttpTransport(address, "").call(method, message, LONG)


@pytest.mark.parametrize("reply", VOID.values(), ids=VOID.keys())
def test_only_a_single_digit_stops(reply: bytes) -> None:
    with answering(reply) as address:
        assert HttpTransport(address, "").call("StartEpoch", QUESTION, LONG) == (False, "")
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1") as address:
        assert HttpTransport(address, "").call("StartEpoch", QUESTION, LONG)[0]
        assert HttpTransport(address, "").call("Report", [PROFILE], LONG)[0]


def test_a_reset_connection_is_no_answer() -> None:
    with answering(b"HTTP/1.1 200", reset=True) as address, pytest.raises(Unreachable):
        HttpTransport(address, "").call("StartEpoch", QUESTION, LONG)


def test_a_call_without_an_answer_ends_after_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = HttpTransport(f"127.0.0.1:{silent.getsockname()[1]}", "")
        with pytest.raises(Unreachable):
            transport.call("StartEpoch", QUESTION, 0.05)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:80", "[::1]:1"])
def test_an_address_without_a_server_is_unreachable(address: str) -> None:
    with pytest.raises(Unreachable):
        HttpTransport(address, "").call("StartEpoch", QUESTION, LONG)


@pytest.mark.parametrize("reply", [b"\xff", b"1" * 10_000_000], ids=["garbage", "10 MB"])
def test_over_grpc_an_answer_that_is_none_is_no_answer(reply: bytes) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    handlers: dict[str, Any] = {
        "StartEpoch": grpc.unary_unary_rpc_method_handler(lambda request, context: reply)
    }
    service = grpc.method_handlers_generic_handler("scheduler.v1.Profiler", handlers)
    server.add_generic_rpc_handlers([service])
    transport = GrpcTransport(grpc, f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", "")
    server.start()
    with pytest.raises(Unreachable):
        transport.call("StartEpoch", QUESTION, LONG)
    transport.close()
    server.stop(grace=0).wait()


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
def test_over_grpc_a_server_of_another_kind_is_no_answer(reply: bytes) -> None:
    with answering(reply) as address:
        transport = GrpcTransport(grpc, address, "")
        with pytest.raises(Unreachable):
            transport.call("StartEpoch", QUESTION, 0.3)
        transport.close()
