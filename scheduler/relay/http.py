"""HTTP/1.1 as the clients of trainings speak it: bytes to requests, replies to bytes. Pure.

More is accepted than by `scheduler.http`, because what a training sends must not fail for its
form: chunks, compressed bodies, bodies of megabytes. What is longer than BODY_BYTES_MAX is read to
its end and dropped, so that the connection stays usable.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs, unquote

HEAD_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 8 * 2**20
UNPACKED_BYTES_MAX = 16 * 2**20
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS = {
    200: "OK",
    204: "No Content",
    400: "Bad Incoming",
    401: "Unauthorized",
    403: "Forbidden",
    500: "Internal Server Error",
    404: "Not Found",
    413: "Content Too Large",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class ArrivingFile(Protocol):
    def write(self, data: bytes | bytearray) -> None: ...

    def finish(self, complete: bool = True) -> bool: ...


class BrokenRequest(Exception):
    """It is unknown where the next request begins."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json(cls, value: object, status: int = 200) -> Response:
        return cls(status, json.dumps(value).encode())

    def format(self, keep_alive: bool, without_body: bool = False) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, '')}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.status != 204:
            lines += [f"Content-Type: {self.type}", f"Content-Length: {len(self.body)}"]
        lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        return head if without_body or self.status == 204 else head + self.body


@dataclass(slots=True)
class Incoming:
    method: str
    path: str  # decoded
    query: dict[str, str]  # the last value of each
    headers: dict[str, str]  # names in lower case
    body: bytes = b""
    dropped_bytes: int = 0  # of a body that was too long or could not be unpacked
    file: ArrivingFile | None = None  # that takes the body

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class RequestReader:
    """Takes the bytes of one connection, gives its requests."""

    def __init__(self, open_file: Callable[[Incoming], ArrivingFile | None]) -> None:
        """`open_file`: where the body of such a request goes. None: it is kept."""
        self._open_file = open_file
        self._buffer = bytearray()
        self._request: Incoming | None = None
        self._body = bytearray()
        self._left = 0  # bytes of the body, or of this chunk, that are still to come
        self._chunked = self._in_trailer = False

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def begin(self) -> bool:
        """Whether the head has just arrived of a request whose sender waits for `CONTINUE`."""
        if self._request is None and self._parse_head():
            assert self._request is not None
            return self._request.headers.get("expect", "").lower() == "100-continue"
        return False

    def next(self) -> Incoming | None:
        """The next complete request. Raises BrokenRequest."""
        if self._request is None and not self._parse_head():
            return None
        request = self._request
        assert request is not None
        if not (self._read_chunks() if self._chunked else self._read_body()):
            return None
        request.body = bytes(self._body)
        self._request, self._body = None, bytearray()
        _unpack(request)
        return request

    def close(self) -> None:
        """Nothing more comes."""
        if self._request and self._request.file:
            self._request.file.finish(complete=False)

    def _parse_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end > HEAD_BYTES_MAX or (end < 0 and len(self._buffer) > HEAD_BYTES_MAX):
            raise BrokenRequest("its head is too long")
        if end < 0:
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BrokenRequest("its first line is not METHOD /PATH HTTP/1.1")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if words[2] == "HTTP/1.0":
            headers.setdefault("connection", "close")
        path, _, query = words[1].partition("?")
        try:
            fields = parse_qs(query, keep_blank_values=True, max_num_fields=100)
        except ValueError:
            fields = {}
        self._request = Incoming(
            words[0], unquote(path), {name: every[-1] for name, every in fields.items()}, headers
        )
        self._request.file = self._open_file(self._request)
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._left, self._in_trailer = 0, False
        if not self._chunked:
            length = headers.get("content-length", "0")
            if not (length.isascii() and length.isdigit() and len(length) < 16):
                raise BrokenRequest("its Content-Length is not a number")
            self._left = int(length)
        return True

    def _read_body(self) -> bool:
        """Whether the body, or this chunk of it, is complete."""
        request = self._request
        assert request is not None
        data = self._buffer[: self._left]
        del self._buffer[: self._left]
        self._left -= len(data)
        if request.file:
            request.file.write(data)
            return self._left == 0
        kept = data[: max(0, BODY_BYTES_MAX - len(self._body))]
        self._body += kept
        request.dropped_bytes += len(data) - len(kept)
        return self._left == 0

    def _read_chunks(self) -> bool:
        while True:
            if self._left and not self._read_body():
                return False
            line, found, _ = self._buffer.partition(b"\r\n")
            if not found:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    raise BrokenRequest("a chunk's size is too long")
                return False
            del self._buffer[: len(line) + 2]
            if self._in_trailer:
                if not line:
                    return True
            elif line:  # an empty line ends the chunk before
                self._left = _chunk_size(line)
                self._in_trailer = self._left == 0


def _chunk_size(line: bytes | bytearray) -> int:
    digits = line.partition(b";")[0].strip()
    if not 0 < len(digits) <= 8 or digits.strip(b"0123456789abcdefABCDEF"):
        raise BrokenRequest("a chunk's size is not a number")
    return int(digits, 16)


def _unpack(request: Incoming) -> None:
    packing = request.headers.get("content-encoding", "").lower()
    if packing not in ("gzip", "deflate"):
        return
    packed, request.body = request.body, b""
    try:
        machine = zlib.decompressobj(wbits=47)  # gzip or zlib, as its head says
        request.body = machine.decompress(packed, UNPACKED_BYTES_MAX)
        request.dropped_bytes += len(machine.unconsumed_tail)
    except zlib.error:
        request.dropped_bytes += len(packed)
