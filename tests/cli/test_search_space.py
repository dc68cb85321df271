"""Ranges and lists of which a search chooses."""

from __future__ import annotations

import re

import pytest

from cli.command import UsageError
from cli.search_space import ValueRange, space_of
from tests.cli.test_search import AXES


def test_ranges_and_lists_are_read() -> None:
    assert space_of(AXES) == {
        "lr": ValueRange(1e-5, 1e-1, log=True, whole=False),
        "layers": ValueRange(1.0, 8.0, log=False, whole=True),
        "opt": ["sgd", "adam"],
    }


@pytest.mark.parametrize(
    "text", ["1..1", "2..1", "a..b", "1..2:lin", "0..1:log", "-1..1:log", "1.."]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--sweep lr={text}: ")):
        space_of([("lr", [text])])
