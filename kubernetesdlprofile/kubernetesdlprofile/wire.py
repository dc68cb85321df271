"""The messages of `scheduler.v1.Profiler` as bytes, written by hand. Knows no transport.

No protobuf, because another version of it breaks the frameworks in a training's image. What is
here is checked against the generated code by the tests. A field that has its default is left out,
as proto3 wants it; a field that is not known is skipped.
"""

import struct
from typing import Dict, Iterable, NamedTuple, Tuple, Union

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_Value = Union[int, bytes]


class Profile(NamedTuple):
    """Measurements of one epoch. The order is that of the field numbers."""

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


def start_epoch(job_id: str, attempt: int, rank: int, local_rank: int, epoch: int) -> bytes:
    return _fields(job_id, attempt, rank, local_rank, epoch)


def finish(job_id: str, attempt: int, rank: int, preempted: bool) -> bytes:
    return _fields(job_id, attempt, rank, preempted)


def profiles(measured: Iterable[Profile]) -> bytes:
    """The body of both EndEpoch and Report."""
    return b"".join(_field(1, _fields(*profile)) for profile in measured)


def read_start_epoch(reply: bytes) -> Tuple[bool, str]:
    """Whether to stop, and why. Raises ValueError if the bytes are no such answer."""
    found = _read(reply)
    stop, reason = found.get(1, 0), found.get(2, b"")
    if not isinstance(stop, int) or not isinstance(reason, bytes):
        raise ValueError("a field has the wrong type")
    return bool(stop), reason.decode("utf-8")


def _fields(*values: Union[str, int, float]) -> bytes:
    return b"".join(_field(number, value) for number, value in enumerate(values, 1))


def _field(number: int, value: Union[str, int, float, bytes]) -> bytes:
    if isinstance(value, float):
        packed = struct.pack("<d", value)
        return b"" if packed == bytes(8) else _varint(number << 3 | _FIXED64) + packed
    if isinstance(value, int):  # bool too
        return b"" if value == 0 else _varint(number << 3 | _VARINT) + _varint(value)
    if isinstance(value, str):
        if not value:
            return b""
        value = value.encode("utf-8")
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative int32 travels as ten bytes of two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read(data: bytes) -> Dict[int, _Value]:
    """The fields by number; of a repeated one the last, as for any scalar of proto3."""
    found: Dict[int, _Value] = {}
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            found[key >> 3], at = _read_varint(data, at)
        else:
            if kind == _BYTES:
                size, at = _read_varint(data, at)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise ValueError(f"wire type {kind} is not known")
            if at + size > len(data):
                raise ValueError("the message ends within a field")
            found[key >> 3], at = data[at : at + size], at + size
    return found


def _read_varint(data: bytes, at: int) -> Tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("the message ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is longer than ten bytes")
