from __future__ import annotations

import json

import pytest

from scheduler.relay import entries as format_of_entries
from scheduler.relay.line_protocol import (
    ENTRY_BYTES_MAX,
    LINE_BYTES_MAX,
    UnknownPrecision,
    entries,
)


def test_lines_stay_what_they_were() -> None:
    data = 'loss,host=gpu1 value=0.5 17\nacc value=nan\nhalf a li\nä,b="c'.encode()
    ((entry, too_long),) = entries(data, "s", 5)
    assert too_long == 0
    assert json.loads(entry) == {"lines": data.decode(), "precision": "s", "at": 5}
    assert isinstance(format_of_entries.parse(entry), format_of_entries.LinesEntry)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  \r\n"])
def test_nothing_is_no_entry(data: bytes) -> None:
    assert [*entries(data, "", 5)] == []


def test_bytes_that_are_no_text_do_not_end_it() -> None:
    ((entry, _),) = entries(b"loss \xff\xfe=1", "ns", 5)
    assert json.loads(entry)["lines"] == "loss ��=1"


def test_many_lines_become_entries_that_the_gateway_takes() -> None:
    lines = [b"loss,step=%d value=1" % at for at in range(50_000)]
    found = [*entries(b"\n".join(lines), "", 5)]
    texts = [json.loads(entry)["lines"] for entry, _ in found]
    assert "\n".join(texts).encode().split(b"\n") == lines
    assert all(len(entry) < format_of_entries.LINE_BYTES_MAX for entry, _ in found)
    assert all(len(text) <= ENTRY_BYTES_MAX for text in texts)


def test_a_line_of_megabytes_is_refused_alone() -> None:
    found = [*entries(b"a v=1\n" + b"x" * 10_000_000 + b"\nb v=2\n", "", 5)]
    assert sum(too_long for _, too_long in found) == 1
    assert [json.loads(entry)["lines"] for entry, _ in found] == ["a v=1\nb v=2"]
    ((entry, too_long),) = entries(b"x" * (LINE_BYTES_MAX + 1), "", 5)
    assert (entry, too_long) == (b"", 1)


@pytest.mark.parametrize(("given", "kept"), [("", "ns"), ("n", "ns"), ("u", "us"), ("ms", "ms")])
def test_precisions_of_both_versions_of_influxdb(given: str, kept: str) -> None:
    ((entry, _),) = entries(b"a v=1", given, 5)
    assert json.loads(entry)["precision"] == kept


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(UnknownPrecision, match="'fortnights'"):
        next(entries(b"a v=1", "fortnights", 5))
