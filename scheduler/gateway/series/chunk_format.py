"""Points as few bytes, and back: exactly, NaN and infinities included. Pure.

A column of whole numbers is its first value, and the differences: less the smallest of them,
divided by what they have in common. If they are all alike, that is all there is. Else they are cut
into eight planes: all first bytes, all second bytes and so on. A plane of zeros takes one byte, and
another is deflated if that helps. What changes slowly has mostly zeros.

A column of floats is one of whole numbers if they are (0.125 is 125 thousandths), and else the bits
of its values as planes. Tried for each chunk; the shortest is kept.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from scheduler.gateway.series.reading import DTYPES, Kind, Points

_KINDS: tuple[Kind, ...] = ("float", "integer", "boolean", "string")  # numbers are for ever
_HEAD = struct.Struct("<BBI")  # version, kind, number of points
_VERSION = 1
_LENGTH = struct.Struct("<I")
_DIFFERENCES = struct.Struct("<BqQQ")  # order, first value, smallest difference, common divisor
_LEVEL = 6
_WORTH = 0.9  # a deflated plane must be this short, because it costs time to inflate
_DECIMALS = (0, 1, 2, 3, 4, 5, 6)
_EXACT = 2.0**53
_FLOAT_INTEGERS, _FLOAT_BITS = b"i", b"b"

Uint64s = npt.NDArray[np.uint64]


def pack(points: Points, kind: Kind) -> bytes:
    head = _HEAD.pack(_VERSION, _KINDS.index(kind), len(points))
    columns = (
        _pack_integers(points.times),
        _pack_integers(points.steps),
        _pack_values(points.values, kind),
    )
    return head + b"".join(_LENGTH.pack(len(column)) + column for column in columns)


def unpack(content: bytes, steps: bool = True) -> tuple[Points, Kind]:
    """Without `steps`, these are zeros: whoever does not need them saves time. Raises ValueError if
    it is damaged."""
    try:
        return _unpack(content, steps)
    except (struct.error, zlib.error, IndexError) as error:
        raise ValueError(f"a damaged chunk: {error}") from error


def _unpack(content: bytes, steps: bool) -> tuple[Points, Kind]:
    version, number, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise ValueError(f"a chunk of version {version}")
    kind = _KINDS[number]
    columns = list(_columns(content))
    told = _unpack_integers(columns[1], count) if steps else np.zeros(count, np.int64)
    return Points(
        _unpack_integers(columns[0], count), told, _unpack_values(columns[2], kind, count)
    ), kind


def _columns(content: bytes) -> Iterator[bytes]:
    offset = _HEAD.size
    while offset < len(content):
        (length,) = _LENGTH.unpack_from(content, offset)
        offset += _LENGTH.size
        yield content[offset : offset + length]
        offset += length


# --- whole numbers ------------------------------------------------------------------------------


def _pack_integers(values: npt.NDArray[np.int64]) -> bytes:
    """Differences once, or differences of differences, for what grows evenly."""
    return min((_pack_differences(values, order) for order in (1, 2)), key=len)


def _pack_differences(values: npt.NDArray[np.int64], order: int) -> bytes:
    """Arithmetic modulo 2^64, in which no difference is too large."""
    bits = values.view(np.uint64)
    first = int(values[0]) if len(values) else 0
    differences = bits[1:] - bits[:-1]
    start = b""
    if order == 2:
        start = differences[:1].tobytes()
        differences = differences[1:] - differences[:-1]
    if not len(differences):
        return _DIFFERENCES.pack(order, first, 0, 1) + start
    least = int(differences.view(np.int64).min()) % 2**64
    above = differences - np.uint64(least)
    common = int(np.gcd.reduce(above))
    head = _DIFFERENCES.pack(order, first, least, common) + start
    return head if common == 0 else head + _pack_planes(above // np.uint64(common))


def _unpack_integers(content: bytes, count: int) -> npt.NDArray[np.int64]:
    order, first, least, common = _DIFFERENCES.unpack_from(content)
    offset = _DIFFERENCES.size
    known = min(count, order)
    start = np.frombuffer(content, np.uint64, known - 1, offset) if known == 2 else None
    offset += 8 * (known == 2)
    left = count - known
    if left <= 0:
        differences = np.empty(0, np.uint64)
    elif common == 0:
        differences = np.full(left, least, np.uint64)
    else:
        differences = _unpack_planes(content[offset:], left)
        if common != 1:
            differences *= np.uint64(common)
        if least:
            differences += np.uint64(least)
    if start is not None:
        differences = _summed(start[0], differences)
    return _summed(np.int64(first).view(np.uint64), differences)[:count].view(np.int64)


def _summed(first: Any, differences: Uint64s) -> Uint64s:
    whole = np.empty(len(differences) + 1, np.uint64)
    whole[0] = first
    whole[1:] = differences
    return np.cumsum(whole, dtype=np.uint64, out=whole)


# --- planes -------------------------------------------------------------------------------------


def _pack_planes(values: Uint64s) -> bytes:
    planes = np.ascontiguousarray(values.view(np.uint8).reshape(-1, 8).T)
    parts = []
    for plane in planes:
        if not plane.any():
            parts.append(b"0")
            continue
        content = plane.tobytes()
        deflated = zlib.compress(content, _LEVEL)
        if len(deflated) < _WORTH * len(content):
            parts.append(b"z" + _LENGTH.pack(len(deflated)) + deflated)
        else:
            parts.append(b"r" + content)
    return b"".join(parts)


def _unpack_planes(content: bytes, count: int) -> Uint64s:
    values = np.zeros(count, np.uint64)
    planes = values.view(np.uint8).reshape(-1, 8)
    offset = 0
    for number in range(8):
        way = content[offset : offset + 1]
        offset += 1
        if way == b"0":
            continue
        if way == b"r":
            planes[:, number] = np.frombuffer(content, np.uint8, count, offset)
            offset += count
        elif way == b"z":
            (length,) = _LENGTH.unpack_from(content, offset)
            offset += _LENGTH.size
            plane = zlib.decompress(content[offset : offset + length])
            planes[:, number] = np.frombuffer(plane, np.uint8, count)
            offset += length
        else:
            raise ValueError(f"a damaged chunk: no plane {way!r}")
    return values


# --- values -------------------------------------------------------------------------------------


def _pack_values(values: npt.NDArray[Any], kind: Kind) -> bytes:
    if kind == "float":
        return _pack_floats(values)
    if kind == "integer":
        return _pack_integers(values)
    if kind == "boolean":
        return zlib.compress(np.packbits(values).tobytes(), _LEVEL)
    words, numbers = np.unique(values.astype(str), return_inverse=True)
    if any(word.endswith("\0") for word in values):  # which numpy takes for padding
        words, numbers = np.array(values, object), np.arange(len(values))
    listed = zlib.compress(json.dumps(words.tolist()).encode("utf-8"), _LEVEL)
    return _LENGTH.pack(len(listed)) + listed + _pack_integers(numbers.astype(np.int64))


def _unpack_values(content: bytes, kind: Kind, count: int) -> npt.NDArray[Any]:
    if kind == "float":
        return _unpack_floats(content, count)
    if kind == "integer":
        return _unpack_integers(content, count)
    if kind == "boolean":
        bits = np.frombuffer(zlib.decompress(content), np.uint8)
        return np.unpackbits(bits, count=count).astype(np.bool_)
    (length,) = _LENGTH.unpack_from(content)
    offset = _LENGTH.size
    words = np.array(json.loads(zlib.decompress(content[offset : offset + length])), object)
    return words[_unpack_integers(content[offset + length :], count)] if count else words


def _pack_floats(values: npt.NDArray[np.float64]) -> bytes:
    """`b` and the planes of bits, or `i`, the number of decimals, and whole numbers."""
    as_bits = _FLOAT_BITS + _pack_planes(values.view(np.uint64))
    for decimals in _DECIMALS:
        whole = _integers(values, 10.0**decimals)
        if whole is not None:
            listed = _FLOAT_INTEGERS + bytes([decimals]) + _pack_integers(whole)
            return min(listed, as_bits, key=len)
    return as_bits


def _integers(values: npt.NDArray[np.float64], scale: float) -> npt.NDArray[np.int64] | None:
    """None: that would not give back each bit of them."""
    if not np.all(np.abs(values) < _EXACT / scale):  # also false for NaN
        return None
    whole = np.rint(values * scale).astype(np.int64)
    back = whole.astype(np.float64) / scale
    return whole if np.array_equal(back.view(np.uint64), values.view(np.uint64)) else None


def _unpack_floats(content: bytes, count: int) -> npt.NDArray[np.float64]:
    if content[:1] == _FLOAT_BITS:
        return _unpack_planes(content[1:], count).view(np.float64)
    whole = _unpack_integers(content[2:], count)
    return whole.astype(np.float64) / 10.0 ** content[1]


assert {*_KINDS} == {*DTYPES}
