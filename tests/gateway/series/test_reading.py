from __future__ import annotations

import numpy as np

from scheduler.gateway.series.reading import NO_STEP, Points, joined, newest, no_points


def points(*rows: tuple[int, int, float]) -> Points:
    return Points(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
    )


def rows(found: Points) -> list[tuple[int, int, float]]:
    return list(zip(found.times.tolist(), found.steps.tolist(), found.values.tolist(), strict=True))


def test_the_newest_attempts_value_of_a_step_counts() -> None:
    first = points((1, 1, 0.1), (2, 2, 0.2), (3, 3, 0.3))
    second = points((10, 2, 2.2), (11, 3, 2.3))
    third = points((20, 3, 3.3))
    assert rows(newest({1: first, 2: second, 3: third})) == [
        (1, 1, 0.1),
        (10, 2, 2.2),
        (20, 3, 3.3),
    ]


def test_what_a_newer_attempt_has_not_reached_again_still_counts() -> None:
    first = points((1, 1, 0.1), (2, 5, 0.5), (3, 9, 0.9))
    second = points((10, 4, 2.4), (11, 6, 2.6))
    assert [row[1] for row in rows(newest({1: first, 2: second}))] == [1, 9, 4, 6]


def test_points_without_a_step_all_count() -> None:
    first, second = points((1, NO_STEP, 0.1)), points((2, NO_STEP, 0.2))
    assert len(newest({1: first, 2: second})) == 2


def test_parts_are_joined_by_time_and_then_by_step() -> None:
    found = joined([points((5, 2, 1.0), (7, 1, 2.0)), points((1, 1, 3.0), (5, 1, 4.0))])
    assert rows(found) == [(1, 1, 3.0), (5, 1, 4.0), (5, 2, 1.0), (7, 1, 2.0)]
    assert len(joined([no_points("float")])) == 0
