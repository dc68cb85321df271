"""What a job's owner is told of its speed: where it is, and where it might be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.model import Job, JobId, Measured, RunPhase, View
from scheduler.core.reason_text import line
from scheduler.outlook.current_speeds import CurrentSpeeds
from scheduler.outlook.learned import slowed, speeds_beside, speeds_on
from scheduler.outlook.prospect import SpeedBeside
from tests import builders

KEY = "pretendedx1"


def runs(name: str, *measured: Measured, phase: RunPhase = RunPhase.RUNNING) -> Job:
    job = replace(builders.job(name, 4000), measured=measured, gpu_util=0.8)
    return builders.with_run(job, builders.share(4000), phase=phase, placement=KEY)


def alone(seconds: float, key: str = KEY) -> Measured:
    return Measured(key, (), seconds, 3)


def beside(*names: str, seconds: float) -> Measured:
    return Measured(KEY, tuple(JobId(name) for name in names), seconds, 3)


def lessons(view: View, name: str) -> list[SpeedBeside]:
    return speeds_beside(view.jobs[JobId(name)], CurrentSpeeds(view))


def test_it_is_told_where_it_was_and_where_it_might_be() -> None:
    job = replace(builders.job("a", gpus=(1, 4)), measured=(alone(60.0), alone(20.0, "t4x8/2")))
    view = builders.view(job, nodes=[builders.node(4)])
    told = {on.gpus: on for on in speeds_on(job, view, CurrentSpeeds(view))}
    assert list(told) == ["pretendedx1", "pretendedx2", "pretendedx4", "t4x8/2"]
    assert told["pretendedx1"].measured == told["pretendedx1"].predicted == 60.0
    assert told["pretendedx2"].measured is None
    assert 15.0 < (told["pretendedx4"].predicted or 0) < (told["pretendedx2"].predicted or 0) < 60


def test_of_a_job_like_no_measured_one_nothing_is_predicted() -> None:
    view = builders.view(builders.job("a"))
    (told,) = speeds_on(view.jobs[JobId("a")], view, CurrentSpeeds(view))
    assert (told.gpus, told.measured, told.predicted) == (KEY, None, None)


def test_of_a_job_that_has_ended_what_was_measured_is_still_told() -> None:
    ended = replace(builders.job("a"), measured=(alone(60.0), beside("b", seconds=80.0)))
    view = builders.view()
    assert [on.measured for on in speeds_on(ended, view, CurrentSpeeds(view))] == [60.0]
    assert [at.speed for at in speeds_beside(ended, CurrentSpeeds(view))] == [0.75]


def test_a_measured_neighbour_costs_what_was_measured() -> None:
    job = runs("a", alone(60.0), beside("b", seconds=80.0))
    assert lessons(builders.view(job), "a") == [SpeedBeside((JobId("b"),), KEY, 0.75, True)]


def test_noise_makes_no_job_faster_than_alone() -> None:
    job = runs("a", alone(60.0), beside("b", seconds=55.0))
    assert lessons(builders.view(job), "a")[0].speed == 1.0


def test_a_neighbour_that_was_not_measured_yet_is_expected_to_cost_something() -> None:
    (told,) = lessons(builders.view(runs("a", alone(60.0)), runs("b", alone(30.0))), "a")
    assert (told.jobs, told.measured) == ((JobId("b"),), False)
    assert told.speed == pytest.approx(1 / (1 + 0.38 * 0.8 * 0.8), rel=0.05)


def test_a_slowed_run_names_the_jobs_that_slow_it() -> None:
    a = runs("a", alone(60.0), beside("b", seconds=80.0))
    view = builders.view(a, runs("b"))
    told = slowed(a, view, CurrentSpeeds(view))
    assert told is not None
    assert line(told) == "slowed (0.75 of its speed alone, measured beside b)"
    expected = slowed(view.jobs[JobId("b")], view, CurrentSpeeds(view))
    assert expected is not None
    assert line(expected)[:-1].endswith("of its speed alone, expected beside a")


def test_what_is_known_beside_others_only_is_no_measured_loss() -> None:
    job = runs("a", beside("b", seconds=80.0))
    view = builders.view(job, runs("b", alone(30.0)))
    assert [at.measured for at in lessons(view, "a")] == [False]
    told = slowed(job, view, CurrentSpeeds(view))
    assert told is not None
    assert line(told)[:-1].endswith("of its speed alone, expected beside b")


def test_a_run_that_loses_nothing_is_not_slowed() -> None:
    job = runs("a", alone(60.0), beside("b", seconds=60.1))
    view = builders.view(job, runs("b"))
    assert slowed(job, view, CurrentSpeeds(view)) is None


def test_a_run_that_is_alone_or_beside_one_that_only_starts_is_not_slowed() -> None:
    a = runs("a", alone(60.0))
    for view in (builders.view(a), builders.view(a, runs("b", phase=RunPhase.STARTING))):
        assert slowed(a, view, CurrentSpeeds(view)) is None


def has_one_of_two(*measured: Measured) -> Job:
    job = replace(builders.job("a", 6000, gpus=(1, 2)), measured=measured)
    return builders.with_run(job, builders.share(6000), placement=KEY, epoch_at=builders.NOW)


def test_a_run_that_would_be_faster_on_more_gpus_names_the_jobs_that_have_them() -> None:
    two = (builders.node(2),)
    a = has_one_of_two(alone(60.0), alone(36.0, "pretendedx2"))
    b = builders.with_run(builders.job("b"), builders.share(gpu=1))
    view = builders.view(a, b, nodes=two)
    told = slowed(a, view, CurrentSpeeds(view))
    assert told is not None
    assert line(told) == "slowed (0.60 of its speed on 2 GPUs, where b is)"
    view = builders.view(a, nodes=two)
    told = slowed(a, view, CurrentSpeeds(view))
    assert told is not None
    assert line(told) == "slowed (0.60 of its speed on 2 GPUs)"


def test_a_run_that_would_not_be_faster_on_more_gpus_misses_none() -> None:
    a = has_one_of_two(alone(60.0), alone(59.0, "pretendedx2"))
    for nodes in ((builders.node(2),), (builders.node(1),)):
        view = builders.view(a, nodes=nodes)
        assert slowed(a, view, CurrentSpeeds(view)) is None


def test_a_job_without_gpus_is_measured_as_any_other() -> None:
    job = replace(builders.job("a", gpus=0), measured=(alone(5.0, "cpu"),))
    view = builders.view(builders.with_run(job, placement="cpu"))
    (told,) = speeds_on(view.jobs[JobId("a")], view, CurrentSpeeds(view))
    assert (told.gpus, told.measured) == ("cpu", 5.0)
