"""What is a request, what is not one yet, and what can never be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.http import http11
from scheduler.http.http11 import MalformedRequest, Reply, Request

CAPTURED = (
    b"POST /end_epoch/123e4567-e89b-12d3-a456-426614174000 HTTP/1.1\r\n"
    b"Host: 10.106.102.22\r\nUser-Agent: python-requests/2.34.0\r\nAccept: */*\r\n"
    b"Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
    b'Content-Length: 11\r\nContent-Type: application/json\r\n\r\n{"done": 1}'
)


def read(data: bytes) -> Request:
    found = http11.parse_request(data)
    assert found is not None
    request, size = found
    assert size == len(data)
    return request


def test_what_an_old_image_sends_is_a_request() -> None:
    request = read(CAPTURED)
    assert (request.method, request.body) == ("POST", b'{"done": 1}')
    assert request.path == "/end_epoch/123e4567-e89b-12d3-a456-426614174000"
    assert request.headers["content-type"] == "application/json"
    assert request.keep_alive


@given(st.integers(0, len(CAPTURED) - 1))
def test_a_part_of_a_request_is_none_yet(size: int) -> None:
    assert http11.parse_request(CAPTURED[:size]) is None


def test_the_second_of_two_requests_is_left() -> None:
    found = http11.parse_request(CAPTURED + CAPTURED)
    assert found is not None
    assert found[1] == len(CAPTURED)


@pytest.mark.parametrize(
    ("version", "header", "kept"),
    [
        (b"1", b"", True),
        (b"1", b"Connection: Close\r\n", False),
        (b"0", b"", False),
        (b"0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_a_connection_is_kept_as_its_version_and_header_say(
    version: bytes, header: bytes, kept: bool
) -> None:
    assert read(b"GET / HTTP/1." + version + b"\r\n" + header + b"\r\n").keep_alive is kept


def test_a_query_is_left_out() -> None:
    assert read(b"GET /has_to_stop/x?a=b?c HTTP/1.1\r\n\r\n").path == "/has_to_stop/x"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://there/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: 1\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\n" + b"A: 1\r\n" * 65 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"a" * 9000, 431),
    ],
)
def test_what_can_be_no_request_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(MalformedRequest) as refused:
        http11.parse_request(data)
    assert refused.value.status == status
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_whatever_bytes_come_they_are_a_request_or_refused(head: bytes, body: bytes) -> None:
    for data in (head, CAPTURED[:100] + head, head + b"\r\n\r\n" + body, CAPTURED[:-11] + body):
        try:
            found = http11.parse_request(data)
        except MalformedRequest:
            continue
        if found:
            assert 0 < found[1] <= len(data)


def test_a_reply_says_how_long_it_is_and_nothing_more() -> None:
    assert http11.format_reply(Reply(200, "1"), keep_alive=True) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 1\r\n"
        b"Connection: keep-alive\r\n\r\n1"
    )
    assert http11.format_reply(Reply(404, "no"), keep_alive=False, head_only=True).endswith(
        b"Content-Length: 2\r\nConnection: close\r\n\r\n"
    )
    assert b"\r\nAllow: GET\r\n" in http11.format_reply(Reply(405, "", (("Allow", "GET"),)), False)
