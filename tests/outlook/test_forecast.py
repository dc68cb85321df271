"""Guesses of when jobs start and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.model import After, Job, JobId, Measured, RunPhase, View
from scheduler.outlook.current_speeds import CurrentSpeeds
from scheduler.outlook.forecast import ForecastCase, Guess, guesses
from tests import builders

NOW = builders.NOW
KEY = "pretendedx1"


def seen(job: Job, seconds: float, placement: str = KEY) -> Job:
    return replace(job, measured=(*job.measured, Measured(placement, (), seconds, 3)))


def runs(
    name: str,
    gpu: int = 0,
    seconds: float = 60.0,
    done: int = 5,
    **fields: Any,  # any field of Run
) -> Job:
    """For five epochs more, one of which has just begun."""
    waiting = seen(builders.job(name, epochs_done=done), seconds)
    shares = builders.share(gpu=gpu)
    return builders.with_run(waiting, shares, **{"placement": KEY, "epoch_at": NOW, **fields})


def guessed(view: View, *, by_memory: bool = False) -> dict[str, Guess]:
    made = guesses(CurrentSpeeds(view), NOW, builders.RULES, by_memory)
    return {str(job_id): guess for job_id, guess in made.items()}


def test_a_run_ends_when_what_is_left_is_done_at_the_pace_that_was_measured() -> None:
    guess = guessed(builders.view(runs("a")))["a"]
    assert guess == Guess(ForecastCase.SETTLED, None, NOW + 300, NOW + 300, 60.0)


def test_the_epoch_that_it_is_in_has_begun_before() -> None:
    view = builders.view(runs("a", epoch_at=NOW - 20))
    assert guessed(view)["a"].ends_at == NOW + 280


def test_an_epoch_that_takes_longer_than_it_should_is_nearly_over() -> None:
    view = builders.view(runs("a", epoch_at=NOW - 1000))
    assert guessed(view)["a"].ends_at == NOW + 240


def test_a_run_that_is_starting_has_its_restart_before_it() -> None:
    job = replace(runs("a", phase=RunPhase.STARTING, epoch_at=None), restart_seconds=50.0)
    assert job.run is not None
    view = builders.view(replace(job, run=replace(job.run, started_at=NOW - 10)))
    assert guessed(view)["a"].ends_at == NOW + 300 + 40


def test_of_a_job_like_no_measured_one_nothing_is_forecast() -> None:
    other = builders.job("a")
    other = replace(other, spec=replace(other.spec, project="of another kind"))
    unseen = builders.with_run(other, builders.share(), placement=KEY)
    waiting = seen(builders.job("b"), 60.0)
    made = guessed(builders.view(unseen, waiting))
    assert made["a"].ends_at is None
    assert made["b"].starts_at is None, "it is not known when its GPU will be free"


def test_a_job_is_expected_to_be_like_others_of_its_kind() -> None:
    like = builders.with_run(builders.job("b"), builders.share(gpu=1), placement=KEY, epoch_at=NOW)
    made = guessed(builders.view(runs("a"), like, nodes=[builders.node(2)]))
    assert made["b"].ends_at == pytest.approx(NOW + 600, rel=0.02)
    assert made["b"].situation is ForecastCase.NEW


def test_what_its_owner_said_is_better_than_nothing() -> None:
    job = builders.with_run(
        builders.job("a", max_epochs=10), builders.share(), placement=KEY, epoch_at=NOW
    )
    told = replace(job, spec=replace(job.spec, hours_estimate=2.0))
    assert guessed(builders.view(told))["a"].ends_at == pytest.approx(NOW + 7200, rel=0.01)


@pytest.mark.parametrize(("whole", "waits"), [(False, False), (True, True)])
def test_what_fits_beside_another_waits_where_a_gpu_is_given_to_one(
    whole: bool, waits: bool
) -> None:
    there = builders.node()
    there = replace(there, gpus=tuple(replace(gpu, whole=whole) for gpu in there.gpus))
    view = builders.view(*(seen(builders.job(name, 1000), 30.0) for name in "ab"), nodes=[there])
    made = guessed(view, by_memory=True)
    assert made["a"].starts_at == NOW
    assert (made["b"].starts_at != NOW) == waits


def test_a_waiting_job_starts_when_a_gpu_becomes_free() -> None:
    made = guessed(builders.view(runs("a"), seen(builders.job("b"), 30.0)))["b"]
    assert made.situation is ForecastCase.NEXT
    assert made.starts_at == NOW + 300
    assert made.ends_at == NOW + 300 + builders.RULES.restart_seconds + 10 * 30


def test_it_starts_now_where_there_is_room() -> None:
    made = guessed(
        builders.view(runs("a"), seen(builders.job("b"), 30.0), nodes=[builders.node(2)])
    )["b"]
    assert (made.situation, made.starts_at) == (ForecastCase.ROOM, NOW)


def test_waiting_jobs_start_in_the_order_in_which_they_are_served() -> None:
    early, late = seen(builders.job("b"), 30.0), seen(builders.job("c"), 30.0)
    view = builders.view(runs("a"), early, late)
    made = guessed(replace(view, queue=(JobId("c"), JobId("b"))))
    assert made["c"].starts_at == NOW + 300
    assert made["b"].starts_at == made["c"].ends_at


def test_several_gpus_are_had_when_the_last_of_them_is_free() -> None:
    wide = seen(builders.job("c", gpus=2), 30.0, "pretendedx2")
    view = builders.view(runs("a"), runs("b", 1, seconds=100.0), wide, nodes=[builders.node(2)])
    assert guessed(view)["c"].starts_at == NOW + 500


def test_memory_is_shared_only_under_a_policy_that_fills_gpus() -> None:
    small = replace(runs("a"), memory_mib=6000)
    assert small.run is not None
    small = replace(small, run=replace(small.run, shares=(builders.share(6000),)))
    view = builders.view(small, seen(builders.job("b", 4000), 30.0))
    assert guessed(view, by_memory=True)["b"].starts_at == NOW
    assert guessed(view)["b"].starts_at == NOW + 300


def test_what_no_gpu_can_hold_is_passed_over() -> None:
    made = guessed(
        builders.view(runs("a"), builders.job("b", 99_999), seen(builders.job("c"), 30.0))
    )
    assert "b" not in made
    assert made["c"].starts_at == NOW + 300


def test_a_held_job_has_no_future_yet_and_one_in_back_off_not_before_it_is_over() -> None:
    late = seen(builders.job("b", eligible_at=NOW + 77), 30.0)
    made = guessed(builders.view(seen(builders.job("a", held=True), 30.0), late))
    assert "a" not in made
    assert made["b"].starts_at == NOW + 77


def test_a_run_that_was_asked_to_stop_leaves_at_the_end_of_its_epoch_and_goes_on() -> None:
    stops = runs("a", phase=RunPhase.STOPPING)
    guess = guessed(builders.view(stops))["a"]
    assert (guess.situation, guess.leaves_at) == (ForecastCase.MOVES, NOW + 60)
    assert guess.ends_at == NOW + 300 + builders.RULES.restart_seconds


def test_a_run_with_far_fewer_gpus_than_there_are_for_it_is_expected_to_get_more() -> None:
    small = replace(runs("a"), spec=replace(runs("a").spec, gpus_max=4))
    guess = guessed(builders.view(seen(small, 20.0, "pretendedx4"), nodes=[builders.node(4)]))["a"]
    assert guess.situation is ForecastCase.MOVES
    assert guess.ends_at == NOW + 60 + builders.RULES.restart_seconds + 4 * 20


def test_pods_of_no_run_are_gone_at_once() -> None:
    over = builders.with_run(builders.job("a"), builders.share())
    view = builders.view(seen(builders.job("b"), 30.0), pods=[builders.pod(over)])
    assert guessed(view)["b"].starts_at == NOW


def test_without_a_gpu_there_is_no_forecast() -> None:
    view = builders.view(seen(builders.job("a"), 30.0), nodes=[builders.node(0)])
    assert guessed(view) == {}


# --- sweeps with a limit ------------------------------------------------------------------------


def limited(job: Job, at_once: int, sweep: str = "s") -> Job:
    labels = (("sweep", sweep),)
    return replace(job, spec=replace(job.spec, labels=labels, parallel=at_once))


LATER = builders.RULES.restart_seconds + 10 * 30  # what one of these takes


def test_a_job_of_a_sweep_starts_when_it_is_its_turn_though_gpus_are_free() -> None:
    grid = [limited(seen(builders.job(name), 30.0), 1) for name in "bcd"]
    view = builders.view(limited(runs("a"), 1), *grid, nodes=[builders.node(8)])
    made = guessed(view)
    assert [made[name].starts_at for name in "bcd"] == [
        NOW + 300,
        NOW + 300 + LATER,
        NOW + 300 + 2 * LATER,
    ]
    assert {made[name].situation for name in "bcd"} == {ForecastCase.QUEUED}


def test_others_do_not_wait_for_the_turns_of_a_sweep() -> None:
    grid = [limited(seen(builders.job(name), 30.0), 2) for name in "abc"]
    other, own = seen(builders.job("d"), 30.0), limited(seen(builders.job("e"), 30.0), 1, "t")
    made = guessed(builders.view(*grid, other, own, nodes=[builders.node(8)]))
    assert {name: guess.starts_at for name, guess in made.items()} == {
        **dict.fromkeys("abde", NOW),
        "c": NOW + LATER,
    }


def test_only_those_whose_turn_it_is_share_the_gpus() -> None:
    grid = [seen(builders.job(name, gpus=(1, 4)), 30.0, "pretendedx4") for name in "abcdefgh"]
    view = builders.view(*(limited(job, 2) for job in grid), nodes=[builders.node(8)])
    made = guessed(view)
    assert made["a"].ends_at == NOW + LATER, "it has four GPUs, as only two jobs share eight"
    assert made["h"].starts_at == NOW + 3 * LATER


def test_a_turn_that_comes_when_an_end_is_not_known_is_not_known() -> None:
    other = builders.job("a")
    other = replace(other, spec=replace(other.spec, project="of another kind"))
    unseen = builders.with_run(other, builders.share(), placement=KEY)
    waits = limited(seen(builders.job("b"), 30.0), 1)
    view = builders.view(limited(unseen, 1), waits, nodes=[builders.node(8)])
    assert "b" not in guessed(view)


def test_a_job_that_is_pruned_makes_room_for_the_next_of_its_sweep() -> None:
    over = replace(limited(runs("a"), 1), cancelled=True)
    waits = limited(seen(builders.job("b"), 30.0), 1)
    made = guessed(builders.view(over, waits, nodes=[builders.node(8)]))
    assert made["b"].starts_at == NOW


def test_what_awaits_others_starts_when_the_last_of_them_has_ended() -> None:
    def behind(name: str, *awaited: str) -> Job:
        return seen(builders.job(name, awaits=tuple(After(JobId(a)) for a in awaited)), 30.0)

    graph = [behind("c", "a"), behind("d", "a", "b"), limited(behind("e", "d"), 1)]
    long = limited(runs("b", 1, seconds=200.0), 1)
    made = guessed(builders.view(runs("a"), long, *graph, nodes=[builders.node(8)]))
    assert made["c"].starts_at == NOW + 300
    assert made["d"].starts_at == NOW + 1000
    assert made["e"].starts_at == NOW + 1000 + LATER
