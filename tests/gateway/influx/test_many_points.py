"""GROUP BY time over more points than are read: from what the store knows of each minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.gateway.influx import parser, queries, tagged_series
from scheduler.gateway.influx.tagged_series import SeriesView
from scheduler.gateway.series.series_store import SeriesStore
from tests.gateway.series.delivering import NOW, NOW_NS, SECOND, deliver

MINUTE = 60 * SECOND
START = NOW_NS // MINUTE * MINUTE - 10 * 3600 * SECOND
POINTS = 9_000  # a point each second
GROUPED = ' FROM "m" WHERE time >= {first} AND time < {last} GROUP BY time({length}), "job"'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeriesStore]:
    with SeriesStore(tmp_path_factory.mktemp("store")) as made:
        for job in ("a", "b"):
            rows: list[Any] = [
                ["m", {}, name, START + i * SECOND, i, value]
                for i in range(POINTS)
                for name, value in (("x", (i * 7919 % 1000) / 8), ("n", i * 7919 % 1000))
            ]
            parts = [{"points": rows[at : at + 5_000]} for at in range(0, len(rows), 5_000)]
            assert deliver(made, *parts, job=job).refused == 0
        made.tidy(NOW)
        late = [["m", {}, "x", START + (POINTS + i) * SECOND, POINTS + i, 1.5] for i in range(50)]
        deliver(made, {"points": late}, first=20, job="a")  # which is not packed yet
        yield made


def asked(store: SeriesStore, select: str, length: str, first: int, last: int) -> Any:
    text = select + GROUPED.format(first=first, last=last, length=length)
    (result,) = queries.answer(parser.parse(text), SeriesView(store), "any", NOW_NS)
    assert not result.error, result.error
    return [
        (each.tags, [[_rounded(value) for value in row] for row in each.rows])
        for each in result.series
    ]


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("function", ["count", "sum", "mean", "min", "max", "first", "last"])
@pytest.mark.parametrize("field", ["x", "n"])
@pytest.mark.parametrize("length", ["1m", "10m", "7m, 3m"])
@pytest.mark.parametrize(
    ("first", "last"),
    [(START, START + POINTS * SECOND), (START + 17 * SECOND + 1, START + 9_031 * SECOND)],
)
def test_the_answer_is_that_of_the_points(
    function: str,
    field: str,
    length: str,
    first: int,
    last: int,
    store: SeriesStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    select = f"SELECT {function}({field})"
    expected = asked(store, select, length, first, last)
    monkeypatch.setattr(tagged_series, "POINTS_MAX", 1_000)
    found = asked(store, select, length, first, last)
    assert found == expected
    assert len(found) == 2


def test_several_functions_and_both_directions(
    store: SeriesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = "SELECT mean(x) / 2 AS half, max(n) - min(n)"
    expected = asked(store, select, "30m", START, START + POINTS * SECOND)
    monkeypatch.setattr(tagged_series, "POINTS_MAX", 1_000)
    assert asked(store, select, "30m", START, START + POINTS * SECOND) == expected


@pytest.mark.parametrize(
    ("select", "length"),
    [("SELECT median(x)", "10m"), ("SELECT mean(x)", "90s"), ("SELECT derivative(mean(x))", "10m")],
)
def test_what_minutes_do_not_tell_is_refused_as_before(
    select: str, length: str, store: SeriesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagged_series, "POINTS_MAX", 1_000)
    text = select + GROUPED.format(first=START, last=START + POINTS * SECOND, length=length)
    (result,) = queries.answer(parser.parse(text), SeriesView(store), "any", NOW_NS)
    assert "more than 1,000 points" in (result.error or "")


def test_a_job_with_two_attempts_is_read_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes do not tell which steps a newer attempt has done again."""
    with SeriesStore(tmp_path) as made:
        for attempt in (1, 2):
            rows = [["m", {}, "x", START + i * SECOND, i, 1.0] for i in range(600)]
            deliver(made, {"points": rows}, attempt=attempt)
        assert asked(made, "SELECT count(x)", "10m", START, START + 600 * SECOND)
        monkeypatch.setattr(tagged_series, "POINTS_MAX", 1_000)
        text = "SELECT count(x)" + GROUPED.format(
            first=START, last=START + 600 * SECOND, length="10m"
        )
        (result,) = queries.answer(parser.parse(text), SeriesView(made), "any", NOW_NS)
        assert "more than 1,000 points" in (result.error or "")
