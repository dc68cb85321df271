"""Assumptions about jobs for which a trace has too little information."""

from __future__ import annotations

import pytest

from simulator.traces.assumptions import (
    APPLICATIONS,
    EPOCH_SECONDS_MAX,
    EPOCH_SECONDS_MIN,
    EPOCHS,
    GAVEL_MEMORY_MIB,
    MIB_STEP,
    epochs_of,
    estimate_mib,
)


@pytest.mark.parametrize(
    ("seconds", "epochs"),
    [
        (0.0, 1),
        (10.0, 1),
        (EPOCH_SECONDS_MIN * 3, 3),
        (EPOCHS * EPOCH_SECONDS_MIN, EPOCHS),
        (EPOCHS * 600.0, EPOCHS),
        (EPOCHS * EPOCH_SECONDS_MAX * 5, EPOCHS * 5),
    ],
)
def test_a_training_reports_twenty_epochs_but_none_too_short_or_too_long(
    seconds: float, epochs: int
) -> None:
    assert epochs_of(seconds) == epochs


@pytest.mark.parametrize(("takes", "said"), [(1, 512), (512, 512), (513, 1024), (1000.5, 1024)])
def test_people_round_their_memory_up(takes: float, said: int) -> None:
    assert estimate_mib(takes) == said


def test_every_application_fits_the_smallest_gpu_that_ran_it() -> None:
    for application in APPLICATIONS.values():
        assert 0 < application.memory_mib < 11 * 1024
        assert application.memory_mib % MIB_STEP == 0
        assert 0.0 < application.gpu_util <= 1.0


def test_a_larger_batch_never_takes_less_memory() -> None:
    sizes: dict[str, list[tuple[int, int]]] = {}
    for model, mib in GAVEL_MEMORY_MIB.items():
        name, _, batch = model.rstrip(")").partition(" (batch size ")
        sizes.setdefault(name, []).append((int(batch or 0), mib))
    for batches in sizes.values():
        by_batch = [mib for _, mib in sorted(batches)]
        assert by_batch == sorted(by_batch)
