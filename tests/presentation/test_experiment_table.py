"""The table of experiments: columns, search, order, pages."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.presentation import experiment_table, records
from scheduler.presentation.experiment_table import JobRow, SearchError, ordered, page_of, search
from scheduler.v1 import scheduler_pb2 as pb

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.floats(), st.text("ab", max_size=2)
)
ROWS = st.lists(VALUES, max_size=8).map(
    lambda values: [JobRow(str(n), {"x": value}, "") for n, value in enumerate(values)]
)


def made(name: str, params: dict[str, str] | None = None, **metrics: float) -> JobRow:
    told = {key: {"last": each, "min": each, "max": each} for key, each in metrics.items()}
    job = records.job(pb.Job(id=f"id-{name}", spec=pb.JobSpec(name=name, user="ada")))
    return experiment_table.row(job, params or {}, {"team": "vision"}, "A Note", told)


def test_columns_are_told_with_how_many_jobs_have_them() -> None:
    rows = [made("a", {"lr": "1"}, loss=1.0), made("b", {"lr": "2"}), made("c")]
    known = {each["name"]: (each["jobs"], each["different"]) for each in _known(rows)}
    assert known["param.lr"] == (2, 2)
    assert known["last.loss"] == known["min.loss"] == (1, 1)
    assert known["tag.team"] == (3, 1)


def _known(rows: list[JobRow]) -> list[Any]:
    return experiment_table.columns(rows)


def test_columns_that_say_nothing_are_not_chosen() -> None:
    rows = [made("a", {"lr": "1", "seed": "7"}, loss=1.0), made("b", {"lr": "2", "seed": "7"})]
    chosen = experiment_table.choose(_known(rows), len(rows))
    assert chosen == ["param.lr", "last.loss", "submitted_at"]
    assert experiment_table.choose([], 0) == ["submitted_at"]


def test_terms_are_all_to_hold() -> None:
    rows = [made("Fast one", {"lr": "0.1"}, loss=0.5), made("slow", {"lr": "0.01"}, loss=0.2)]
    for text, names in {
        "": ["Fast one", "slow"],
        "FAST": ["Fast one"],
        '"fast one"': ["Fast one"],
        '"one fast"': [],
        "a note": ["Fast one", "slow"],
        "id-slow": ["slow"],
        "lr=0.10": ["Fast one"],
        "lr!=0.1": ["slow"],
        "loss<0.3 slow": ["slow"],
        "loss>=0.2": ["Fast one", "slow"],
        "min.loss>0.2 lr<=1": ["Fast one"],
        "name~FAS": ["Fast one"],
        "team=vision": ["Fast one", "slow"],
        "lr<": [],  # not typed to its end
    }.items():
        assert [row.values["name"] for row in search(rows, text)] == names, text


@pytest.mark.parametrize("text", ["depht=3", "loss<much", "loss<true"])
def test_a_condition_that_cannot_hold_is_told(text: str) -> None:
    with pytest.raises(SearchError):
        search([made("a", loss=1.0)], text)


@given(ROWS, st.text())
def test_no_text_breaks_a_search(rows: list[JobRow], text: str) -> None:
    with suppress(SearchError):
        assert set(map(id, search(rows, text))) <= set(map(id, rows))


@given(ROWS, st.booleans())
def test_jobs_without_a_value_come_last(rows: list[JobRow], ascending: bool) -> None:
    found = [row.values["x"] for row in ordered(rows, "x", ascending)]
    assert len(found) == len(rows)
    there = [value for value in found if value is not None]
    assert found == there + [None] * (len(found) - len(there))
    numbers = [value for value in there if isinstance(value, int | float) and value == value]
    assert numbers == sorted(numbers, reverse=not ascending)


@given(ROWS, st.integers(1, 3))
def test_pages_have_every_row_once(rows: list[JobRow], limit: int) -> None:
    found, cursor = page_of(rows, "", limit)
    while cursor:
        more, cursor = page_of(rows, cursor, limit)
        found += more
    assert found == rows


def test_a_page_goes_on_where_the_last_one_ended_although_jobs_have_come() -> None:
    rows = [JobRow(name, {}, "") for name in "abcd"]
    _, cursor = page_of(rows, "", 2)
    assert [row.id for row in page_of([JobRow("new", {}, ""), *rows], cursor, 2)[0]] == ["c", "d"]
    assert [row.id for row in page_of(rows[2:], cursor, 2)[0]] == []
    assert page_of(rows, "nonsense", 1)[0] == rows[:1]
