"""What is counted while points are taken in, against the points themselves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.gateway.series.reading import Points, newest
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.summaries import Summary, of_points, over_attempts
from tests.gateway.series.delivering import NOW_NS, SECOND, deliver, metric

NUMBERS = st.one_of(st.floats(), st.integers(-3, 3).map(float))
# Each logs at its own times, as trainings do.
LOGS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 9)), NUMBERS), min_size=1, max_size=12
)


def _deliver(store: SeriesStore, log: list[tuple[int | None, float]], attempt: int) -> None:
    at = NOW_NS - (10 - attempt) * 100 * SECOND
    points = [metric("loss", value, step, at + i * SECOND) for i, (step, value) in enumerate(log)]
    half = len(points) // 2
    deliver(store, {"points": points[:half]}, {"points": points[half:]}, attempt=attempt)


def _by_attempt(store: SeriesStore) -> tuple[dict[int, Summary], dict[int, Points]]:
    told = store.summaries(["a"])["a"].series
    points = store.points([series.id for series, _ in told])
    return (
        {series.attempt: summary for series, summary in told},
        {series.attempt: points[series.id] for series, _ in told},
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(LOGS, min_size=1, max_size=3))
@example([[*[(None, 0.0)] * 8, (0, 0.0)]])  # of equal ones, the first counts
def test_a_summary_is_what_the_points_come_to(
    tmp_path_factory: pytest.TempPathFactory, logs: list[list[tuple[int | None, float]]]
) -> None:
    with SeriesStore(tmp_path_factory.mktemp("series")) as store:
        for number, log in enumerate(logs):
            _deliver(store, log, number + 1)
        summaries, points = _by_attempt(store)
    for attempt, summary in summaries.items():
        assert summary == of_points(points[attempt])
    whole = over_attempts(summaries)
    exact = of_points(newest(points))
    if whole is not None:
        for name in ("least", "greatest", "last"):
            assert getattr(whole, name) == getattr(exact, name), name


def test_a_table_has_what_each_job_has_told(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        deliver(
            store,
            {"params": {"lr": 0.1, "net": {"depth": 3}}},
            {"tags": {"team": "vision"}},
            {"describes": "a try"},
            {"points": [metric("loss", 0.5, 1), metric("loss", math.nan, 2, NOW_NS + 1)]},
            {"points": [metric("phase", "warm", 1), metric("done", True, 1)]},
        )
        told = store.summaries(["a", "b"])
    assert told["b"].series == []
    assert told["a"].params == {"lr": "0.1", "net": '{"depth": 3}'}
    assert (told["a"].tags, told["a"].description) == ({"team": "vision"}, "a try")
    found = {series.field: summary for series, summary in told["a"].series}
    assert (found["loss"].points, found["loss"].last, found["loss"].last_step) == (2, None, 2)
    assert (found["loss"].least, found["loss"].greatest_step) == (0.5, 1)
    assert (found["phase"].last, found["phase"].least) == ("warm", None)
    assert (found["done"].last, found["done"].greatest) == (1, 1)


def test_what_a_newer_attempt_did_again_is_left_to_the_points(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        _deliver(store, [(0, 3.0), (1, 2.0), (2, 0.5)], 1)
        _deliver(store, [(2, 1.0), (3, 0.9)], 2)
        summaries, points = _by_attempt(store)
        assert over_attempts(summaries) is None, "0.5 was at a step that was done again"
        assert of_points(newest(points)).least == 0.9
        _deliver(store, [(4, 0.7)], 3)
        assert over_attempts(_by_attempt(store)[0]) is None
