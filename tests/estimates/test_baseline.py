"""Seconds of an epoch on one GPU, for a job that was not measured there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.core.model import Job, Measured
from scheduler.estimates.arrays import Floats
from scheduler.estimates.baseline import SD_SAID, SD_USUAL, SECONDS_UNKNOWN, Firsts, fit
from scheduler.estimates.measurements import read
from tests import builders

Shown = tuple[str, float]  # a type, and the seconds of an epoch on one such GPU


def job(
    name: str, *shown: Shown, kind: str = "", size: int = 1, hours: float = 0.0, gpus: int = 1
) -> Job:
    made = builders.job(name)
    measured = tuple(Measured(f"{type}x1", (), seconds, 3) for type, seconds in shown)
    spec = replace(
        made.spec,
        project=kind or name,
        training_set_size=size,
        hours_estimate=hours,
        gpus_min=gpus,
        gpus_max=gpus,
    )
    return replace(made, measured=measured, spec=spec)


def fitted(*jobs: Job) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Seconds and uncertainty [job, type], and the types; the last column is any other type."""
    measured = read(jobs, {})
    rows = measured.alone
    firsts = Firsts(rows.owner, rows.type, rows.seconds, np.full(len(rows.owner), 0.02))
    seconds, sd = fit(jobs, measured, firsts)
    return seconds, sd, measured.types


def test_what_was_measured_is_believed() -> None:
    seconds, sd, _ = fitted(job("a", ("t4", 30.0)))
    assert seconds[0, 0] == pytest.approx(30.0, rel=0.01)
    assert sd[0, 0] < 0.05


def test_a_faster_type_is_faster_for_a_job_that_was_never_there() -> None:
    both = [job(f"j{n}", ("t4", 40.0 * (n + 1)), ("a100", 10.0 * (n + 1))) for n in range(5)]
    seconds, sd, types = fitted(*both, job("new", ("t4", 100.0)))
    a100, t4 = types.index("a100"), types.index("t4")
    assert seconds[-1, a100] == pytest.approx(25.0, rel=0.1)
    assert sd[-1, a100] > sd[-1, t4], "it was not measured there"


def test_a_job_is_like_its_family_by_the_size_of_its_training_set() -> None:
    seconds, _, _ = fitted(
        job("a", ("t4", 100.0), kind="k", size=1000),
        job("b", ("t4", 100.0), kind="k", size=1000),
        job("new", kind="k", size=3000),
    )
    assert seconds[2, 0] == pytest.approx(300.0, rel=0.05)


def test_else_its_owner_is_believed_with_a_doubt() -> None:
    seconds, sd, _ = fitted(job("a", hours=1.0))  # of ten epochs
    assert seconds[0, 0] == pytest.approx(360.0)
    assert sd[0, 0] == pytest.approx(SD_SAID, rel=0.1)


def test_an_estimate_for_several_gpus_is_more_on_one() -> None:
    assert fitted(job("a", hours=1.0, gpus=4))[0][0, 0] > 360.0


def test_else_it_is_like_most_of_the_others_or_like_nothing_known() -> None:
    others = [job(f"j{n}", ("t4", 50.0)) for n in range(3)]
    seconds, sd, _ = fitted(*others, job("new"))
    assert seconds[-1, 0] == pytest.approx(50.0, rel=0.05)
    assert sd[-1, 0] == pytest.approx(SD_USUAL, rel=0.1)
    assert fitted(job("new"))[0][0, 0] == pytest.approx(SECONDS_UNKNOWN)


@pytest.mark.parametrize("hours", [-1.0, 1e-30, 1e30])
def test_an_absurd_estimate_is_none(hours: float) -> None:
    assert fitted(job("a", hours=hours))[0][0, 0] == pytest.approx(SECONDS_UNKNOWN)
