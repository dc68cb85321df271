from __future__ import annotations

from zoneinfo import ZoneInfo

import numpy as np
import pytest

from scheduler.gateway.influx.syntax import MAX_TIME, MIN_TIME
from scheduler.gateway.influx.windows import Windows, moment_text

SECOND, HOUR = 10**9, 3600 * 10**9
BERLIN = ZoneInfo("Europe/Berlin")
SUMMER_BEGINS = 1_585_443_600 * SECOND  # 2020-03-29T01:00:00Z


def test_without_a_length_there_is_one_window() -> None:
    assert Windows(5, 9).window(7) == (5, 10)
    assert Windows(5, 9).starts(np.array([6, 8])).tolist() == [5, 5]


def test_windows_begin_at_multiples_of_their_length_and_offset() -> None:
    windows = Windows(MIN_TIME, MAX_TIME, 10, 3)
    assert [windows.window(time) for time in (2, 3, 12, 13, -8)] == [
        (-7, 3),
        (3, 13),
        (3, 13),
        (13, 23),
        (-17, -7),
    ]
    assert windows.starts(np.array([2, 3, 12, 13, -8])).tolist() == [-7, 3, 3, 13, -17]


def test_a_day_in_a_zone_may_have_23_hours() -> None:
    windows = Windows(MIN_TIME, MAX_TIME, 24 * HOUR, 0, BERLIN)
    start, end = windows.window(SUMMER_BEGINS)
    assert (start, end) == (SUMMER_BEGINS - 2 * HOUR, SUMMER_BEGINS + 21 * HOUR)
    assert windows.window(end - 1) == (start, end)
    assert windows.window(start) == (start, end)


@pytest.mark.parametrize(
    ("time", "zone", "text"),
    [
        (0, None, "1970-01-01T00:00:00Z"),
        (1_500_000_000, None, "1970-01-01T00:00:01.5Z"),
        (1, None, "1970-01-01T00:00:00.000000001Z"),
        (-1, None, "1969-12-31T23:59:59.999999999Z"),
        (SUMMER_BEGINS, BERLIN, "2020-03-29T03:00:00+02:00"),
        (0, ZoneInfo("UTC"), "1970-01-01T00:00:00Z"),
    ],
)
def test_moments_are_shown_with_the_digits_they_need(
    time: int, zone: ZoneInfo | None, text: str
) -> None:
    assert moment_text(time, zone) == text
