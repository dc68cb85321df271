"""What is taken in: once, and what is wrong alone refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.gateway.series import intake
from scheduler.gateway.series.intake import MISSED, OTHER_REASONS, SentEntries
from scheduler.gateway.series.limits import SeriesLimits
from scheduler.gateway.series.reading import NO_STEP
from scheduler.gateway.series.series_store import SeriesStore
from tests.gateway.series.delivering import NOW_NS, SECOND, deliver, entries, metric, stored


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SeriesStore]:
    with SeriesStore(tmp_path) as made:
        yield made


def limited(tmp_path: Path, **limits: int) -> SeriesStore:
    return SeriesStore(tmp_path, SeriesLimits(**limits))


def test_what_is_sent_twice_counts_once(store: SeriesStore) -> None:
    first = {"points": [metric("loss", 0.5, 1)]}
    second = {"points": [metric("loss", 0.25, 2, NOW_NS + 1)]}
    assert deliver(store, first).next == 1
    assert deliver(store, first, second).next == 2
    assert deliver(store, second, first=1).next == 2
    changed = {"points": [metric("loss", 99.0, 1)]}
    assert deliver(store, changed).next == 2  # it was taken with this number: not looked at again
    assert stored(store) == {"loss": [(NOW_NS, 1, 0.5), (NOW_NS + 1, 2, 0.25)]}


def test_numbers_are_of_one_spool_of_one_attempt_of_one_job(store: SeriesStore) -> None:
    entry = {"params": {"a": "b"}}
    for other in ({}, {"spool": "t"}, {"attempt": 2}, {"job": "b"}):
        assert deliver(store, entry, **other).next == 1


def test_a_store_that_was_restored_takes_what_comes(store: SeriesStore) -> None:
    assert deliver(store, {"params": {"a": "b"}}, first=10).next == 11
    assert store.record("a").lost == {MISSED: 10}


def test_the_same_point_a_thousand_times_is_one(store: SeriesStore) -> None:
    deliver(store, *[{"points": [metric("loss", 0.5, 1)]}] * 1000)
    assert len(stored(store)["loss"]) == 1


def test_steps_of_one_moment_are_all_kept(store: SeriesStore) -> None:
    deliver(store, {"points": [metric("loss", step / 2, step) for step in range(5)]})
    assert [row[1] for row in stored(store)["loss"]] == [0, 1, 2, 3, 4]


def test_values_that_are_no_numbers_are_kept(store: SeriesStore) -> None:
    values = [math.nan, math.inf, -math.inf, -0.0]
    points = [metric("loss", value, None, NOW_NS + i) for i, value in enumerate(values)]
    deliver(store, {"points": points})
    found = stored(store)["loss"]
    assert repr([row[2] for row in found]) == repr(values)
    assert found[0][1] == NO_STEP


def test_each_type_of_value_is_kept(store: SeriesStore) -> None:
    points = [metric("f", 1.5), metric("i", 2**62 + 1), metric("b", True), metric("s", "ü\0")]
    deliver(store, {"points": points})
    assert {name: found[0][2] for name, found in stored(store).items()} == {
        "f": 1.5,
        "i": 2**62 + 1,
        "b": True,
        "s": "ü\0",
    }


def test_whole_numbers_among_others_are_numbers(store: SeriesStore) -> None:
    points = [metric("x", value, step) for step, value in enumerate([1, 2.5, 3])]
    deliver(store, {"points": points})
    (series,) = store.series(["a"])
    assert series.kind == "float"
    assert [row[2] for row in stored(store)["x"]] == [1.0, 2.5, 3.0]


def test_a_field_does_not_become_a_text(store: SeriesStore) -> None:
    taken = deliver(store, {"points": [metric("x", 1.0), metric("x", "one")]})
    assert (taken.refused, taken.reasons) == (
        1,
        ["field 'x': its value is a string, and was a float"],
    )


def test_lines_are_parsed_and_a_wrong_one_is_refused_alone(store: SeriesStore) -> None:
    lines = "m,host=a f=1 5\nm f=\nm,host=b f=nan 6"
    taken = deliver(store, {"lines": lines, "precision": "s", "at": NOW_NS})
    assert taken.refused == 1
    assert [each.tags for each in store.series(measurement="m")] == [
        (("host", "a"),),
        (("host", "b"),),
    ]
    assert "no field" in next(iter(store.record("a").refused))


def test_a_record_has_what_was_told_last(store: SeriesStore) -> None:
    deliver(
        store,
        {"params": {"lr": "0.1", "b": 1}},
        {"params": {"lr": "0.2"}},
        {"tags": {"k": "v"}},
        {"describes": "first"},
        {"describes": "second"},
        {"lost": 3, "why": "the spool was full"},
        {"lost": 4, "why": "the spool was full"},
    )
    record = store.record("a")
    assert (record.params, record.tags) == ({"lr": "0.2", "b": "1"}, {"k": "v"})
    assert record.description == "second"
    assert record.lost == {"the spool was full": 7}
    assert store.record("nothing").params == {}


@pytest.mark.parametrize(
    ("limits", "records", "reason"),
    [
        (
            {"series": 2},
            [{"points": [metric(f"m{i}", 1.0) for i in range(3)]}],
            "this job has 2 series: no new ones are kept",
        ),
        (
            {"points": 2},
            [{"points": [metric("m", 1.0, i) for i in range(3)]}],
            "this job has logged 2 points: no more are kept",
        ),
        (
            {"pairs": 2},
            [{"params": {"a": "1", "b": "2", "c": "3"}}],
            "this job has 2 params and tags: no more",
        ),
        (
            {"ahead_seconds": 60},
            [{"points": [metric("m", 1.0, 1, NOW_NS + 62 * SECOND)]}],
            "field 'm': its time is far ahead of the gateway's clock",
        ),
        (
            {},
            [{"artifact": "model.pt", "size": 1, "sha256": "0" * 64}],
            "artifact 'model.pt': its bytes have not arrived",
        ),
        ({}, [{"describes": "x" * 2**20}], "an entry of"),
        ({}, ["half a line"], "an entry that is not a JSON object"),
    ],
)
def test_each_limit_ends_in_one_counted_refusal(
    limits: dict[str, int], records: list[Any], reason: str, tmp_path: Path
) -> None:
    with limited(tmp_path, **limits) as store:
        taken = deliver(store, *records)
        assert (taken.refused, taken.next) == (1, len(records))
        (kept,) = store.record("a").refused.items()
        assert reason in kept[0]
        assert kept[1] == 1
        assert deliver(store, {"params": {"after": 1}}, first=1, job="b").next == 2


def test_very_many_series_of_a_job_end_in_counted_refusals(store: SeriesStore) -> None:
    for part in range(20):
        names = range(5_000 * part, 5_000 * part + 5_000)
        deliver(store, {"points": [metric(f"m{name}", 1.0) for name in names]}, first=part)
    assert len(store.series(["a"])) == 10_000
    assert store.record("a").refused == {"this job has 10000 series: no new ones are kept": 90_000}
    assert deliver(store, {"points": [metric("m1", 2.0, 1)]}, first=20).refused == 0


def test_series_are_found_again_when_there_are_too_many_to_remember(
    store: SeriesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_SERIES_KNOWN", 30)
    names = [f"m{number}" for number in range(10)]
    for step in range(3):
        for job in range(10):
            told = {"points": [metric(name, step, step, NOW_NS + step) for name in names]}
            assert deliver(store, told, job=f"job{job}", first=step).refused == 0
    assert len(store.series()) == 100
    assert len(stored(store, "job0")["m0"]) == 3


def test_limits_hold_over_a_restart(tmp_path: Path) -> None:
    for number in range(4):
        with limited(tmp_path, series=2) as store:
            deliver(store, {"points": [metric(f"m{number}", 1.0)]}, first=number)
    with SeriesStore(tmp_path) as store:
        assert len(store.series(["a"])) == 2
        assert list(store.record("a").refused.values()) == [2]


def test_reasons_are_no_more_than_can_be_read(tmp_path: Path) -> None:
    with limited(tmp_path, reasons=3) as store:
        deliver(store, {"points": [["m", {}, f"f\n{i}", 1, 1, 1] for i in range(10)]})
        refused = store.record("a").refused
    assert len(refused) == 4
    assert refused[OTHER_REASONS] == 7


def test_half_a_line_at_the_end_is_refused_alone(store: SeriesStore) -> None:
    whole = entries({"params": {"a": "b"}})
    taken = store.deliver(SentEntries("a", 1, "s", 0, whole + whole[:9], 0.0)).result(10)
    assert (taken.next, taken.refused) == (2, 1)
    assert store.record("a").params == {"a": "b"}
