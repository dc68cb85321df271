from __future__ import annotations

import json

from scheduler.relay import entries
from scheduler.relay.file_records import POINTS_MAX, FileRecords, shortened


def test_many_points_are_several_entries() -> None:
    found = FileRecords()
    for step in range(2 * POINTS_MAX + 1):
        found.add_point({}, "a", 1, step, 0.5)
    found.close_points()
    assert [len(json.loads(each)["points"]) for each in found.entries] == [500, 500, 1]


def test_entries_are_in_the_order_in_which_they_were_added() -> None:
    found = FileRecords()
    found.add_point({}, "a", 1, 0, 0.5)
    found.add_pairs("params", {"lr": "1"})
    found.add_point({}, "a", 2, 1, 0.5)
    found.add_description("why")
    found.close_points()
    kinds = [next(iter(json.loads(each))) for each in found.entries]
    assert kinds == ["points", "params", "points", "describes"]


def test_what_the_gateway_would_refuse_is_not_told() -> None:
    found = FileRecords()
    found.add_point({}, "\0", 1, 0, 0.5)
    found.add_point({}, "x" * 300, 1, 0, 0.5)
    found.add_pairs("params", {"": "1", "k" * 300: "v" * 20_000, "half": "\ud800"})
    found.add_pairs("tags", {f"t{at}": "" for at in range(1500)})
    found.close_points()
    assert sum(found.skipped.values()) == 3
    parsed = [entries.parse(each) for each in found.entries]
    assert [len(each.pairs) for each in parsed if isinstance(each, entries.PairsEntry)] == [
        2,
        1000,
        500,
    ]


def test_a_text_is_shortened_visibly() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
