from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetesdlprofile import wire
from scheduler.v1 import scheduler_pb2 as pb

int32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]))
number = st.floats(allow_nan=False)
trained = st.integers(-1, 2**31 - 1)
profile = st.builds(
    wire.Profile,
    *(text, int32, int32, int32, number, number, number, int32, number, int32),
    trained=trained,
    score=st.none() | number,
)


NUMBERED = wire.Profile._fields[: wire.FIELDS[wire.Profile]]


def theirs_of(ours: wire.Profile) -> pb.Profile:
    fields: dict[str, Any] = dict(zip(NUMBERED, ours, strict=False))
    trained = None if ours.trained < 0 else ours.trained
    return pb.Profile(**fields, trained=trained, score=ours.score)


@given(text, int32, int32, int32, int32, trained)
def test_the_generated_code_reads_and_writes_the_same_question(
    job_id: str, attempt: int, rank: int, local_rank: int, epoch: int, trained: int
) -> None:
    theirs = pb.StartEpochRequest(
        job_id=job_id, attempt=attempt, rank=rank, local_rank=local_rank, epoch=epoch
    )
    if trained >= 0:
        theirs.trained = trained  # 0 is not the same as nothing
    ours = wire.encode(wire.StartEpoch(job_id, attempt, rank, local_rank, epoch, trained))
    assert pb.StartEpochRequest.FromString(ours) == theirs
    assert ours == theirs.SerializeToString(deterministic=True)


@given(text, int32, int32, st.booleans())
def test_the_generated_code_reads_and_writes_the_same_farewell(
    job_id: str, attempt: int, rank: int, preempted: bool
) -> None:
    theirs = pb.FinishRequest(job_id=job_id, attempt=attempt, rank=rank, preempted=preempted)
    ours = wire.encode(wire.Finish(job_id, attempt, rank, preempted))
    assert pb.FinishRequest.FromString(ours) == theirs
    assert ours == theirs.SerializeToString(deterministic=True)


@given(st.lists(profile))
def test_the_generated_code_reads_and_writes_the_same_profiles(
    measured: list[wire.Profile],
) -> None:
    theirs = [theirs_of(each) for each in measured]
    ours = wire.encode_profiles(measured)
    for message in (pb.EndEpochRequest, pb.ReportRequest):
        assert message.FromString(ours) == message(profiles=theirs)
        assert ours == message(profiles=theirs).SerializeToString(deterministic=True)


def test_the_order_of_a_profile_is_that_of_its_field_numbers() -> None:
    fields = pb.Profile.DESCRIPTOR.fields
    assert [(field.name, field.number) for field in fields] == [
        *((name, number) for number, name in enumerate(NUMBERED, 1)),
        ("trained", wire.TRAINED),
        ("score", wire.SCORE),
    ]
    assert pb.StartEpochRequest.DESCRIPTOR.fields_by_name["trained"].number == wire.TRAINED


@given(st.booleans(), text)
def test_an_answer_of_the_generated_code_is_read_back(stop: bool, reason: str) -> None:
    reply = pb.StartEpochReply(stop=stop, reason=reason).SerializeToString()
    assert wire.read_answer(reply) == (stop, reason)


@given(profile, st.booleans(), text)
def test_fields_of_a_later_version_are_skipped(
    unknown: wire.Profile, stop: bool, reason: str
) -> None:
    # A Profile's fields from 3 on have numbers that an answer does not have, with all wire types.
    later = theirs_of(unknown._replace(job_id="", attempt=0)).SerializeToString()
    fixed32 = bytes([15 << 3 | 5]) + b"four"
    reply = pb.StartEpochReply(stop=stop, reason=reason).SerializeToString()
    assert wire.read_answer(later + fixed32 + reply) == (stop, reason)
    assert wire.read_answer(reply + fixed32 + later) == (stop, reason)


@given(st.binary())
def test_bytes_that_are_no_answer_are_a_value_error_and_nothing_else(garbage: bytes) -> None:
    with contextlib.suppress(ValueError):
        wire.read_answer(garbage)


@given(text.filter(bool))
def test_an_answer_that_is_cut_short_is_refused(reason: str) -> None:
    reply = pb.StartEpochReply(reason=reason).SerializeToString()
    with pytest.raises(ValueError, match="ends within"):
        wire.read_answer(reply[:-1])


@pytest.mark.parametrize("garbage", [b"\x0a\x01x", b"\x10\x01", b"\x0f", b"\x08" + b"\xff" * 10])
def test_an_answer_of_the_wrong_type_is_refused(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"wrong type|unknown|longer than"):
        wire.read_answer(garbage)


@pytest.mark.slow
def test_a_hundred_thousand_messages_are_as_the_generated_code_has_them() -> None:
    chance = random.Random(0)
    edges = (0, 1, -1, 127, 128, 2**31 - 1, -(2**31))

    def whole() -> int:
        return chance.choice(edges) if chance.random() < 0.3 else chance.randrange(-(2**31), 2**31)

    def real() -> float:
        return chance.choice((0.0, -0.0, 1e-300, chance.random(), chance.uniform(-1e9, 1e9)))

    def words() -> str:
        return "".join(chance.choice("aZ-_\0é😀") for _ in range(chance.randrange(40)))

    for _ in range(25_000):
        kinds = {str: words, int: whole, float: real}
        types = [wire.Profile.__annotations__[name] for name in NUMBERED]
        many = [
            wire.Profile(*[kinds[kind]() for kind in types])._replace(  # type: ignore[arg-type]
                trained=chance.choice((-1, 0, 7))
            )
            for _ in range(chance.randrange(3))
        ]
        batch = pb.EndEpochRequest(profiles=[theirs_of(each) for each in many])
        assert wire.encode_profiles(many) == batch.SerializeToString(deterministic=True)
        asked = wire.StartEpoch(words(), whole(), whole(), whole(), whole())
        theirs = pb.StartEpochRequest(**dict(list(asked._asdict().items())[:5]))
        assert wire.encode(asked) == theirs.SerializeToString(deterministic=True)
        left = wire.Finish(words(), whole(), whole(), chance.random() < 0.5)
        farewell = pb.FinishRequest(**left._asdict()).SerializeToString(deterministic=True)
        assert wire.encode(left) == farewell
        answer = chance.random() < 0.5, words()
        reply = pb.StartEpochReply(stop=answer[0], reason=answer[1]).SerializeToString()
        assert wire.read_answer(reply) == answer
