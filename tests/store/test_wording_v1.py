"""What the recorded journals (tests/simulator/data) do not hold of the old wording."""

from __future__ import annotations

import pytest

from scheduler.core.model import JobId, Reason, Waiting, WholeGpus
from scheduler.store.wording_v1 import reasons

A = JobId("a")
TURN = "what is free is kept for"


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        (Reason(Waiting.GPUS, there=()), "there is no GPU"),
        (
            Reason(Waiting.MEMORY, jobs=("b", "c")),
            "is to share with b and c, where there is no room yet",
        ),
        (Reason(Waiting.TURN), "others come first"),
        (Reason(Waiting.TURN, whole=WholeGpus.POLICY), f"{TURN} others"),
        (Reason(Waiting.TURN, jobs=("b", "c", "d"), jobs_more=2), f"{TURN} b, c and 3 others"),
    ],
)
def test_reasons_are_worded_as_they_were(reason: Reason, detail: str) -> None:
    assert reasons({A: reason}, "gpu_sharing") == {A: {"kind": reason.kind, "detail": detail}}


def test_fifo_sharing_named_all_jobs() -> None:
    told = reasons({A: Reason(Waiting.TURN, jobs=("b", "c", "d", "e"))}, "fifo_sharing")
    assert told[A]["detail"] == f"{TURN} b, c, d, e"
