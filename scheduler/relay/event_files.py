"""TensorBoard's event files: scalars become points, texts tags, hyperparameters params. Pure.

A file is a sequence of records: a length of 8 bytes, its checksum, the event, its checksum. What
its writer has not finished is not there yet. Behind a length that is wrong nothing can be found.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

from scheduler.relay import protobuf
from scheduler.relay.file_records import RECORD_BYTES_MAX, DamagedFile, FileRecords
from scheduler.relay.protobuf import BadMessage, Field

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")
_AROUND = _HEAD.size + _FOOT.size
_CHECKED_BYTES_MAX = 4096  # of an event whose checksum is computed: that of an image takes long
_TEXT_SUMMARY = "/text_summary"
_DAMAGED, _LONG = "a record is damaged", "a record is too long"

# Numbers of fields, by message: event.proto, summary.proto, tensor.proto.
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE = 1
_TAG, _SIMPLE_VALUE, _TENSOR, _METADATA = 1, 2, 8, 9
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _STRINGS, _INT64S = 1, 4, 5, 6, 7, 8, 10
# Types of a tensor whose content is one number.
_PACKED = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 19: "<e", 22: "<I"}


class EventFile:
    def __init__(self, run: str) -> None:
        """`run`: the name of the run beside the job's own; empty: it is the job's own."""
        self._tags = {"run": run} if run else {}
        self._prefix = f"{run}/" if run else ""

    def prime(self, head: bytes) -> None:
        """Nothing there has to be known to go on."""

    def read(self, data: bytes, offset: int) -> FileRecords:
        found, at = FileRecords(), 0
        while len(data) - at >= _HEAD.size:
            length, checksum = _HEAD.unpack_from(data, at)
            if not length and not checksum:
                break  # some file systems know the size before they have the content
            if masked_crc32c(data[at : at + 8]) != checksum:
                found.consumed = at
                raise DamagedFile("the length of a record is damaged", found)
            end = at + _AROUND + length
            if length > RECORD_BYTES_MAX:
                found.skipped[_LONG] += 1
                at = end
                break
            if end > len(data):
                found.wanted = end - at
                break
            event = data[at + _HEAD.size : end - _FOOT.size]
            (checksum,) = _FOOT.unpack_from(data, end - _FOOT.size)
            at = end
            try:
                if length <= _CHECKED_BYTES_MAX and masked_crc32c(event) != checksum:
                    raise BadMessage("another checksum")
                self._take(event, found)
            except BadMessage:
                found.skipped[_DAMAGED] += 1
        found.consumed = at
        return found

    def _take(self, event: bytes, found: FileRecords) -> None:
        wall_time, step, summary = 0.0, 0, b""
        for number, value in protobuf.fields(event):
            if number == _WALL_TIME:
                wall_time = protobuf.double(value)
            elif number == _STEP:
                step = protobuf.signed(value)
            elif number == _SUMMARY:
                summary = protobuf.message(value)
        if not summary:
            return
        if not 0 <= wall_time < 2**33:
            raise BadMessage("a time that is none")
        at_ns = round(wall_time * 1e6) * 1000
        for value in protobuf.repeated(summary, _VALUE):
            parts = protobuf.numbered(value, _TAG, _SIMPLE_VALUE, _TENSOR, _METADATA)
            tag, scalar = protobuf.text(parts.get(_TAG, b"")), _scalar(parts)
            if scalar is None:
                self._take_other(tag, parts, found)
            else:
                found.add_point(self._tags, tag, at_ns, step, scalar)

    def _take_other(self, tag: str, parts: dict[int, Field], found: FileRecords) -> None:
        plugin, content = _plugin(parts.get(_METADATA, b""))
        if plugin == "text":
            texts = protobuf.repeated(parts.get(_TENSOR, b""), _STRINGS)
            told = "\n".join(each.decode("utf-8", "replace") for each in texts)
            found.add_pairs("tags", {self._prefix + tag.removesuffix(_TEXT_SUMMARY): told})
        elif plugin == "hparams" and (params := dict(_hyperparameters(content))):
            found.add_pairs("params", params)


def _scalar(parts: dict[int, Field]) -> float | int | None:
    if _SIMPLE_VALUE in parts:
        return protobuf.float32(parts[_SIMPLE_VALUE])
    if _TENSOR not in parts:
        return None
    known = (_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _INT64S)
    tensor = protobuf.numbered(parts[_TENSOR], *known)
    if content := tensor.get(_CONTENT):
        form = _PACKED.get(protobuf.signed(tensor.get(_DTYPE, 0)), "")
        if form and len(protobuf.message(content)) == struct.calcsize(form):
            number: float | int = struct.unpack(form, protobuf.message(content))[0]
            return number
        return None
    for key, form in ((_FLOATS, "<f"), (_DOUBLES, "<d")):
        if key in tensor:
            listed = protobuf.message(tensor[key])
            if len(listed) == struct.calcsize(form):
                number = struct.unpack(form, listed)[0]
                return number
            return None
    for key in (_INTS, _INT64S):
        if key in tensor:
            whole = tensor[key]
            if isinstance(whole, int):
                return protobuf.signed(whole)
            value, end = protobuf.varint(whole, 0)  # packed
            return protobuf.signed(value) if end == len(whole) else None
    return None


def _plugin(metadata: Field) -> tuple[str, bytes]:
    data = protobuf.numbered(protobuf.numbered(metadata, 1).get(1, b""), 1, 2)
    return protobuf.text(data.get(1, b"")), protobuf.message(data.get(2, b""))


def _hyperparameters(content: bytes) -> Iterator[tuple[str, str]]:
    started = protobuf.numbered(content, 3).get(3, b"")
    for pair in protobuf.repeated(started, 1):
        parts = protobuf.numbered(pair, 1, 2)
        for kind, value in protobuf.fields(protobuf.message(parts.get(2, b""))):
            yield protobuf.text(parts.get(1, b"")), _hyperparameter(kind, value)


def _hyperparameter(kind: int, value: Field) -> str:
    if kind == 2:
        number = protobuf.double(value)
        return str(int(number)) if number.is_integer() else str(number)
    if kind == 3:
        return protobuf.text(value)
    return json.dumps(bool(value) if kind == 4 else None)


# --- their checksum -----------------------------------------------------------------------------


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
