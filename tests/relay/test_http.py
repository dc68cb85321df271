from __future__ import annotations

import gzip
import json
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.relay.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    UNPACKED_BYTES_MAX,
    BrokenRequest,
    Incoming,
    RequestReader,
    Response,
)

CHUNKED = (
    b"POST /write HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4;x=y\r\nabcd\r\n3\r\nefg\r\n0\r\nTrailer: 1\r\n\r\n"
)
PLAIN = b"POST /write?db=a%20b&precision=s&db=c HTTP/1.1\r\ncontent-LENGTH: 4\r\n\r\nabcd"


def read(data: bytes, *cuts: int) -> list[Incoming]:
    reader, found = RequestReader(lambda request: None), []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        reader.feed(data[begin:end])
        while request := reader.next():
            found.append(request)
    return found


def post(body: bytes, *headers: str) -> bytes:
    lines = ["POST /write HTTP/1.1", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


@given(st.lists(st.integers(0, 1000), max_size=5))
def test_requests_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    first, second, third = read(PLAIN + CHUNKED + b"GET /ping HTTP/1.0\r\n\r\n", *cuts)
    assert (first.method, first.path, first.body) == ("POST", "/write", b"abcd")
    assert first.query == {"db": "c", "precision": "s"}
    assert second.body == b"abcdefg"
    assert (third.path, third.keep_alive, first.keep_alive) == ("/ping", False, True)


@given(st.binary(max_size=300))
def test_noise_is_a_request_or_a_broken_one(noise: bytes) -> None:
    for begin in (b"", b"POST /write HTTP/1.1\r\n", CHUNKED[:50]):
        reader = RequestReader(lambda request: None)
        reader.feed(begin + noise)
        try:
            while reader.next():
                pass
        except BrokenRequest:
            pass


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"x" * (HEAD_BYTES_MAX + 1),
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 20 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
    ],
)
def test_what_cannot_become_a_request_ends_the_connection(data: bytes) -> None:
    with pytest.raises(BrokenRequest):
        read(data)


def test_a_sender_that_waits_is_told_to_go_on_once() -> None:
    reader = RequestReader(lambda request: None)
    reader.feed(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert reader.begin() is True
    assert reader.next() is None
    assert reader.begin() is False
    reader.feed(b"ok")
    request = reader.next()
    assert request is not None
    assert request.body == b"ok"


def test_packed_bodies_are_unpacked() -> None:
    (request,) = read(post(gzip.compress(b"a v=1"), "Content-Encoding: gzip"))
    assert request.body == b"a v=1"
    (request,) = read(post(zlib.compress(b"a v=1"), "Content-Encoding: deflate"))
    assert request.body == b"a v=1"


def test_a_bomb_is_unpacked_to_its_limit() -> None:
    bomb = gzip.compress(b"\0" * (4 * UNPACKED_BYTES_MAX))
    (request,) = read(post(bomb, "Content-Encoding: gzip"))
    assert len(request.body) == UNPACKED_BYTES_MAX
    assert request.dropped_bytes > 0


def test_what_only_says_that_it_is_packed_is_dropped() -> None:
    (request,) = read(post(b"a v=1", "Content-Encoding: gzip"))
    assert (request.body, request.dropped_bytes) == (b"", 5)


def test_a_body_that_is_too_long_is_read_to_its_end() -> None:
    first, second = read(post(b"x" * (BODY_BYTES_MAX + 7)) + PLAIN)
    assert (len(first.body), first.dropped_bytes) == (BODY_BYTES_MAX, 7)
    assert second.body == b"abcd"


def test_answers_have_the_length_that_they_tell() -> None:
    told = Response.json({"a": 1}).format(keep_alive=True)
    head, _, body = told.partition(b"\r\n\r\n")
    assert json.loads(body) == {"a": 1}
    assert b"Content-Length: %d" % len(body) in head
    assert Response(204).format(keep_alive=False) == (
        b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    )
    assert Response.json({}).format(keep_alive=True, without_body=True).endswith(b"\r\n\r\n")
