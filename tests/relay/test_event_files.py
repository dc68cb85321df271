from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.relay import entries as format_of_entries
from scheduler.relay.event_files import EventFile, masked_crc32c
from scheduler.relay.file_records import RECORD_BYTES_MAX, DamagedFile, FileRecords
from tests.relay.written_files import (
    AT,
    event,
    field,
    float32,
    framed,
    scalar,
    scalars,
    tensor,
    varint,
)

VERSION = framed(field(1, AT) + field(3, "brain.Event:2"))


def read(data: bytes, run: str = "") -> FileRecords:
    found = EventFile(run).read(data, 0)
    found.close_points()
    assert all(format_of_entries.parse(entry) for entry in found.entries)
    return found


def told(found: FileRecords, kind: str) -> Any:
    return [json.loads(entry)[kind] for entry in found.entries if kind in json.loads(entry)]


def points(data: bytes, run: str = "") -> list[Any]:
    return [point for listed in told(read(data, run), "points") for point in listed]


def test_the_checksum_is_that_of_castagnoli() -> None:
    """Of RFC 3720, as TFRecord masks it."""
    unmasked = (masked_crc32c(bytes(32)) - 0xA282EAD8) % 2**32
    assert (unmasked << 15 | unmasked >> 17) % 2**32 == 0x8A9136AA


def test_scalars_become_points() -> None:
    data = VERSION + event(3, scalar("loss", 0.5), scalar("acc", math.inf))
    at_ns = 1_700_000_003_250_000_000
    assert points(data) == [
        ["metrics", {}, "loss", at_ns, 3, 0.5],
        ["metrics", {}, "acc", at_ns, 3, math.inf],
    ]
    assert points(data, "validation")[0][1] == {"run": "validation"}


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (field(1, 1) + float32(5, 0.25), 0.25),
        (field(1, 1) + field(5, struct.pack("<f", 0.25)), 0.25),
        (field(1, 2) + field(6, 0.1), 0.1),
        (field(1, 1) + field(4, struct.pack("<f", 0.25)), 0.25),
        (field(1, 2) + field(4, struct.pack("<d", 0.1)), 0.1),
        (field(1, 19) + field(4, struct.pack("<e", 0.5)), 0.5),
        (field(1, 3) + field(7, -3), -3),
        (field(1, 9) + field(10, varint(7)), 7),
        (field(1, 9) + field(4, struct.pack("<q", -7)), -7),
    ],
)
def test_so_do_tensors_with_one_number(content: bytes, value: float) -> None:
    (point,) = points(event(1, tensor("loss", content, "scalars")))
    assert point[5] == value


@pytest.mark.parametrize(
    "content",
    [
        field(1, 1) + field(4, struct.pack("<ff", 1, 2)),
        field(1, 1) + field(5, struct.pack("<ff", 1, 2)),
        field(1, 9) + field(10, varint(1) + varint(2)),
        field(1, 7) + field(8, "a text"),
        field(1, 99) + field(4, b"abcd"),
        b"",
    ],
)
def test_other_tensors_are_left_out(content: bytes) -> None:
    found = read(event(1, tensor("x", content, "images")))
    assert (found.entries, found.skipped) == ([], {})


def test_texts_are_tags_and_hyperparameters_params() -> None:
    note = tensor("note/text_summary", field(1, 7) + field(8, "why"), "text")
    pairs = {"lr": field(2, 0.1), "layers": field(2, 64.0), "on": field(4, 1), "m": field(3, "r")}
    of = b"".join(field(1, field(1, key) + field(2, value)) for key, value in pairs.items())
    session = tensor("_hparams_/session_start_info", b"", "hparams", field(2, field(3, of)))
    ended = tensor("_hparams_/session_end_info", b"", "hparams", field(2, field(4, b"")))
    found = read(event(0, note, session, ended))
    assert told(found, "tags") == [{"note": "why"}]
    assert told(found, "params") == [{"lr": "0.1", "layers": "64", "on": "true", "m": "r"}]
    assert told(read(event(0, note), "b"), "tags") == [{"b/note": "why"}]


@given(st.lists(st.integers(1, 200), max_size=20))
def test_however_it_grows_each_record_is_read_once(lengths: list[int]) -> None:
    data = VERSION + scalars(range(10))
    file, at, size, steps = EventFile(""), 0, 0, []
    for length in (*lengths, len(data)):
        size = min(len(data), size + length)
        found = file.read(data[at:size], at)
        at += found.consumed
        steps += [point[4] for point in found.points]
    assert steps == [*range(10)]


def test_a_record_that_is_damaged_costs_itself_alone() -> None:
    bad = bytearray(event(1, scalar("loss", 1)))
    bad[20] ^= 1
    nonsense = framed(b"\x0b\xff")
    found = read(event(0, scalar("loss", 0)) + bytes(bad) + nonsense + event(2, scalar("loss", 2)))
    assert [point[4] for listed in told(found, "points") for point in listed] == [0, 2]
    assert found.skipped == {"a record is damaged": 2}


def test_behind_a_damaged_length_nothing_is_read() -> None:
    data = bytearray(scalars(range(3)))
    data[len(data) // 3 + 1] ^= 1
    with pytest.raises(DamagedFile, match="the length of a record is damaged") as raised:
        read(bytes(data))
    assert [point[4] for point in raised.value.before.points] == [0]
    with pytest.raises(DamagedFile):
        read(b"this is something else")


def test_zeros_are_not_written_yet() -> None:
    data = scalars(range(2))
    assert read(data + bytes(100)).consumed == len(data)


def test_a_record_that_is_too_long_is_passed_over() -> None:
    image = framed(field(1, AT) + field(5, bytes(RECORD_BYTES_MAX)))
    data = scalars([0]) + image + scalars([1])
    found = read(data[: len(data) // 2])
    assert found.skipped == {"a record is too long": 1}
    assert points(data[found.consumed :])[0][4] == 1


def test_names_and_times_that_are_none_are_refused_alone() -> None:
    data = event(0, scalar("\0", 1), scalar("ok", 1)) + event(1, scalar("a", 1), at=math.nan)
    found = read(data + event(-5, scalar("minus", 1), at=AT))
    assert [(point[2], point[4]) for listed in told(found, "points") for point in listed] == [
        ("ok", 0),
        ("minus", 0),
    ]
    assert sum(found.skipped.values()) == 2
