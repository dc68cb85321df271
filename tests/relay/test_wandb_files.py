from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.relay import entries as format_of_entries
from scheduler.relay.file_records import RECORD_BYTES_MAX, DamagedFile, FileRecords
from scheduler.relay.wandb_files import BLOCK_BYTES, HEADER, WandbFile
from tests.relay.written_files import config, field, history, log, run, summary


def read(data: bytes, file: WandbFile | None = None, offset: int = 0) -> FileRecords:
    found = (file or WandbFile(1)).read(data, offset)
    found.close_points()
    assert all(format_of_entries.parse(entry) for entry in found.entries)
    return found


def told(found: FileRecords) -> list[Any]:
    return [json.loads(entry) for entry in found.entries]


def points(found: FileRecords) -> list[Any]:
    return [point for entry in told(found) for point in entry.get("points", ())]


def test_history_becomes_points() -> None:
    values = {"loss": 0.5, "ok": True, "train": {"acc": math.nan}, "big": 2**70, "word": "yes"}
    found = points(read(log(history(3, **values))))
    at_ns = 1_700_000_003_250_000_000
    assert [point[:2] for point in found] == [["metrics", {}]] * 5
    assert {tuple(point[3:5]) for point in found} == {(at_ns, 3)}
    named = {point[2]: point[5] for point in found}
    assert math.isnan(named.pop("train.acc"))
    assert named == {"loss": 0.5, "ok": True, "big": float(2**70), "word": "yes"}


def test_images_lists_and_long_texts_are_left_out() -> None:
    values = {"image": {"_type": "image-file", "size": 3}, "list": [1, 2], "none": None}
    found = read(log(history(0, **values, text="x" * 1000)))
    assert (found.entries, found.skipped) == ([], {})


def test_values_of_other_types_are_known() -> None:
    """wandb 0.31 has fields for these, and still writes JSON."""
    each: dict[int, Any] = {4: 1, 5: 7, 6: 0.25, 7: "word", 8: "[1]", 3: 0}
    of = b"".join(field(1, field(1, f"v{key}") + field(key, value)) for key, value in each.items())
    found = points(read(log(field(2, of + field(2, field(1, 4))))))
    assert [(point[2], point[4], point[5]) for point in found] == [
        ("v4", 4, True),
        ("v5", 4, 7),
        ("v6", 4, 0.25),
        ("v7", 4, "word"),
    ]


def test_what_a_run_is_told_of_itself_is_told_once() -> None:
    begun = run("a name", "why", ["base", "x"], lr=0.1, net={"layers": [1, 2]}, _wandb={})
    found = told(read(log(begun, begun, config(lr=0.2), config(lr=0.2))))
    assert found == [
        {"params": {"lr": "0.1", "net.layers": "[1, 2]"}},
        {"describes": "why"},
        {"tags": {"wandb.name": "a name", "wandb.tags": "base, x"}},
        {"params": {"lr": "0.2"}},
    ]


def test_of_the_summary_counts_what_the_script_sets() -> None:
    automatic = summary(loss=0.5, _step=0, _timestamp=1.0)
    runtime = summary(_runtime=3)
    found = points(read(log(history(0, loss=0.5), automatic, runtime, summary(best=3.5))))
    assert [(point[2], point[4], point[5]) for point in found] == [
        ("loss", 0, 0.5),
        ("best", None, 3.5),
    ]


def test_the_second_run_of_a_job_has_its_name() -> None:
    data = log(run("other", "why", lr=1), history(0, loss=1))
    found = told(read(data, WandbFile(2)))
    assert found[0] == {"params": {"other/lr": "1"}}
    assert found[1] == {"tags": {"other/wandb.name": "other", "other/wandb.notes": "why"}}
    assert found[2]["points"][0][1] == {"run": "other"}
    assert points(read(log(run(), history(0, loss=1)), WandbFile(2)))[0][1] == {"run": "run 2"}


@pytest.mark.parametrize(
    ("first", "continued", "wanted"),
    [(0, 20, [20, 21]), (0, 0, [0, 1]), (20, 20, [20, 21]), (18, 20, [18, 19])],
)
def test_a_run_that_goes_on_counts_from_where_it_was(
    first: int, continued: int, wanted: list[int]
) -> None:
    """Unless the script counts itself."""
    file = WandbFile(1, continued)
    found = points(read(log(history(first, a=1), history(first + 1, a=2)), file))
    assert [point[4] for point in found] == wanted
    assert file.last_step == wanted[-1]
    again = WandbFile(1, 99, file.first_step)
    assert [p[4] for p in points(read(log(history(first, a=1)), again))] == wanted[:1]


@given(
    st.lists(st.integers(1, 20_000), max_size=20),
    st.lists(st.integers(0, 50_000), min_size=1, max_size=6),
)
def test_however_it_grows_each_record_is_read_once(portions: list[int], sizes: list[int]) -> None:
    records = [history(step, a=1, b="x" * size) for step, size in enumerate(sizes)]
    data = log(run(), *records)
    file, at, size, steps = WandbFile(1), 0, 0, []
    for length in (*portions, len(data)):
        size = min(len(data), size + length)
        found = read(data[at:size], file, at)
        at += found.consumed
        steps += [point[4] for point in points(found) if point[2] == "a"]
    assert (steps, at) == ([*range(len(sizes))], len(data))


def test_behind_damage_it_goes_on_with_the_next_block() -> None:
    records = [history(step, a=step, filler="x" * 1000) for step in range(100)]
    data = bytearray(log(*records))
    data[BLOCK_BYTES + 50] ^= 1
    found = read(bytes(data))
    steps = [point[4] for point in points(found)]
    lost = [*range(steps[0], steps[-1] + 1)]
    assert steps[0] == 0
    assert steps[-1] == 99
    assert 20 < len(lost) - len(steps) < 40
    assert found.skipped["a record is damaged"] >= 1
    assert found.consumed == len(data)


def test_damage_at_its_end_may_be_half_written() -> None:
    whole = log(history(0, a=1), history(1, a=2))
    data = bytearray(whole)
    data[-1] ^= 1
    file = WandbFile(1)
    found = read(bytes(data), file)
    assert [point[4] for point in points(found)] == [0]
    assert found.skipped == {}
    rest = read(whole[found.consumed :], file, found.consumed)
    assert [point[4] for point in points(rest)] == [1]


def test_a_record_that_is_too_long_is_passed_over() -> None:
    long = history(1, a="x" * (2 * RECORD_BYTES_MAX))
    found = read(log(history(0, a=1), long, history(2, a=2)))
    assert [point[4] for point in points(found)] == [0, 2]
    assert found.skipped == {"a record is too long": 1}


def test_another_file_is_named_as_damaged() -> None:
    for data in (b"something else", b":W&B\xe1\xbe\x01 and more"):
        with pytest.raises(DamagedFile, match="no file of wandb, or of another version"):
            read(data)
    assert read(HEADER[:3]).consumed == 0


def test_a_value_that_is_no_json_costs_its_record() -> None:
    bad = field(2, field(1, field(1, "a") + field(16, "{")))
    found = read(log(bad, history(1, a=1)))
    assert found.skipped == {"a record is damaged": 1}
    assert len(points(found)) == 1


def test_what_stood_at_the_beginning_is_known_again() -> None:
    data = log(run("n", lr=1), history(0, a=1))
    file = WandbFile(2, first_step=0)
    file.prime(data)
    rest = log(run("n", lr=1), history(1, a=2), offset=len(data))
    found = told(read(rest, file, len(data)))
    assert [entry.keys() for entry in found] == [{"points"}]
    assert found[0]["points"][0][1] == {"run": "n"}
