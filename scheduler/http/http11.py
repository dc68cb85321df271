"""HTTP/1.1 as simple clients speak it: bytes to a request, a reply to bytes. Pure.

Only a small part is accepted, and parsed strictly: a request line, headers, a body with a
Content-Length. Everything else in HTTP (chunks, trailers, ranges, upgrades) is refused in one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address

HEAD_BYTES_MAX = 8192
BODY_BYTES_MAX = 65536
HEADERS_MAX = 64

_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2047}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):[ \t]*([\t -~\x80-\xff]*)")
_LENGTH = re.compile(r"[0-9]{1,9}", re.ASCII)
_SHOWN_MAX = 500  # characters of a reply's text


class MalformedRequest(Exception):
    """A request that we do not understand. The connection ends with the answer, because it is
    unknown where the next request begins."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # unchanged, without the query after a `?`
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()
    type: str = "text/plain; charset=utf-8"
    body: bytes | None = None  # instead of the text, of any length


def parse_request(buffer: bytes | bytearray) -> tuple[Request, int] | None:
    """Returns the request at the beginning of the bytes, and its length; None: it is incomplete.

    Raises MalformedRequest as soon as the bytes cannot become a request.
    """
    end = buffer.find(b"\r\n\r\n")
    if end > HEAD_BYTES_MAX or (end < 0 and len(buffer) > HEAD_BYTES_MAX):
        raise MalformedRequest(
            431, f"the head of a request may have at most {HEAD_BYTES_MAX} bytes"
        )
    if end < 0:
        return None
    first, *lines = bytes(buffer[:end]).split(b"\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise MalformedRequest(400, "the first line is not METHOD /PATH HTTP/1.1")
    headers = _headers(lines)
    length = _length(headers)
    whole = end + 4 + length
    if len(buffer) < whole:
        return None
    wanted = headers.get("connection", "").lower()
    keep_alive = wanted == "keep-alive" if match[3] == b"0" else wanted != "close"
    path = match[2].decode("ascii").partition("?")[0]
    body = bytes(buffer[end + 4 : whole])
    return Request(match[1].decode("ascii"), path, headers, body, keep_alive), whole


def format_reply(reply: Reply, keep_alive: bool, head_only: bool = False) -> bytes:
    """`head_only`: the method was HEAD."""
    body = reply.body
    if body is None:
        body = reply.text[:_SHOWN_MAX].encode("utf-8", "replace")
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
        f"Content-Type: {reply.type}",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
        *(f"{name}: {value}" for name, value in reply.headers),
    ]
    head = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
    return head if head_only else head + body


def is_loopback(host: str) -> bool:
    """Whether this name or address can only mean this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > HEADERS_MAX:
        raise MalformedRequest(431, f"a request may have at most {HEADERS_MAX} headers")
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise MalformedRequest(400, "a header is not NAME: VALUE")
        name = match[1].decode("ascii").lower()
        if name in headers and name in ("content-length", "authorization"):
            raise MalformedRequest(400, f"{name} is given twice")
        headers[name] = match[2].decode("latin-1").rstrip(" \t")
    return headers


def _length(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise MalformedRequest(501, "a body must have a Content-Length, and not be sent in chunks")
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        raise MalformedRequest(400, "Content-Length is not a length")
    if int(length) > BODY_BYTES_MAX:
        raise MalformedRequest(413, f"a body may have at most {BODY_BYTES_MAX} bytes")
    return int(length)
