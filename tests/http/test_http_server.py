"""The HTTP server, met by clients that behave and by others: none takes it from the rest."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs

from scheduler.core.errors import ConfigError, InUseError
from scheduler.http import http_server
from scheduler.http.http11 import Reply, Request
from tests.support import eventually


def answer(request: Request, caller: http_server.Caller) -> Reply:
    if request.path == "/broken":
        raise ZeroDivisionError("a secret detail")
    return Reply(200, f"{request.method} {request.path} {len(request.body)} {caller.address}")


@pytest.fixture
def server() -> Iterator[http_server.HttpServer]:
    made = http_server.HttpServer(("127.0.0.1", 0), answer)
    made.start()
    yield made
    made.stop(5.0)


def connect(server: http_server.HttpServer, seconds: float = 10.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), seconds)


def said(peer: socket.socket) -> bytes:
    """Until the end."""
    with peer, peer.makefile("rb") as file:
        return file.read()


def ask(server: http_server.HttpServer, path: str = "/a") -> str:
    calling = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    calling.request("GET", path)
    text = calling.getresponse().read().decode()
    calling.close()
    return text


def test_a_connection_is_used_again_and_requests_may_come_together(
    server: http_server.HttpServer,
) -> None:
    calling = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for size in (0, 10, 60_000):
        calling.request("POST", "/b", body=b"a" * size)
        assert calling.getresponse().read().decode() == f"POST /b {size} 127.0.0.1"
    calling.close()
    peer = connect(server)
    peer.sendall(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\n")
    both = said(peer)
    assert both.count(b"HTTP/1.1 200 OK") == 2
    assert both.index(b"GET /1 0") < both.index(b"GET /2 0")


def test_a_request_may_come_byte_by_byte(server: http_server.HttpServer) -> None:
    peer = connect(server)
    for byte in b"POST /c HTTP/1.0\r\nContent-Length: 2\r\n\r\nab":
        peer.send(bytes([byte]))
    assert said(peer).endswith(b"POST /c 2 127.0.0.1")


def test_a_client_that_sends_only_its_request_is_answered(server: http_server.HttpServer) -> None:
    peer = connect(server)
    peer.sendall(b"GET /d HTTP/1.1\r\n\r\n")
    peer.shutdown(socket.SHUT_WR)
    assert said(peer).endswith(b"GET /d 0 127.0.0.1")


def test_head_is_answered_without_a_body(server: http_server.HttpServer) -> None:
    peer = connect(server)
    peer.sendall(b"HEAD /e HTTP/1.0\r\n\r\n")
    assert said(peer).endswith(b"\r\n\r\n")


def test_what_is_no_request_is_refused_in_one_line(server: http_server.HttpServer) -> None:
    peer = connect(server)
    peer.sendall(b"hello\r\n\r\n")
    text = said(peer)
    assert text.startswith(b"HTTP/1.1 400 Bad Request")
    assert text.endswith(b"the first line is not METHOD /PATH HTTP/1.1\n")
    assert server.refused == {"malformed": 1}


def test_a_bug_of_ours_is_told_in_one_line_and_logged_whole(server: http_server.HttpServer) -> None:
    with capture_logs() as logs:
        assert ask(server, "/broken") == "ZeroDivisionError; the daemon's log has the details\n"
    assert [line["event"] for line in logs] == ["request_failed"]
    assert ask(server) == "GET /a 0 127.0.0.1"


def test_slow_senders_do_not_block_other_clients(server: http_server.HttpServer) -> None:
    """More of them than there may be connections, each with half a request."""
    with ExitStack() as slow:
        for _ in range(http_server.CONNECTIONS_MAX + 50):
            slow.enter_context(connect(server)).sendall(b"GET /a HTTP/1.1\r\nA: ")
        for _ in range(100):
            assert ask(server) == "GET /a 0 127.0.0.1"
        assert server.refused["crowded"] >= 50


@pytest.fixture
def impatient() -> Iterator[http_server.HttpServer]:
    made = http_server.HttpServer(("127.0.0.1", 0), answer, request_seconds=0.2, idle_seconds=0.2)
    made.start()
    yield made
    made.stop(5.0)


def test_a_request_that_is_not_whole_in_time_is_given_up(impatient: http_server.HttpServer) -> None:
    silent, slow = connect(impatient), connect(impatient)
    slow.sendall(b"GET /a HTTP/1.1\r\nA: ")
    assert said(slow).startswith(b"HTTP/1.1 408 Request Timeout")
    assert said(silent) == b""
    assert impatient.refused == {"slow": 1}


def test_a_connection_that_is_idle_too_long_is_ended(impatient: http_server.HttpServer) -> None:
    peer = connect(impatient)
    peer.sendall(b"GET /a HTTP/1.1\r\n\r\n")
    assert said(peer).endswith(b"GET /a 0 127.0.0.1")


def test_a_client_that_sends_without_end_is_disconnected(server: http_server.HttpServer) -> None:
    with connect(server) as peer, pytest.raises(OSError, match=r"reset|pipe"):
        peer.sendall(b"a" * 2**26)
    assert ask(server) == "GET /a 0 127.0.0.1"


def test_a_client_that_disconnects_before_the_answer_does_no_harm(
    server: http_server.HttpServer,
) -> None:
    for _ in range(50):
        with connect(server) as peer:
            peer.sendall(b"GET /a HTTP/1.1\r\n\r\n")
    assert ask(server) == "GET /a 0 127.0.0.1"


def test_when_it_stops_what_is_under_way_is_answered_and_no_thread_is_left() -> None:
    going, may_end = threading.Event(), threading.Event()

    def slowly(request: Request, caller: http_server.Caller) -> Reply:
        going.set()
        may_end.wait(10)
        return Reply(200, "done")

    before = threading.active_count()
    server = http_server.HttpServer(("127.0.0.1", 0), slowly)
    server.start()
    peer = connect(server)
    peer.sendall(b"GET /a HTTP/1.0\r\n\r\n")
    going.wait(10)
    stopping = threading.Thread(target=server.stop, args=(10.0,))
    stopping.start()
    may_end.set()
    assert said(peer).endswith(b"done")
    stopping.join()
    eventually(lambda: threading.active_count() == before)


def test_a_client_that_reads_slowly_gets_all_and_keeps_no_thread_from_others() -> None:
    whole = b"a" * 2**24
    server = http_server.HttpServer(
        ("127.0.0.1", 0), lambda *_: Reply(200, "", body=whole), threads=1
    )
    server.start()
    try:
        slow = [connect(server) for _ in range(5)]
        for peer in slow:
            peer.sendall(b"GET /a HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert len(ask(server)) == len(whole)
        for peer in slow[:2]:
            assert said(peer).count(b"a" * 2**20) == 32
        for peer in slow[2:]:
            peer.close()
        assert len(ask(server)) == len(whole)
    finally:
        server.stop(5.0)


def test_a_client_that_reads_nothing_is_cut() -> None:
    server = http_server.HttpServer(
        ("127.0.0.1", 0), lambda *_: Reply(200, "", body=b"a" * 2**24), request_seconds=0.2
    )
    server.start()
    try:
        peer = connect(server)
        peer.sendall(b"GET /a HTTP/1.1\r\n\r\n")
        eventually(lambda: server.connections == 1)
        eventually(lambda: server.connections == 0)
        assert len(said(peer)) < 2**24
        assert server.refused == {"unread": 1}
    finally:
        server.stop(5.0)


def test_an_address_in_use_or_of_another_machine_is_refused(server: http_server.HttpServer) -> None:
    with pytest.raises(
        InUseError, match=r"cannot listen on 127\.0\.0\.1:\d+: address already in use"
    ):
        http_server.HttpServer(("127.0.0.1", server.port), answer)
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:7080: cannot assign"):
        http_server.HttpServer(("192.0.2.1", 7080), answer)
