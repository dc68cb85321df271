from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from scheduler.clusters.local.relay_start import bind
from scheduler.relay.hearing import CONNECTIONS_MAX, Ears
from scheduler.relay.http import BODY_BYTES_MAX, Incoming, Response
from tests.support import eventually


class Listening:
    """Ears in a thread."""

    def __init__(self) -> None:
        self.requests: list[Incoming] = []
        self.lines: list[bytes] = []
        self.portions: list[bytes] = []
        self.lost = 0
        self.words: list[bytes] = []
        listener, datagrams = bind()
        self.port = listener.getsockname()[1]
        end, self._end = os.pipe()
        self._ears = Ears(
            listener,
            datagrams,
            end,
            self._answer,
            lambda request: None,
            self._take,
            self._lose,
            self.words.append,
        )
        self._sockets = listener, datagrams
        self._pipe = end
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ears.ended:
            self._ears.listen(1.0)
            self._ears.hang_up_idle()
        self._ears.close()

    def _answer(self, request: Incoming) -> Response:
        self.requests.append(request)
        return Response.json({"body": len(request.body)})

    def _take(self, lines: bytes) -> None:
        self.portions.append(lines)
        self.lines += lines.split(b"\n")

    def _lose(self, number: int, why: str) -> None:
        self.lost += number

    def tell(self, word: bytes) -> None:
        os.write(self._end, word)

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._pipe)
        for each in self._sockets:
            each.close()


@pytest.fixture
def ears() -> Iterator[Listening]:
    made = Listening()
    yield made
    made.close()


def call(ears: Listening) -> socket.socket:
    return socket.create_connection(("127.0.0.1", ears.port), timeout=60)


def test_datagrams_are_heard_in_their_order(ears: Listening) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        for at in range(2000):
            mouth.sendto(b"a v=%d" % at, ("127.0.0.1", ears.port))
            eventually(lambda at=at: len(ears.lines) + ears.lost > at - 100)  # type: ignore[misc]
    eventually(lambda: len(ears.lines) + ears.lost == 2000)
    numbers = [int(line.partition(b"=")[2]) for line in ears.lines]
    assert numbers == sorted(set(numbers))


def test_a_connection_serves_many_requests(ears: Listening) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ears.port, timeout=60)
    for size in (0, 10, 2**20, BODY_BYTES_MAX + 1, 3):
        connection.request("POST", "/write", b"x" * size)
        reply = connection.getresponse()
        assert reply.read() == b'{"body": %d}' % min(size, BODY_BYTES_MAX)
    connection.close()


def test_requests_may_come_in_pieces_and_several_at_once(ears: Listening) -> None:
    one = b"POST /write HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
    with call(ears) as peer:
        for byte in one[:-1]:
            peer.sendall(bytes([byte]))
        peer.sendall(one[-1:] + one + one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        told = b""
        while data := peer.recv(65536):
            told += data
    assert told.count(b"200 OK") == 3


def test_a_sender_that_waits_to_be_asked_is_asked(ears: Listening) -> None:
    with call(ears) as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 100")
        peer.sendall(b"ab")
        assert b"200 OK" in peer.recv(1000)


def test_noise_ends_its_own_connection_only(ears: Listening) -> None:
    with call(ears) as good, call(ears) as bad:
        bad.sendall(b"\0\1\2\r\n\r\n")
        assert bad.recv(100) == b""
        good.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"200 OK" in good.recv(1000)


def test_one_connection_too_many_is_told_to_come_later(ears: Listening) -> None:
    peers = [call(ears) for _ in range(CONNECTIONS_MAX)]
    for peer in peers:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"200 OK" in peer.recv(1000)
    with call(ears) as late:
        assert late.recv(100).startswith(b"HTTP/1.1 503")
    for peer in peers:
        peer.close()


def test_what_the_runner_says_is_not_its_end(ears: Listening) -> None:
    ears.tell(b'"/a"\n')
    eventually(lambda: ears.words == [b'"/a"\n'])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(b"a v=1", ("127.0.0.1", ears.port))
        eventually(lambda: ears.lines == [b"a v=1"])


def test_a_datagram_with_an_open_quote_stays_alone(ears: Listening) -> None:
    """Else the next one with such a quote would seem to be the end of its text."""
    sent = [b"a v=1", b'b t="5" tall"', b"c v=2", b'd t="open', b"e v=3"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        for data in sent:
            mouth.sendto(data, ("127.0.0.1", ears.port))
        eventually(lambda: len(ears.lines) == len(sent))
    assert ears.lines == sent
    for portion in ears.portions:
        assert portion in (b'b t="5" tall"', b'd t="open') or b'"' not in portion
