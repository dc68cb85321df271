from __future__ import annotations

import base64
import json

import pytest

from scheduler.api.paging import CURSOR_MAX, Paging, checked_search, is_found
from scheduler.api.status import State
from scheduler.core.errors import Rejected
from scheduler.core.model import Job, JobId, JobSpec

JOB = Job(JobId("60ce2fc7"), JobSpec("Résnet", "Ada", project="vision"), 1.0, priority=3)


def _cursor(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


@pytest.mark.parametrize("order", ["submitted", "name", "state", "priority", "project"])
@pytest.mark.parametrize("ascending", [False, True])
def test_a_cursor_leads_to_what_comes_after_it(order: str, ascending: bool) -> None:
    first = Paging.asked(order, ascending, "")
    key = first.key(JOB, State.QUEUED, 7)
    next_page = Paging.asked(order, ascending, first.cursor(key))
    assert next_page.after == key
    assert not next_page.comes_after(key)
    assert next_page.comes_after((key[0], 8)) is ascending
    assert next_page.comes_after((key[0], 6)) is not ascending


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "\0",
        _cursor(),
        _cursor("name", False, "a", 1),  # of another order
        _cursor("submitted", True, 1, 1),
        _cursor("submitted", False, "1", 1),
        _cursor("submitted", False, True, 1),
        _cursor("submitted", False, 1, 2**70),
        _cursor("submitted", False, 2**70, 1),
        _cursor("submitted", False, 1.5, 1),
        _cursor("submitted", False, 1, 1, 1),
        _cursor("submitted", False, [], {}),
        base64.urlsafe_b64encode(b"[" * 1000).decode(),
        base64.urlsafe_b64encode(b"\xff").decode(),
        "A" * (CURSOR_MAX + 4),
    ],
)
def test_a_cursor_that_is_none_of_this_list_is_refused(cursor: str) -> None:
    with pytest.raises(Rejected, match="is not of this list"):
        Paging.asked("", False, cursor)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(Rejected, match="order 'age; drop table jobs': is none of submitted, name"):
        Paging.asked("age; drop table jobs", False, "")


def test_a_search_finds_parts_in_either_case() -> None:
    for found in ("sne", "NET", "ada", "VIS", "2fc7", "é"):
        assert is_found(JOB, checked_search(found))
    for missing in ("É", "bob", "%"):
        assert not is_found(JOB, checked_search(missing))
    with pytest.raises(Rejected, match="search: has 201 characters, 200 at most"):
        checked_search("x" * 201)
