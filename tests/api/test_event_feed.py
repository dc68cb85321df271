from __future__ import annotations

import pytest

from scheduler.api.event_feed import Position, parse_cursor
from scheduler.core.errors import Rejected


def test_a_cursor_is_read_back() -> None:
    at = Position(7, "0123abcd", 12)
    assert parse_cursor(str(at)) == at
    assert parse_cursor("7") == Position(7, "", 0)
    assert parse_cursor("") is None


@pytest.mark.parametrize(
    "text", ["x", "-1", "1.2", "1.0123abcd", "1.0123ABCD.2", "9" * 19, "1.0123abcd.2\n", "\u0661"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="is neither a cursor nor the number of a fact"):
        parse_cursor(text)
