"""The files of wandb's offline runs: history becomes points, config params. Pure.

A file is a header and then a log as LevelDB has it: blocks of 32 KiB, in which a record may be in
several pieces. Behind a damaged piece, it goes on with the next block.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.relay import protobuf
from scheduler.relay.entries import DESCRIPTION_MAX, NAME_MAX
from scheduler.relay.file_records import RECORD_BYTES_MAX, DamagedFile, FileRecords, shortened
from scheduler.relay.protobuf import BadMessage, Field

HEADER = b":W&B\xe1\xbe\x00"
BLOCK_BYTES = 32 * 1024
DEPTH_MAX = 5  # of dicts within dicts
_PIECE = struct.Struct("<IHB")
_NOTHING, _WHOLE, _FIRST, _MIDDLE, _LAST, _DAMAGE = range(6)
_DAMAGED, _LONG = "a record is damaged", "a record is too long"

# Numbers of fields, by message: wandb_internal.proto, and Timestamp of protobuf.
_HISTORY, _SUMMARY, _CONFIG, _RUN = 2, 3, 5, 17
_ITEM, _STEP, _UPDATE = 1, 2, 1
_KEY, _NESTED_KEY, _BOOLEAN, _INTEGER, _NUMBER, _TEXT, _JSON, _VALUE_JSON = 1, 2, 4, 5, 6, 7, 8, 16
_RUN_ID, _RUN_CONFIG, _DISPLAY_NAME, _NOTES, _TAG, _START_TIME = 1, 4, 8, 9, 10, 17
_SECONDS = 1


class WandbFile:
    def __init__(self, number: int, continued: int = 0, first_step: int | None = None) -> None:
        """`number`: of its run among those of the attempt; the first one is the job's own.
        `continued`: the step with which this run goes on after a preemption, because an offline run
        counts from 0 again. `first_step`: what it calls 0, if that is known from before."""
        self._number, self._continued = number, continued
        self.first_step = first_step
        self.last_step = -1
        self._run = "" if number == 1 else f"run {number}"
        self._tags: dict[str, str] = {}
        self._at_ns = 0  # of its last value
        self._told: dict[str, str] = {}  # so that nothing is repeated

    def prime(self, head: bytes) -> None:
        self.read(head, 0)
        self.last_step = -1

    def read(self, data: bytes, offset: int) -> FileRecords:
        found = FileRecords()
        if offset == 0:
            if len(data) < len(HEADER):
                return found
            if not data.startswith(HEADER):
                raise DamagedFile("it is no file of wandb, or of another version", found)
            found.consumed = len(HEADER)
        record: list[bytes] = []
        for end, kind, piece in _pieces(data, offset, found.consumed):
            if record and kind not in (_MIDDLE, _LAST):
                found.skipped[_DAMAGED] += 1
                record = []
            if kind == _DAMAGE:
                found.skipped[_DAMAGED] += 1
            elif kind in (_WHOLE, _FIRST) or record:
                record.append(piece)
            if sum(map(len, record)) > RECORD_BYTES_MAX:
                found.skipped[_LONG] += 1
                record = []  # the rest of it has no beginning, and is left out
            elif record and kind in (_WHOLE, _LAST):
                try:
                    self._take(b"".join(record), found)
                except BadMessage:
                    found.skipped[_DAMAGED] += 1
                record = []
            if not record:
                found.consumed = end
        return found

    # --- records ----------------------------------------------------------------------------

    def _take(self, record: bytes, found: FileRecords) -> None:
        for kind, value in protobuf.fields(record):
            if kind == _HISTORY:
                self._take_history(protobuf.message(value), found)
            elif kind == _SUMMARY:
                self._take_summary(protobuf.message(value), found)
            elif kind == _CONFIG:
                self._take_config(protobuf.message(value), found)
            elif kind == _RUN:
                self._take_run(protobuf.message(value), found)

    def _take_history(self, history: bytes, found: FileRecords) -> None:
        values: dict[str, Any] = {}
        for item in protobuf.repeated(history, _ITEM):
            _flatten(values, *_item(item))
        step = values.get("_step")
        if type(step) is not int:
            counted = protobuf.numbered(history, _STEP).get(_STEP, b"")
            step = protobuf.signed(protobuf.numbered(counted, 1).get(1, 0))
        at = values.get("_timestamp")
        if isinstance(at, int | float) and 0 <= at < 2**33:
            self._at_ns = round(at * 1e6) * 1000
        if self.first_step is None:
            self.first_step = 0 if step > 0 else self._continued
        step = self.last_step = max(0, step) + self.first_step
        for name, value in values.items():
            if not name.startswith("_"):
                self._add_point(name, step, value, found)

    def _take_summary(self, summary: bytes, found: FileRecords) -> None:
        """Only what the script sets itself: the rest is what wandb makes of the history."""
        values: dict[str, Any] = {}
        for item in protobuf.repeated(summary, _UPDATE):
            _flatten(values, *_item(item))
        if "_step" in values or "_timestamp" in values:
            return
        for name, value in values.items():
            if not name.startswith("_"):
                self._add_point(name, None, value, found)

    def _add_point(self, name: str, step: int | None, value: Any, found: FileRecords) -> None:
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            value = float(value)
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= NAME_MAX):
            found.add_point(self._tags, name, self._at_ns, step, value)

    def _take_config(self, config: bytes, found: FileRecords) -> None:
        values: dict[str, Any] = {}
        for item in protobuf.repeated(config, _UPDATE):
            _flatten(values, *_item(item))
        self._tell(
            "params",
            {
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in values.items()
                if not name.startswith("_wandb")
            },
            found,
        )

    def _take_run(self, run: bytes, found: FileRecords) -> None:
        parts = protobuf.numbered(run, _RUN_ID, _RUN_CONFIG, _DISPLAY_NAME, _NOTES, _START_TIME)
        name = protobuf.text(parts.get(_DISPLAY_NAME, b""))
        if self._number > 1 and not self._tags:
            self._run = name or self._run
            self._tags = {"run": self._run[:200]}
        started = protobuf.numbered(parts.get(_START_TIME, b""), _SECONDS).get(_SECONDS, 0)
        self._at_ns = self._at_ns or protobuf.signed(started) * 1_000_000_000
        self._take_config(protobuf.message(parts.get(_RUN_CONFIG, b"")), found)
        tags = {"wandb.name": name} if name else {}
        if listed := protobuf.repeated(run, _TAG):
            tags["wandb.tags"] = ", ".join(each.decode("utf-8", "replace") for each in listed)
        notes = protobuf.text(parts.get(_NOTES, b""))
        if notes and self._number > 1:
            tags["wandb.notes"] = notes
        elif notes and self._told.get("") != notes:
            self._told[""] = notes
            found.add_description(shortened(notes, DESCRIPTION_MAX))
        self._tell("tags", tags, found)

    def _tell(self, kind: str, pairs: Mapping[str, str], found: FileRecords) -> None:
        prefix = f"{self._run}/" if self._number > 1 else ""
        news = {
            prefix + name: text
            for name, text in pairs.items()
            if self._told.get(f"{kind} {name}") != text
        }
        self._told |= {f"{kind} {name}": text for name, text in pairs.items()}
        if news:
            found.add_pairs(kind, news)


def _pieces(data: bytes, offset: int, at: int) -> Iterator[tuple[int, int, bytes]]:
    """Yields where each piece ends, its kind and what it has, until the first one that is not all
    there yet."""
    while True:
        left = BLOCK_BYTES - (offset + at) % BLOCK_BYTES
        if left < _PIECE.size:
            at += left
            continue
        if len(data) - at < _PIECE.size:
            return
        checksum, length, kind = _PIECE.unpack_from(data, at)
        end = at + _PIECE.size + length
        piece = data[at + _PIECE.size : end]
        checked = zlib.crc32(piece, zlib.crc32(bytes([kind])))
        if (
            end <= len(data)
            and _WHOLE <= kind <= _LAST
            and end <= at + left
            and checked == checksum
        ):
            at = end
            yield at, kind, piece
        elif len(data) - at < left:
            return
        else:  # with the rest of its block; if that is empty, its writer has left it out
            is_empty = not any(data[at : at + left])
            at += left
            yield at, _NOTHING if is_empty else _DAMAGE, b""


def _item(item: bytes) -> tuple[str, Any]:
    """Its name, and its value as JSON has it."""
    keys, value = [], None
    for number, field in protobuf.fields(item):
        if number in (_KEY, _NESTED_KEY):
            keys.append(protobuf.text(field))
        else:
            value = _value(number, field)
    return ".".join(keys), value


def _value(number: int, field: Field) -> Any:
    if number in (_VALUE_JSON, _JSON):
        try:
            return json.loads(protobuf.message(field))
        except (ValueError, RecursionError):
            raise BadMessage("a value that is no JSON") from None
    if number == _NUMBER:
        return protobuf.double(field)
    if number == _INTEGER:
        return protobuf.signed(field)
    if number == _TEXT:
        return protobuf.text(field)
    return bool(field) if number == _BOOLEAN else None


def _flatten(values: dict[str, Any], name: str, value: Any, depth: int = 0) -> None:
    """Dicts within dicts get names with points. Of images and the like, nothing is kept."""
    if not isinstance(value, dict):
        values[name] = value
    elif "_type" not in value and depth < DEPTH_MAX:
        for key, each in value.items():
            _flatten(values, f"{name}.{key}", each, depth + 1)
