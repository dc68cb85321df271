"""Intervals hold what they promise, wherever they were learned."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.core.model import Job, JobId, Outcome
from scheduler.outlook.calibration import Calibration
from scheduler.outlook.forecast import ForecastCase, Guess
from scheduler.outlook.prospect import Interval
from tests import builders

SPAN = 10_000.0
GUESS = Guess(ForecastCase.SETTLED, ends_at=SPAN, leaves_at=SPAN)


def ended(at: float, outcome: Outcome = Outcome.SUCCEEDED) -> Callable[[JobId], Job | None]:
    return lambda job_id: replace(builders.job(job_id), outcome=outcome, ended_at=at)


def ends(calibration: Calibration, guess: Guess = GUESS) -> Interval:
    found = calibration.forecast(guess, 0.0).ends_at
    assert found is not None
    return found


def taught(factor: Callable[[], float], times: int = 300) -> Calibration:
    calibration = Calibration()
    for _ in range(times):
        calibration.note({JobId("a"): GUESS}, 0.0, ended(0.0))
        calibration.note({}, SPAN, ended(SPAN * factor()))
    return calibration


def test_before_anything_has_come_it_says_so_with_a_wide_interval() -> None:
    interval = ends(Calibration())
    assert interval.low < 0.9 * SPAN < interval.middle < 1.1 * SPAN < interval.high


@pytest.mark.parametrize("deviation", [0.01, 0.1, 1.0])
def test_four_of_five_are_inside(deviation: float) -> None:
    chance = random.Random(7)
    calibration = taught(lambda: math.exp(chance.gauss(0.0, deviation)))
    interval = ends(calibration)
    came = [SPAN * math.exp(chance.gauss(0.0, deviation)) for _ in range(2000)]
    assert 0.72 < sum(interval.low <= at <= interval.high for at in came) / 2000 < 0.88


def test_jobs_that_are_always_late_are_expected_late() -> None:
    interval = ends(taught(lambda: 1.5))
    assert interval.middle == pytest.approx(1.5 * SPAN, rel=0.01)


def test_another_one_goes_on_where_it_was() -> None:
    late = taught(lambda: 1.5)
    again = Calibration(late.offs)
    assert ends(again) == ends(late)
    assert again.offs == late.offs


def test_each_situation_learns_for_itself() -> None:
    late = taught(lambda: 1.5)
    fresh = Calibration()
    guess = replace(GUESS, situation=ForecastCase.QUEUED)
    assert ends(late, guess) == ends(fresh, guess)


def test_what_did_not_succeed_teaches_nothing_of_ends() -> None:
    calibration = Calibration()
    before = ends(calibration)
    for _ in range(100):
        calibration.note({JobId("a"): GUESS}, 0.0, ended(0.0))
        calibration.note({}, 1.0, ended(1.0, Outcome.CANCELLED))
    assert ends(calibration) == before


def test_a_job_that_is_not_found_yet_is_waited_for() -> None:
    calibration = Calibration()
    for _ in range(300):
        calibration.note({JobId("a"): GUESS}, 0.0, lambda _: None)
        calibration.note({}, 1.0, lambda _: None)
    calibration.note({}, SPAN, ended(3 * SPAN))
    assert ends(calibration).high > ends(Calibration()).high


def test_of_a_long_job_old_and_new_guesses_are_kept_and_not_all() -> None:
    calibration = taught(lambda: 1.0, times=20)
    for at in range(1000):
        calibration.note({JobId("a"): replace(GUESS, ends_at=SPAN + at)}, float(at), ended(0.0))
    calibration.note({}, SPAN, ended(3 * SPAN))
    assert ends(calibration).middle == pytest.approx(SPAN, rel=0.01), "it is but one job"


def test_starts_are_learned_from_too() -> None:
    calibration = Calibration()
    guess = Guess(ForecastCase.QUEUED, starts_at=SPAN)
    job = replace(builders.job("a"), started_at=2 * SPAN, ended_at=3 * SPAN, outcome=Outcome.FAILED)
    for _ in range(300):
        calibration.note({job.id: guess}, 0.0, lambda _: None)
        calibration.note({}, 3 * SPAN, lambda _: job)
    starts = calibration.forecast(guess, 0.0).starts_at
    assert starts is not None
    assert starts.middle == pytest.approx(2 * SPAN, rel=0.01)


def test_nothing_comes_before_now() -> None:
    calibration = Calibration()
    interval = calibration.forecast(replace(GUESS, ends_at=5.0), 0.0).ends_at
    assert interval is not None
    assert 0.0 <= interval.low <= interval.middle <= interval.high


def test_what_cannot_be_guessed_is_not_told() -> None:
    told = Calibration().forecast(Guess(ForecastCase.NEW), 0.0)
    assert (told.starts_at, told.ends_at) == (None, None)


def test_a_job_that_waits_for_named_jobs_starts_when_they_have_ended() -> None:
    calibration = Calibration()
    waits = Guess(ForecastCase.NEXT, starts_at=10.0, ends_at=500.0)
    early = replace(GUESS, ends_at=5.0, leaves_at=5.0)
    after = calibration.after(waits, [GUESS, early], 0.0)
    assert after.starts_at == ends(calibration)
    assert after.starts_at is not None
    assert after.ends_at is not None
    assert after.ends_at.middle - after.starts_at.middle == pytest.approx(490.0, rel=0.1)
    assert after.ends_at.low > after.starts_at.low + 200
    unseen = replace(waits, ends_at=None)
    assert calibration.after(unseen, [GUESS], 0.0).ends_at is None
    moves = replace(GUESS, situation=ForecastCase.MOVES, leaves_at=60.0)
    assert calibration.after(waits, [moves], 0.0) == calibration.forecast(waits, 0.0)
