"""Requests that no client of ours would send, generated from a seed and used by hostile.py.

A call with the right token is always one that must change nothing: a query, a request that is
refused, an epoch that goes backwards. So any change of a job is an error of the daemon.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from scheduler.access.identity import socket_name
from scheduler.v1 import scheduler_pb2 as pb

UNDER_WAY = 64  # calls at a time
IDLE = 50  # connections that stay open and send no more
HUGE = "x" * 10_000_000
SECONDS = 60.0

METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
LOOKS = ("GetJob", "ListJobs", "WatchJobs", "GetLogs", "GetCluster")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END = 4 | 1  # of the headers, and of the stream: no message follows
NO_REQUEST = 4  # of the headers only: a message is still to come
NUMBERS = (-(2**31), -1, 0, 1, 7, 2**31 - 1)
FRACTIONS = (float("nan"), float("inf"), float("-inf"), -1.0, -0.0, 1e308, 5e-324)
TEXTS = (
    "", " ", "\0", "a\nb", "\x1b[2J", "\u202e", "../../etc/passwd", "%s%n", "'; drop table jobs;",
    "-", "----", "0000", "f" * 36, "QUEUE", "authorization", "x" * 10_000, "\U0010ffff" * 300,
)  # fmt: skip
NO_TOKENS = (None, ".", "root", "root." + "0" * 64, ". . .", "A" * 5_000)


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


GREETING = PREFACE + frame(SETTINGS, 0, 0, b"")
# POST, http, and as literals (RFC 7541, section 6.2.2) the path and what makes it a call.
OTHERS = b"\0\x0a:authority\x01x\0\x02te\x08trailers\0\x0ccontent-type\x10application/grpc"
CALL = b"\x83\x86\0\x05:path\x22/scheduler.v1.Scheduler/GetCluster" + OTHERS


def _reset(stream: int) -> bytes:
    """A call that is taken back at once."""
    return frame(HEADERS, NO_REQUEST, stream, CALL) + frame(RST_STREAM, 0, stream, bytes(4))


@dataclass(frozen=True, slots=True)
class Target:
    """What the attackers know, which is more than an outsider would."""

    address: str
    owner: str  # token of the jobs' owner: sent only with queries
    nobody: str  # token of a user without jobs, who cannot have any
    stranger: str  # token of a job that no request is about
    jobs: tuple[tuple[str, str], ...]  # id, token: each has done 5 epochs


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    data: bytes
    token: str | None


class Attacker:
    """A client with one connection for calls and many others for garbage."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target, self._chance = target, random.Random(seed)
        host, _, port = target.address.rpartition(":")
        self._tcp, self._unix = (host, int(port)), socket_name(int(port))
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(target.address, options)
        self._idle: deque[socket.socket] = deque()

    def __enter__(self) -> Attacker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()
        while self._idle:
            self._idle.pop().close()

    def attack(self, requests: int) -> Counter[str]:
        """Counts how they ended: by the status of a call, or as a connection without a call."""
        ended: list[str] = []
        window = threading.Semaphore(UNDER_WAY)

        def end(call: Any) -> None:
            ended.append(call.code().name)
            window.release()

        for _ in range(requests):
            kind = self._chance.random()
            if kind < 0.04:
                self._connect(socket.AF_INET, self._tcp)
                ended.append("connection")
            elif kind < 0.06:
                self._connect(socket.AF_UNIX, self._unix)
                ended.append("connection")
            else:
                window.acquire()
                self._call(self.request(kind), end)
        for _ in range(UNDER_WAY):
            window.acquire()
        return Counter(ended)

    # --- garbage ----------------------------------------------------------------------------

    def _connect(self, family: socket.AddressFamily, address: Any) -> None:
        """Sends something or nothing; then keeps the connection, closes it, or resets it."""
        raw = socket.socket(family, socket.SOCK_STREAM)
        raw.settimeout(SECONDS)
        with suppress(ConnectionError, BlockingIOError):  # there are too many connections at once
            raw.connect(address)
            raw.sendall(self._garbage())
        manner = self._chance.choice(("stay", "leave", "slam"))
        if manner == "stay":
            self._idle.append(raw)
            if len(self._idle) > IDLE:
                self._idle.popleft().close()
            return
        if manner == "slam":  # a reset instead of an orderly close
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()

    def _garbage(self) -> bytes:
        chance = self._chance
        noise = chance.randbytes(chance.randrange(2_000))
        anything = frame(chance.randrange(16), chance.randrange(256), chance.randrange(9), noise)
        header = b"\0\x0dauthorization\x0c" + b"Bearer " + chance.randbytes(5)
        size = chance.randrange(17_000)
        # A literal whose length is a prefix of 7 bits (RFC 7541, section 5.1), with 1,000,000.
        giant = b"\0\x01x\x7f" + b"\xc1\x83\x3d" + noise
        return chance.choice(
            (
                b"",
                noise,
                b"GET / HTTP/1.1\r\nHost: scheduler\r\n\r\n",
                b"\x16\x03\x01" + noise,  # TLS
                PREFACE[: chance.randrange(len(PREFACE))],
                PREFACE + noise,
                GREETING + anything,
                GREETING + frame(HEADERS, END, 1, CALL + header),
                GREETING + frame(GOAWAY, 0, 0, bytes(8) + b"\n" + noise),
                (GREETING + anything)[: -chance.randrange(1, 10)],
                GREETING + struct.pack(">I", size)[1:] + b"\0\0" + bytes(3) + b"\1" + noise,
                GREETING + frame(HEADERS, END, 1, b"\x83\x86\0\x05:path\x03" + noise[:3] + OTHERS),
                GREETING + frame(HEADERS, NO_REQUEST, 1, CALL),
                GREETING + frame(HEADERS, NO_REQUEST, 1, CALL) + frame(DATA, 0, 1, noise[:50]),
                GREETING + frame(HEADERS, 0, 1, CALL + giant),
                GREETING + frame(HEADERS, END, 1, CALL + (b"\0\x03pad\x64" + bytes(100)) * 160),
                GREETING + b"".join(map(_reset, range(1, 200, 2))),
            )
        )

    # --- calls ------------------------------------------------------------------------------

    def _call(self, request: Request, end: Any) -> None:
        metadata = (("authorization", f"Bearer {request.token}"),) if request.token else ()
        if not METHODS[request.method].server_streaming:
            method: Any = self._channel.unary_unary(request.method, None, None)
            call = method.future(request.data, metadata=metadata, timeout=SECONDS)
            call.add_done_callback(end)
            return
        method = self._channel.unary_stream(request.method, None, None)
        stream = method(request.data, metadata=metadata, timeout=SECONDS)
        with suppress(StopIteration, grpc.RpcError):
            next(stream)
        stream.cancel()
        end(stream)

    def request(self, kind: float) -> Request:
        """`kind`: from 0 to 1, selects the kind of nonsense."""
        method = self._chance.choice(list(METHODS))
        if kind < 0.3:
            noise = self._chance.randbytes(self._chance.randrange(200))
            return Request(method, noise, self._any_token(method))
        if kind < 0.5:
            return self._own_nonsense()
        message: Any = GetMessageClass(METHODS[method].input_type)()
        self._spoil(message)
        data = message.SerializeToString()
        if kind < 0.55:
            data += bytes((self._chance.randrange(1, 16) << 3 | 2, 2, 0xFF, 0xFE))  # not UTF-8
        return Request(method, data, self._any_token(method))

    def _any_token(self, method: str) -> str | None:
        """Any token except the right one."""
        target = self._target
        tokens = (*NO_TOKENS, *(target.nobody, target.stranger) * 3)
        if "Profiler" in method:
            return self._chance.choice((*tokens, target.owner))
        if method.endswith(LOOKS) and self._chance.random() < 0.5:
            return target.owner
        return self._chance.choice(tokens)

    def _own_nonsense(self) -> Request:
        """A call of a job about itself with the right token, which is refused or has no effect."""
        pick = self._chance.choice
        job_id, token = pick(self._target.jobs)
        named: dict[str, Any] = {"job_id": job_id, "attempt": 1}
        wrong: dict[str, Any] = {"job_id": job_id, "attempt": pick((-(2**31), -1, 0, 2, 2**31 - 1))}
        profile = pb.Profile(**named, epoch=pick((-(2**31), -1, 0, 1, 2, 5)))
        spoilt = pb.Profile(**named, epoch=pick((6, 2**31 - 1)))
        field = pick(("step_seconds", "epoch_seconds", "samples_per_second", "gpu_util"))
        setattr(spoilt, field, pick((*FRACTIONS[:4],)))
        service = "/scheduler.v1.Profiler"
        method, message = pick(
            (
                ("EndEpoch", pb.EndEpochRequest(profiles=[profile])),
                ("EndEpoch", pb.EndEpochRequest(profiles=[profile, spoilt])),
                ("EndEpoch", pb.EndEpochRequest(profiles=[pb.Profile(**wrong, epoch=9)])),
                ("Report", pb.ReportRequest(profiles=[profile])),
                ("Report", pb.ReportRequest(profiles=[spoilt])),
                ("StartEpoch", pb.StartEpochRequest(**named, epoch=min(4, profile.epoch))),
                ("StartEpoch", pb.StartEpochRequest(**wrong, epoch=9)),
                ("Finish", pb.FinishRequest(**wrong)),
                ("Finish", pb.FinishRequest(**named, rank=pick((-1, 1, 2**31 - 1)))),
            )
        )
        if self._chance.random() < 0.005:
            method, message = "EndEpoch", pb.EndEpochRequest(profiles=[profile] * 5_000)
        return Request(f"{service}/{method}", message.SerializeToString(), token)

    def _spoil(self, message: Any) -> None:
        """Puts hostile values into most of its fields, also in nested messages."""
        for field in message.DESCRIPTOR.fields:
            if self._chance.random() < 0.3:
                continue
            count = self._chance.choice((1, 1, 1, 1, 2, 3))
            many = field.is_repeated and self._chance.random() < 0.002
            values: Any = getattr(message, field.name)
            if field.message_type and field.message_type.GetOptions().map_entry:
                values[self._text()] = self._chance.choice(NUMBERS)
            elif field.type == field.TYPE_MESSAGE and field.is_repeated:
                for _ in range(3_000 if many else count):
                    self._spoil(values.add())
            elif field.type == field.TYPE_MESSAGE:
                self._spoil(values)
            elif field.is_repeated:
                values.extend([self._value(field)] * (20_000 if many else count))
            else:
                setattr(message, field.name, self._value(field))

    def _value(self, field: Any) -> Any:
        if field.type == field.TYPE_STRING:
            return self._text()
        if field.type == field.TYPE_BYTES:
            return self._text().encode(errors="replace")
        if field.type == field.TYPE_BOOL:
            return self._chance.random() < 0.5
        if field.type == field.TYPE_DOUBLE:
            return self._chance.choice(FRACTIONS)
        number = self._chance.choice(NUMBERS)
        return abs(number) if field.type in (field.TYPE_UINT32, field.TYPE_UINT64) else number

    def _text(self) -> str:
        if self._chance.random() < 0.0001:
            return HUGE
        if self._chance.random() < 0.3:
            return self._chance.choice(self._target.jobs)[0]
        return self._chance.choice(TEXTS)
