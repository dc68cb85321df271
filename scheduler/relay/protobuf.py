"""Protocol buffers, as far as it takes to read a few fields of a message. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Field = int | bytes  # a varint; anything else as it is
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class BadMessage(ValueError):
    """These bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, Field]]:
    """Yields the number and the value of each field, in order. Raises BadMessage."""
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key > 127:
            key, at = varint(data, at - 1)
        kind = key & 7
        if kind == 2:
            length = data[at] if at < end else 128
            at += 1
            if length > 127:
                length, at = varint(data, at - 1)
            start, at = at, at + length
        elif kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        elif kind in (1, 5):
            start, at = at, at + (8 if kind == 1 else 4)
        else:
            raise BadMessage("a field of an unknown type")
        if at > end:
            raise BadMessage("a field that is longer than its message")
        yield key >> 3, data[start:at]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise BadMessage("a number without an end")


def numbered(data: Field, *wanted: int) -> dict[int, Field]:
    """The last value of each of these fields that the message has."""
    return {number: value for number, value in fields(message(data)) if number in wanted}


def repeated(data: Field, wanted: int) -> list[bytes]:
    return [message(value) for number, value in fields(message(data)) if number == wanted]


def message(field: Field) -> bytes:
    if isinstance(field, int):
        raise BadMessage("a number where a message belongs")
    return field


def text(field: Field) -> str:
    return message(field).decode("utf-8", "replace")


def signed(field: Field) -> int:
    """Of an int64."""
    if not isinstance(field, int):
        raise BadMessage("bytes where a number belongs")
    return field - 2**64 if field >= 2**63 else field


def double(field: Field) -> float:
    return _unpacked(_DOUBLE, field)


def float32(field: Field) -> float:
    return _unpacked(_FLOAT, field)


def _unpacked(form: struct.Struct, field: Field) -> float:
    data = message(field)
    if len(data) != form.size:
        raise BadMessage("a number of another size")
    value: float = form.unpack(data)[0]
    return value
