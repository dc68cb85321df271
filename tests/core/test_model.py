"""The types that do more than hold their fields."""

from __future__ import annotations

import pytest

from scheduler.core.model import GPUS_MAX, NO_GPU, Placement


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("t4x2", Placement("t4", 2)),
        ("t4x8/2", Placement("t4", 8, 2)),
        ("rtx3090x1", Placement("rtx3090", 1)),
        ("cpu", NO_GPU),
    ],
)
def test_a_placement_reads_as_it_is_written(text: str, meant: Placement) -> None:
    assert Placement.parse(text) == meant
    assert str(meant) == text


@pytest.mark.parametrize(
    "text", ["t4x1+a100x1", "t4x2/3", "t4x0", f"t4x{GPUS_MAX + 1}", "t4", "", "x2"]
)
def test_several_types_and_nonsense_are_no_placement(text: str) -> None:
    assert Placement.parse(text) is None
