"""What broken clocks and false reports do to the learned speed of a job: little."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.core import learning
from scheduler.core.model import EpochEnded, EpochStarted, JobId, Measured, Profile
from tests.builders import NOW, after, job, share, view, with_run

A, PLACE = JobId("a"), "pretendedx1"
NOISE = 0.03  # of true epochs
NEAR = 1.07  # the learned speed is off by at most this factor, once two epochs were measured

true_times = st.floats(15.0, 1e5)  # shorter ones are within SLACK_SECONDS of much
noises = st.floats(1.0 - NOISE, 1.0 + NOISE)


def learned(true: list[float], told: list[float]) -> list[float]:
    """The mean after each epoch but the first, whose true and reported seconds these are."""
    waiting = job("a", 4000, max_epochs=len(true) + 2)
    start = with_run(waiting, share(4000), placement=PLACE, epoch_started=-1)
    now, means = NOW, []
    seen = after(view(start), EpochStarted(A, 1, 0), now=now)
    for number, (took, said) in enumerate(zip(true, told, strict=True), 1):
        now += took
        ended = EpochEnded(Profile(A, 1, number, epoch_seconds=said))
        seen = after(seen, ended, EpochStarted(A, 1, number), now=now)
        means += [measured.seconds for measured in seen.jobs[A].measured if number > 1]
    return means


@settings(max_examples=60, deadline=None)
@given(
    true_times,
    st.lists(st.tuples(noises, st.sampled_from([0.0, 10.0, 0.1, math.nan, 1.0])), max_size=30),
)
def test_nothings_tenfolds_and_tenths_in_any_order(
    seconds: float, epochs: list[tuple[float, float]]
) -> None:
    true = [seconds, *(seconds * noise for noise, _ in epochs)]
    told = [seconds, *(took * wrong for took, (_, wrong) in zip(true[1:], epochs, strict=True))]
    for mean in learned(true, told):
        assert seconds / NEAR <= mean <= NEAR * seconds


@settings(max_examples=60, deadline=None)
@given(true_times, st.lists(st.tuples(noises, st.floats(-2.0, 2.0)), min_size=2, max_size=10))
def test_clocks_that_jump_within_one_of_four_epochs(
    seconds: float, jumps: list[tuple[float, float]]
) -> None:
    true, told = [seconds] * 4, [seconds] * 4
    for noise, jump in jumps:
        true += [seconds * noise] * 4
        told += [seconds * noise] * 3 + [seconds * (noise + jump)]
    for mean in learned(true, told):
        assert seconds / NEAR <= mean <= NEAR * seconds


@settings(max_examples=60, deadline=None)
@given(true_times, st.lists(st.floats(-1.0, 0.5) | st.floats(-10.0, 10.0), max_size=30))
@example(1000.0, [-0.9] * 4)
@example(1000.0, [9.0] * 4)
def test_clocks_that_jump_within_each_epoch(seconds: float, jumps: list[float]) -> None:
    """It is believed if it is short by less than half and 5 s, or long by less than 5 s."""
    told = [seconds, *(seconds * (1.0 + jump) for jump in jumps)]
    for mean in learned([seconds] * len(told), told):
        assert 0.5 * seconds - 5.1 <= mean <= seconds + 5.1


@settings(max_examples=200)
@given(
    true_times,
    st.lists(st.tuples(noises, noises, noises, st.floats(0.01, 100.0)), min_size=1, max_size=8),
    st.integers(0, 3),
)
def test_one_of_four_epochs_may_have_any_length(
    seconds: float, fours: list[tuple[float, float, float, float]], turn: int
) -> None:
    """So it is where nothing but the report is known, whichever of the four it is."""
    shown = Measured(PLACE, (), seconds, 3, newest=(seconds,) * 3)
    for four in fours:
        for factor in (*four[turn:], *four[:turn]):
            shown = learning.add_epoch(shown, seconds * factor)
            assert seconds / NEAR <= shown.seconds <= NEAR * seconds


@given(true_times, st.integers(4, 40), st.booleans())
def test_tenfolds_and_tenths_in_turn_without_any_true_epoch(
    seconds: float, count: int, tenths_first: bool
) -> None:
    factors = (0.1, 10.0) if tenths_first else (10.0, 0.1)
    shown = Measured(PLACE, (), seconds, 0)
    for number in range(count):
        shown = learning.add_epoch(shown, seconds * factors[number % 2])
    assert math.isclose(shown.seconds, seconds, rel_tol=1e-6)


@given(true_times, st.floats(1.5, 20.0), st.booleans(), st.integers(4, 200), noises)
def test_a_lasting_change_is_followed_within_four_epochs(
    seconds: float, times: float, faster: bool, shown: int, noise: float
) -> None:
    changed = seconds / times if faster else seconds * times
    level = Measured(PLACE, (), seconds, shown, newest=(seconds,) * learning.NEWEST)
    for factor in (noise, 1.0, 1.0, noise):
        level = learning.add_epoch(level, changed * factor)
    assert changed / NEAR <= level.seconds <= NEAR * changed
    assert replace(level, seconds=0.0).epochs == shown + 4
