"""Event files and offline runs as their writers make them, byte by byte. What these really write is
in tests/clients."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.relay.event_files import masked_crc32c
from scheduler.relay.wandb_files import BLOCK_BYTES, HEADER

AT = 1_700_000_000.25  # of step 0


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def field(number: int, value: int | float | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def float32(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


# --- TensorBoard ----------------------------------------------------------------------------------


def framed(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    check, after = (struct.pack("<I", masked_crc32c(data)) for data in (length, event))
    return length + check + event + after


def event(step: int, *values: bytes, at: float | None = None) -> bytes:
    summary = b"".join(field(1, value) for value in values)
    at = AT + step if at is None else at
    return framed(field(1, at) + field(2, step) + field(5, summary))


def scalar(tag: str, value: float) -> bytes:
    return field(1, tag) + float32(2, value)


def tensor(tag: str, content: bytes, plugin: str = "", more: bytes = b"") -> bytes:
    metadata = field(9, field(1, field(1, plugin) + more)) if plugin else b""
    return field(1, tag) + field(8, content) + metadata


def scalars(steps: Iterable[int], tag: str = "loss") -> bytes:
    return b"".join(event(step, scalar(tag, step)) for step in steps)


# --- wandb ----------------------------------------------------------------------------------------


def items(number: int, values: Mapping[str, Any]) -> bytes:
    each = (field(2, name) + field(16, json.dumps(value)) for name, value in values.items())
    return b"".join(field(number, item) for item in each)


def history(step: int, **values: Any) -> bytes:
    told = {**values, "_step": step, "_timestamp": AT + step}
    return field(2, items(1, told) + field(2, field(1, step)))


def summary(**values: Any) -> bytes:
    return field(3, items(1, values))


def config(**values: Any) -> bytes:
    return field(5, items(1, values))


def run(name: str = "", notes: str = "", tags: Iterable[str] = (), **values: Any) -> bytes:
    told = field(1, "the id") + field(4, items(1, values)) + field(8, name) + field(9, notes)
    return field(17, told + b"".join(field(10, tag) for tag in tags) + field(17, field(1, int(AT))))


def log(*records: bytes, offset: int = 0) -> bytes:
    """What is written from `offset` on; 0: with its header."""
    data = bytearray(b"" if offset else HEADER)
    for record in records:
        is_first = True
        while record or is_first:
            left = BLOCK_BYTES - (offset + len(data)) % BLOCK_BYTES
            if left < 7:
                data += bytes(left)
                continue
            piece, record = record[: left - 7], record[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[
                is_first, not record
            ]
            checksum = zlib.crc32(piece, zlib.crc32(bytes([kind])))
            data += struct.pack("<IHB", checksum, len(piece), kind) + piece
            is_first = False
    return bytes(data)
