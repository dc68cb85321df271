"""The messages of `scheduler.v1.Profiler` as bytes, encoded by hand. Knows no transport.

It does not use protobuf, because another version of it breaks the frameworks in a training's image.
The tests compare it with the generated code. A field with its default value is left out, as in
proto3; an unknown field is skipped. The fields of a tuple are in the order of their numbers.
"""

import struct
from typing import Iterable, NamedTuple, Optional, Tuple, Union

TRAINED, SCORE = 40, 106  # the numbers of `trained` and `score`, which are sent even if they are 0
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_SIZES = {_VARINT: 0, _FIXED64: 8, _BYTES: 0, _FIXED32: 4}  # of a value; 0: a varint comes first
_ANSWER = {1: _VARINT, 2: _BYTES}  # fields of a reply


class StartEpoch(NamedTuple):
    job_id: str
    attempt: int
    rank: int
    local_rank: int
    epoch: int
    trained: int = -1  # epochs that are in the weights; -1: not known


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
    # Not on this wire, but on that of the first library:
    iterations: int = 0  # steps of this process so far
    local_rank: int = -1
    # On both:
    trained: int = -1  # how many of the epochs are in the weights; -1: not known
    score: Optional[float] = None  # of the metric by which the scheduler compares jobs


FIELDS = {StartEpoch: 5, Profile: 10}  # that are numbered from 1; then comes `trained`


def encode(message: Tuple[Union[str, int, float, None], ...]) -> bytes:
    out = b""
    for number, value in enumerate(message[: FIELDS.get(type(message))], 1):
        if isinstance(value, float):
            kind, body = _FIXED64, struct.pack("<d", value)
        elif isinstance(value, int):  # bool too
            kind, body = _VARINT, _varint(value)
        else:
            text = str(value).encode("utf-8", "replace")
            kind, body = _BYTES, _varint(len(text)) + text
        if body.strip(b"\0"):  # all zero is the default of every type
            out += _varint(number << 3 | kind) + body
    trained, score = getattr(message, "trained", -1), getattr(message, "score", None)
    if trained >= 0:
        out += _varint(TRAINED << 3 | _VARINT) + _varint(trained)
    return out if score is None else out + _varint(SCORE << 3 | _FIXED64) + struct.pack("<d", score)


def encode_profiles(profiles: Iterable[Profile]) -> bytes:
    """The body of both EndEpoch and Report."""
    bodies = [encode(profile) for profile in profiles]
    return b"".join(_varint(1 << 3 | _BYTES) + _varint(len(body)) + body for body in bodies)


def read_answer(reply: bytes) -> Tuple[bool, str]:
    """Returns fields 1 and 2 of any reply; for StartEpoch: whether to stop, and why. Raises
    ValueError if the bytes are not such a message."""
    stop, reason, at = False, "", 0
    while at < len(reply):
        key, at = _read_varint(reply, at)
        number, kind = key >> 3, key & 7
        if kind not in _SIZES:
            raise ValueError(f"unknown wire type {kind}")
        if _ANSWER.get(number, kind) != kind:
            raise ValueError("a field has the wrong type")
        value, at = (0, at) if _SIZES[kind] else _read_varint(reply, at)
        start, at = at, at + (value if kind == _BYTES else _SIZES[kind])
        if at > len(reply):
            raise ValueError("the message ends within a field")
        if number == 1:
            stop = value != 0
        elif number == 2:
            reason = reply[start:at].decode("utf-8")
    return stop, reason


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative int32 travels as ten bytes of two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def _read_varint(data: bytes, at: int) -> Tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError("the message ends within a number, or the number is longer than ten bytes")
