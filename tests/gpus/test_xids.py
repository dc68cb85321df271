"""NVIDIA's catalogue, as far as it decides whether a GPU is used."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.gpus.xids import Verdict, describe, judge


@pytest.mark.parametrize(
    ("xid", "verdict"),
    [
        (13, Verdict.OF_PROGRAM),  # an illegal instruction or address
        (31, Verdict.OF_PROGRAM),  # a page fault
        (94, Verdict.OF_PROGRAM),  # a memory error that ended only the program
        (43, Verdict.IGNORED),
        (45, Verdict.IGNORED),
        (63, Verdict.IGNORED),  # a row was replaced, as it should be
        (92, Verdict.IGNORED),
        (154, Verdict.IGNORED),
        (54, Verdict.DOUBTFUL),
        (74, Verdict.DOUBTFUL),
        (145, Verdict.DOUBTFUL),
        (1, Verdict.DOUBTFUL),  # the catalogue has no use of it
        (4711, Verdict.DOUBTFUL),  # nor this one at all
        (48, Verdict.NEEDS_RESET),
        (64, Verdict.NEEDS_RESET),
        (95, Verdict.NEEDS_RESET),
        (109, Verdict.NEEDS_RESET),
        (119, Verdict.NEEDS_RESET),
        (79, Verdict.LOST),
    ],
)
def test_each_kind_of_error_has_its_verdict(xid: int, verdict: Verdict) -> None:
    assert judge(xid) is verdict


def test_all_of_the_catalogue_is_judged() -> None:
    """NVIDIA asks to restart the program in 48 cases, to ignore 21 and to reset in 14; what it
    gives a procedure for, or nothing yet, was sorted by us."""
    found = Counter(judge(xid) for xid in range(1, 173))
    assert found[Verdict.OF_PROGRAM] == 48
    assert found[Verdict.IGNORED] == 21 + 7
    assert found[Verdict.NEEDS_RESET] == 14 + 6
    assert found[Verdict.LOST] == 1


def test_what_takes_a_gpu_out_of_use_says_why_and_what_helps() -> None:
    assert describe(62) == "XID 62: its micro-controller halted; it needs a reset"
    assert describe(79) == "XID 79: it has fallen off the bus"
    assert describe(150) == "XID 150: an error of NVLink"
    assert "is to be looked up" in describe(4711)
