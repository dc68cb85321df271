from __future__ import annotations

import pytest

from scheduler.presentation.cursor import Cursor


@pytest.mark.parametrize("cursor", [Cursor(7, "0123abcd", 12), Cursor(7), Cursor(0)])
def test_a_cursor_is_read_back(cursor: Cursor) -> None:
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", "x", "1.2", "-1", "1.zzzzzzzz.0", "9" * 30, "1.0123abcd.", "\u0661"]
)
def test_what_is_no_cursor_is_not_read(text: str) -> None:
    assert Cursor.parse(text) is None


def test_a_place_reaches_another_only_if_it_lacks_nothing() -> None:
    place = Cursor(7, "0123abcd", 12)
    assert place.reaches(place)
    assert place.reaches(Cursor(6, "0123abcd", 12))
    assert not place.reaches(Cursor(6, "0123abcd", 13))
    assert not place.reaches(Cursor(8, "0123abcd", 1))
    assert not place.reaches(Cursor(1, "deadbeef", 1))
