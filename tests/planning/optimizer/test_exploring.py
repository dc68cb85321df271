"""Which job of each kind may try a configuration in which it was never measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scheduler.core.model import Job, Measured, Placement
from scheduler.estimates.arrays import Floats
from scheduler.estimates.speed import Speeds
from scheduler.planning.optimizer.exploring import Known, find_tries, find_trying
from tests import builders

ON = [Placement("a100", 4), *(Placement("t4", n, -(-n // 4)) for n in (1, 2, 4, 8))]
NOW = 3  # t4x4


def job(name: str, shown: Sequence[tuple[str, float]], kind: str = "", epochs: int = 3) -> Job:
    made = builders.job(name)
    measured = tuple(Measured(where, (), seconds, epochs) for where, seconds in shown)
    return replace(made, measured=measured, spec=replace(made.spec, project=kind or name))


WARM_UP = Measured("t4x8/2", (), 500.0, 0)
SCALES = (("t4x1", 1000.0), ("t4x4", 260.0))


def gains(jobs: Sequence[Job], now: Sequence[int], left: float = 100.0) -> Floats:
    """[job, choice] by how much a try is better than what is expected there."""
    speeds = Speeds(jobs, {})
    seconds = speeds.estimate(ON)
    epochs = np.full(len(jobs), left)
    running = [(row, ON[at]) for row, at in enumerate(now) if at >= 0]
    rows = np.array([row for row, _ in running], np.intp)
    trying = find_trying(rows, [place for _, place in running], speeds)
    found = find_tries(
        seconds,
        Known.of(seconds, speeds.met(np.arange(len(jobs)), ON)),
        epochs,
        np.full(len(jobs), 20.0),
        trying,
        np.full(seconds.shape, True),
        np.arange(len(jobs)),
        ON,
        speeds,
    )
    return seconds - found.seconds


def test_a_job_may_try_what_it_was_never_measured_on() -> None:
    (found,) = gains([job("a", SCALES)], [NOW]) > 0.0
    assert found.tolist() == [True, False, False, False, True]


def test_a_job_that_was_stopped_for_a_try_still_tries() -> None:
    assert (gains([job("a", SCALES)], [-1]) == gains([job("a", SCALES)], [NOW])).all()


def test_a_job_that_was_never_measured_or_is_nearly_done_tries_nothing() -> None:
    assert not gains([job("a", [])], [-1]).any()
    assert not gains([job("a", SCALES)], [NOW], left=4.0).any()


def test_one_of_a_kind_tries_and_that_is_the_one_with_the_most_work_left() -> None:
    longer = job("b", [(where, 2 * seconds) for where, seconds in SCALES], kind="k")
    found = gains([job("a", SCALES, kind="k"), longer, job("c", SCALES)], [NOW] * 3) > 0.0
    assert found.any(axis=1).tolist() == [False, True, True]


def test_none_of_a_kind_tries_while_one_is_where_it_was_not_measured() -> None:
    both = [job("a", SCALES, kind="k"), job("b", SCALES, kind="k")]
    assert not gains(both, [NOW, 4]).any()


def test_what_one_of_the_kind_has_tried_no_other_tries() -> None:
    been = job("b", [*SCALES, ("t4x8/2", 900.0)], kind="k")
    found = gains([job("a", SCALES, kind="k"), been], [NOW, NOW]) > 0.0
    assert not found[:, 4].any()


def test_a_job_that_has_left_again_after_one_epoch_does_not_come_back() -> None:
    hasty = replace(job("a", SCALES), measured=(*job("a", SCALES).measured, WARM_UP))
    assert not gains([hasty], [NOW])[0, 4]


def test_what_more_gpus_did_not_bring_fewer_do_not_either() -> None:
    found = gains([job("a", [("t4x1", 1000.0), ("t4x4", 1000.0)])], [1]) > 0.0
    assert not found[:, 1:4].any()
