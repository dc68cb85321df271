"""Single jobs beside gangs, under `gpu_sharing`: where it pays, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model import EpochEnded, EpochStarted, JobId, Profile, Rules
from scheduler.planning.optimizer.speed_sources import given_speeds
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from tests.builders import ScriptedCluster, node

RULES = Rules(plan_every_seconds=0.0, restart_seconds=20.0)


def town(gpus: int, beside: float | None = None) -> ScriptedCluster:
    """`beside`: how fast every job is beside any other; None: as it is learned."""
    speeds = beside and given_speeds(
        lambda job, placement: 600.0 / placement.gpus, beside=lambda job, other, type: beside
    )
    made = ScriptedCluster(node(gpus), rules=RULES, policy=gpu_sharing(RULES, speeds or None))
    made.look()
    return made


def submit_gang(made: ScriptedCluster, gpus: int, memory_mib: int = 8000, **wish: Any) -> None:
    wish = {"gpus_min": gpus, "gpus_max": gpus, "max_epochs": 20, **wish}
    made.submit("gang", memory_mib=memory_mib, **wish)
    assert len(made.run("gang").shares) == gpus


def gpus_of(made: ScriptedCluster, name: str) -> set[str]:
    return {share.gpu for share in made.run(name).shares}


def trains(made: ScriptedCluster, name: str, seconds: float = 600.0) -> None:
    job_id, run = JobId(name), made.run(name)
    made.now += seconds
    number = made.view.jobs[job_id].epochs_done + 1
    made.step(EpochEnded(Profile(job_id, run.attempt, number, epoch_seconds=seconds)))
    made.step(EpochStarted(job_id, run.attempt, number))
    if made.run(name).told_to_stop:
        made.exit(name)


def test_a_small_job_starts_beside_a_gang_of_which_nothing_is_known() -> None:
    made = town(2)
    submit_gang(made, 2)
    made.submit("small", memory_mib=1000, max_epochs=5)
    assert gpus_of(made, "small") < gpus_of(made, "gang")


def test_several_are_on_different_gpus_of_it() -> None:
    made = town(4, beside=0.9)
    submit_gang(made, 4)
    for name in ("a", "b", "c"):
        made.submit(name, memory_mib=6000, max_epochs=5)
    on = [gpus_of(made, name) for name in ("a", "b", "c")]
    assert len(set.union(*on)) == 3


@pytest.mark.parametrize(("beside", "starts"), [(0.95, True), (0.4, False)])
def test_it_waits_if_the_gang_would_lose_more_than_it_gains(beside: float, starts: bool) -> None:
    made = town(4, beside)
    submit_gang(made, 4)
    made.submit("small", memory_mib=1000, max_epochs=5)
    assert (JobId("small") in made.running()) is starts


@pytest.mark.parametrize(
    ("gang", "small"),
    [
        ({"memory_mib": 14_000}, {}),
        ({"shareable": False}, {}),
        ({}, {"shareable": False}),
        ({}, {"memory_mib": 15_000}),
        ({}, {"gpus_min": 2, "gpus_max": 2, "memory_mib": 9000}),
    ],
)
def test_it_waits_if_there_is_no_room_or_one_does_not_share(
    gang: dict[str, Any], small: dict[str, Any]
) -> None:
    made = town(2, beside=0.95)
    submit_gang(made, 2, **{"memory_mib": 8000, **gang})
    made.submit("small", **{"memory_mib": 5000, "max_epochs": 5, **small})
    assert JobId("small") not in made.running()


def test_both_stay_where_they_are_from_plan_to_plan() -> None:
    made = town(2, beside=0.9)
    submit_gang(made, 2)
    made.submit("small", memory_mib=1000, max_epochs=9)
    where = gpus_of(made, "small")
    for _ in range(3):
        trains(made, "gang")
        trains(made, "small")
    assert made.running() == {"gang", "small"}
    assert gpus_of(made, "small") == where


@pytest.mark.parametrize(("beside", "moves"), [(0.7, True), (0.99, False)])
def test_a_guest_gets_a_gpu_of_its_own_if_that_pays_for_the_restart(
    beside: float, moves: bool
) -> None:
    made = town(3, beside)
    submit_gang(made, 2)
    made.submit("other", memory_mib=12_000, max_epochs=9)
    made.submit("small", memory_mib=5000, max_epochs=9)
    assert gpus_of(made, "small") < gpus_of(made, "gang")
    for name in ("gang", "other", "small"):
        trains(made, name)
    made.exit("other", 0)
    for _ in range(2):
        trains(made, "small")
    assert gpus_of(made, "small").isdisjoint(gpus_of(made, "gang")) is moves


def test_when_the_gang_ends_its_guest_goes_on() -> None:
    made = town(2, beside=0.9)
    submit_gang(made, 2)
    made.submit("small", memory_mib=1000, max_epochs=9)
    where = gpus_of(made, "small")
    trains(made, "small")
    made.exit("gang", 0)
    made.submit("next", memory_mib=9000, max_epochs=9)
    assert gpus_of(made, "small") == where
    assert gpus_of(made, "next").isdisjoint(where)


def test_a_gang_does_not_move_because_of_a_guest_that_cannot_be_stopped_yet() -> None:
    """Its guest has just started, and has not been heard of."""
    made = town(2, beside=0.9)
    submit_gang(made, 2)
    made.submit("small", memory_mib=1000, max_epochs=9)
    for _ in range(3):
        trains(made, "gang")
    assert made.run("gang").attempt == 1
    assert made.running() == {"gang", "small"}


def test_a_guest_takes_no_gpu_from_the_jobs_that_come() -> None:
    made = town(3, beside=0.9)
    submit_gang(made, 2)
    made.submit("first", memory_mib=12_000, max_epochs=9)
    made.submit("small", memory_mib=1000, max_epochs=9)
    assert len(gpus_of(made, "gang") | gpus_of(made, "first")) == 3
    trains(made, "first")
    made.exit("first", 0)
    made.submit("second", memory_mib=12_000, max_epochs=9)
    assert gpus_of(made, "second").isdisjoint(gpus_of(made, "gang"))
