"""The messages of `scheduler.v1.Profiler` as bytes, written by hand. Knows no transport.

No protobuf, because another version of it breaks the frameworks in a training's image. What is
here is checked against the generated code by the tests. A field that has its default is left out,
as proto3 wants it; a field that is not known is skipped. The order of a tuple's fields is that of
their numbers.
"""

import struct
from typing import Iterable, NamedTuple, Tuple, Union

FIELDS = 10  # of a Profile
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


class StartEpoch(NamedTuple):
    job_id: str
    attempt: int
    rank: int
    local_rank: int
    epoch: int


class Finish(NamedTuple):
    job_id: str
    attempt: int
    rank: int
    preempted: bool


class Profile(NamedTuple):
    """Measurements of one epoch."""

    job_id: str
    attempt: int
    rank: int
    epoch: int  # epochs finished: with this one in EndEpoch, without it in Report
    step_seconds: float
    epoch_seconds: float
    samples_per_second: float
    memory_mib: int  # 0: not known
    gpu_util: float
    steps: int
    # Not on this wire, but on the first library's:
    iterations: int = 0  # steps of this process up to now
    local_rank: int = -1


def encode(message: Iterable[Union[str, int, float]]) -> bytes:
    out = b""
    for number, value in enumerate(message, 1):
        if isinstance(value, float):
            kind, body = _FIXED64, struct.pack("<d", value)
        elif isinstance(value, int):  # bool too
            kind, body = _VARINT, _varint(value)
        else:
            text = value.encode("utf-8", "replace")
            kind, body = _BYTES, _varint(len(text)) + text
        if body.strip(b"\0"):  # all zero is the default of every type
            out += _varint(number << 3 | kind) + body
    return out


def encode_profiles(profiles: Iterable[Profile]) -> bytes:
    """The body of both EndEpoch and Report."""
    bodies = [encode(profile[:FIELDS]) for profile in profiles]
    return b"".join(_varint(1 << 3 | _BYTES) + _varint(len(body)) + body for body in bodies)


def read_answer(reply: bytes) -> Tuple[bool, str]:
    """Fields 1 and 2 of any reply: of StartEpoch, whether to stop, and why. Raises ValueError if
    the bytes are no such message."""
    stop, reason, at = False, "", 0
    while at < len(reply):
        key, at = _read_varint(reply, at)
        kind, start = key & 7, at
        if kind == _VARINT:
            value, at = _read_varint(reply, at)
        elif kind == _BYTES:
            size, start = _read_varint(reply, at)
            at = start + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} is not known")
        if at > len(reply):
            raise ValueError("the message ends within a field")
        if key >> 3 in (1, 2) and kind != (_VARINT if key >> 3 == 1 else _BYTES):
            raise ValueError("a field has the wrong type")
        if key >> 3 == 1:
            stop = value != 0
        elif key >> 3 == 2:
            reason = reply[start:at].decode("utf-8")
    return stop, reason


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative int32 travels as ten bytes of two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> Tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("the message ends within a number")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError("a number is longer than ten bytes")
