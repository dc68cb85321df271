from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.relay.entries import (
    LINE_BYTES_MAX,
    ArtifactEntry,
    BadEntry,
    DescriptionEntry,
    LinesEntry,
    LoggedPoint,
    LossEntry,
    PairsEntry,
    PointsEntry,
    parse,
)

DIGEST = "0" * 64


def line(**record: Any) -> bytes:
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {"lines": "m f=1", "precision": "ms", "at": 5},
            LinesEntry("m f=1", "ms", 5),
        ),
        ({"params": {"lr": 0.1, "name": "x"}}, PairsEntry("params", {"lr": "0.1", "name": "x"})),
        ({"tags": {"a": "b"}}, PairsEntry("tags", {"a": "b"})),
        ({"describes": "words"}, DescriptionEntry("words")),
        (
            {"artifact": "a/b", "size": 1, "sha256": DIGEST},
            ArtifactEntry("a/b", 1, DIGEST),
        ),
        ({"lost": 3, "why": "disk\nfull"}, LossEntry(3, "disk?full")),
        ({"dataset": {"any": "thing"}}, None),
    ],
)
def test_each_kind_is_read(given: dict[str, Any], wanted: object) -> None:
    assert parse(line(**given)) == wanted


def test_values_that_json_lacks_are_kept() -> None:
    entry = parse(b'{"points": [["m", {}, "f", 1, null, NaN], ["m", {}, "f", 2, 0, -Infinity]]}')
    assert isinstance(entry, PointsEntry)
    assert math.isnan(float(entry.points[0].value))
    assert entry.points[1] == LoggedPoint("m", (), "f", 2, 0, -math.inf)


def test_a_point_is_refused_alone() -> None:
    good = ["m", {"b": "2", "a": "1"}, "f", 1, 7, True]
    bad = ["m", {}, "x\n", 1, 7, 1.0]
    entry = parse(line(points=[good, bad, 5]))
    assert isinstance(entry, PointsEntry)
    assert entry.points == [LoggedPoint("m", (("a", "1"), ("b", "2")), "f", 1, 7, True)]
    assert entry.refused == [
        "field 'x\\n': has a control character",
        "a point that is not [measurement, tags, field, time, step, value]",
    ]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (["", {}, "f", 1, 1, 1], "measurement '': is empty"),
        (["m" * 251, {}, "f", 1, 1, 1], "has 251 characters: 250 at most"),
        (["m", {}, 5, 1, 1, 1], "field '5': is not a text"),
        (["m", [], "f", 1, 1, 1], "tags that are not an object"),
        (["m", {"t": "\x1b"}, "f", 1, 1, 1], "tag 't': its value has a control character"),
        (["m", {str(i): "" for i in range(33)}, "f", 1, 1, 1], "33 tags at once: 32 at most"),
        (["m", {}, "f", 1.5, 1, 1], "its time is no whole number"),
        (["m", {}, "f", True, 1, 1], "its time is no whole number"),
        (["m", {}, "f", 2**63, 1, 1], "its time is no whole number"),
        (["m", {}, "f", 1, -1, 1], "its step is no whole number from 0 on"),
        (["m", {}, "f", 1, 1, 2**63], "more than 64 bits"),
        (["m", {}, "f", 1, 1, None], "its value is no number"),
        (["m", {}, "f", 1, 1, "x" * 8193], "8193 characters, 8192 at most"),
        (["m", {}, "f", 1, 1, "\ud800"], "is not Unicode"),
    ],
)
def test_each_wrong_point_has_a_reason(point: list[Any], reason: str) -> None:
    entry = parse(line(points=[point]))
    assert isinstance(entry, PointsEntry)
    assert entry.points == []
    assert reason in entry.refused[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"points": [["m', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"lost": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "not a JSON object"),
        (b'{"poin\\u0000ts": []}', "unknown kind: 'poin\\x00ts'"),
        (b" " * (LINE_BYTES_MAX + 1), f"{LINE_BYTES_MAX} at most"),
        (line(points=5), "not a list"),
        (line(lines=5), "not a text"),
        (line(lines="x", at=1, precision="h"), "not one of ns, us, ms, s"),
        (line(lines="x"), "without the time of their arrival"),
        (line(params=[]), "not an object"),
        (line(params={"": 1}), "is empty"),
        (line(describes=1), "not a text"),
        (line(artifact="/etc/passwd", size=1, sha256=DIGEST), "not a path below the run"),
        (line(artifact="a/../../b", size=1, sha256=DIGEST), "not a path below the run"),
        (line(artifact="", size=1, sha256=DIGEST), "not a path of 1 to"),
        (line(artifact="a", size=-1, sha256=DIGEST), "its size"),
        (line(artifact="a", size=1, sha256="x"), "its sha256"),
        (line(lost=0), "without a number"),
    ],
)
def test_each_wrong_entry_has_a_reason_of_one_line(content: bytes, reason: str) -> None:
    with pytest.raises(BadEntry) as raised:
        parse(content)
    assert reason in str(raised.value)
    assert str(raised.value).isprintable()


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_nothing_but_a_reason_comes_of_noise(content: bytes) -> None:
    with pytest.raises(BadEntry):
        parse(content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
    max_leaves=20,
)
_KINDS = ("points", "lines", "params", "tags", "describes", "artifact", "lost", "dataset")


@given(st.sampled_from(_KINDS), _JSON, st.dictionaries(st.sampled_from(["at", "size"]), _JSON))
def test_what_is_accepted_can_be_written_as_utf8(kind: str, content: Any, more: Any) -> None:
    with suppress(BadEntry):
        str(parse(line(**{**more, kind: content}))).encode()
