"""Places for streams, of all users and of one."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from scheduler.api.seats import Seats
from scheduler.core.errors import Busy


def test_a_user_has_a_share_of_the_places() -> None:
    seats = Seats(most=4, most_of_user=2)
    with ExitStack() as taken:
        for _ in range(2):
            taken.enter_context(seats.taken_by("bob"))
        with (
            pytest.raises(Busy, match="bob has 2 streams of jobs and logs"),
            seats.taken_by("bob"),
        ):
            pass
        taken.enter_context(seats.taken_by("ada"))
        taken.enter_context(seats.taken_by("eve"))
        with pytest.raises(Busy, match="at most 4 at a time"), seats.taken_by("ada"):
            pass
    with seats.taken_by("bob"):
        pass
