from __future__ import annotations

import pytest

from scheduler.presentation.call_errors import call_error_text


@pytest.mark.parametrize(
    ("status", "details", "told"),
    [
        ("NOT_FOUND", "no job matches 'x'", "no job matches 'x'"),
        ("INTERNAL", "", "INTERNAL"),
        ("DEADLINE_EXCEEDED", "x", "cannot reach scheduler at h:1: no answer in time"),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:1: Connection refused",
            "cannot reach scheduler at h:1: Connection refused",
        ),
        ("UNIMPLEMENTED", "x", "the scheduler at h:1 has a different version: x"),
    ],
)
def test_a_failed_call_is_told_in_one_line(status: str, details: str, told: str) -> None:
    assert call_error_text(status, details, "h:1") == told
