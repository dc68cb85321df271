"""What the lines of a training tell of what its log has kept."""

from __future__ import annotations

import pytest

from benchmarks.kept_logs import LINE_BYTES, Kept, read

LIBRARY = "[KUBE_API_LIBRARY] the scheduler stops this run after epoch 14 of 20: asked to stop"


def line(number: int) -> str:
    return f"{number:09d} ".ljust(LINE_BYTES - 1, "=")


def gap(lines: float) -> str:
    return f"[epoch-scheduler] {int(lines * LINE_BYTES)} bytes of the output are not kept"


WHOLE = [line(1), line(2)]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ([], Kept(0, 0, 0, False, False, 0, 0)),
        (WHOLE, Kept(1, 2, 0, False, False, 0, 0)),
        ([line(1), LIBRARY, line(2)], Kept(1, 2, 0, False, False, 0, 0)),
        ([line(1), gap(7), line(9)], Kept(1, 9, 1, False, False, 0, 0)),
        (
            [line(1), line(2)[:64], gap(7), line(9)[64:], line(10)],
            Kept(1, 10, 1, False, False, 0, 0),
        ),
        ([gap(8), line(9)], Kept(9, 9, 1, True, False, 0, 0)),
        ([line(1), gap(8)], Kept(1, 1, 1, False, True, 0, 0)),
        ([gap(8)], Kept(0, 0, 1, True, True, 0, 0)),
        ([*WHOLE, line(3)[:64]], Kept(1, 2, 0, False, False, 0, 0)),
        # And what must not be:
        ([line(2)], Kept(2, 2, 0, False, False, 1, 0)),
        ([line(1), line(9)], Kept(1, 9, 0, False, False, 1, 0)),
        ([line(1), gap(3), line(9)], Kept(1, 9, 1, False, False, 1, 0)),
        ([line(1), gap(70), line(9)], Kept(1, 9, 1, False, False, 1, 0)),
        ([line(2), line(1)], Kept(2, 1, 0, False, False, 2, 1)),
        ([line(1)[:64], *WHOLE], Kept(1, 2, 0, False, False, 0, 1)),
        ([line(1), gap(7), "\0" * 32 + line(8)[32:], line(9)], Kept(1, 9, 1, False, False, 0, 1)),
    ],
)
def test_what_a_log_has_kept(lines: list[str], kept: Kept) -> None:
    assert read("".join(f"{each}\n" for each in lines).encode()) == kept
