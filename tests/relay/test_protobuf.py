from __future__ import annotations

import struct

import pytest
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from scheduler.relay import protobuf
from scheduler.relay.protobuf import BadMessage


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_numbers_are_what_googles_library_wrote(seconds: int, nanos: int) -> None:
    data = Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    found = protobuf.numbered(data, 1, 2)
    assert protobuf.signed(found.get(1, 0)) == seconds
    assert protobuf.signed(found.get(2, 0)) == nanos


@given(st.dictionaries(st.text(max_size=200), st.floats(allow_nan=False), max_size=5))
def test_messages_within_messages_are(values: dict[str, float]) -> None:
    whole = Struct(fields={key: Value(number_value=value) for key, value in values.items()})
    found = {}
    for pair in protobuf.repeated(whole.SerializeToString(), 1):
        parts = protobuf.numbered(pair, 1, 2)
        (value,) = (each for _, each in protobuf.fields(protobuf.message(parts[2])))
        found[protobuf.text(parts[1])] = protobuf.double(value)
    assert found == values


@given(st.binary(max_size=100))
def test_whatever_else_it_is_it_is_no_message(data: bytes) -> None:
    try:
        again = [*protobuf.fields(data)]
    except BadMessage:
        return
    assert len(again) <= len(data)


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x08", b"\x0a\x05abc", b"\x09abc", b"\x0b", b"\x08" + b"\xff" * 11]
)
def test_half_a_message_is_none(data: bytes) -> None:
    with pytest.raises(BadMessage):
        [*protobuf.fields(data)]


def test_a_field_of_another_type_is_refused() -> None:
    for read, wrong in (
        (protobuf.text, 1),
        (protobuf.double, b"abc"),
        (protobuf.float32, struct.pack("<d", 1.0)),
        (protobuf.signed, b"abc"),
    ):
        with pytest.raises(BadMessage):
            read(wrong)
