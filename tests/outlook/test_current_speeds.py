"""How fast jobs are where they run now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.model import Job, JobId, Measured
from scheduler.outlook.current_speeds import (
    DOUBT_MEASURED,
    DOUBT_SAID,
    DOUBT_UNKNOWN,
    SECONDS_UNKNOWN,
    CurrentSpeed,
    CurrentSpeeds,
)
from tests import builders

PLACE = "pretendedx1"


def runs(name: str, *measured: Measured, util: float = 0.0, placement: str = PLACE) -> Job:
    made = replace(builders.job(name, 1000, gpu_util=util), measured=measured)
    return builders.with_run(made, builders.share(1000), placement=placement)


def alone(seconds: float) -> Measured:
    return Measured(PLACE, (), seconds, 3)


def beside(other: str, seconds: float) -> Measured:
    return Measured(PLACE, (JobId(other),), seconds, 3)


def of(name: str, *jobs: Job) -> CurrentSpeed:
    (job,) = [job for job in jobs if job.id == name]
    assert job.run
    return CurrentSpeeds(builders.view(*jobs)).of(job, job.run)


def test_what_was_measured_just_so_is_told() -> None:
    told = of("a", runs("a", alone(10.0), beside("b", 16.0)), runs("b"))
    assert told == CurrentSpeed(16.0, 10.0, (JobId("b"),), True, DOUBT_MEASURED)
    assert told.speed == pytest.approx(10 / 16)


def test_beside_one_that_is_new_it_is_as_expected_of_both() -> None:
    told = of("a", runs("a", alone(10.0), util=1.0), runs("b", util=1.0))
    assert (told.beside, told.measured) == ((JobId("b"),), False)
    assert told.alone == 10.0
    assert 10.0 < told.seconds < 20.0


def test_a_job_that_keeps_a_gpu_busier_is_expected_to_slow_its_neighbour_more() -> None:
    little = of("a", runs("a", alone(10.0), util=1.0), runs("b", util=0.1))
    much = of("a", runs("a", alone(10.0), util=1.0), runs("b", util=1.0))
    assert little.seconds < much.seconds


def test_alone_no_neighbour_slows_it_down() -> None:
    told = of("a", runs("a", alone(10.0)))
    assert (told.seconds, told.beside, told.measured) == (10.0, (), True)


def test_noise_makes_no_job_faster_beside_others() -> None:
    assert of("a", runs("a", alone(10.0), beside("b", 9.0)), runs("b")).speed == 1.0


@pytest.mark.parametrize("placement", ["pretendedx1+t4x1", "nonsense"])
def test_where_there_is_no_law_its_owner_is_believed(placement: str) -> None:
    job = runs("a", placement=placement)
    said = replace(job, spec=replace(job.spec, hours_estimate=1.0))
    assert (of("a", said).seconds, of("a", said).doubt) == (360.0, DOUBT_SAID)  # of ten epochs
    assert (of("a", job).seconds, of("a", job).doubt) == (SECONDS_UNKNOWN, DOUBT_UNKNOWN)


def test_an_ended_job_slows_no_other() -> None:
    a, speeds = runs("a", alone(10.0)), CurrentSpeeds(builders.view(runs("a", alone(10.0))))
    assert a.run
    assert speeds.speed_beside(a, JobId("gone"), a.run) == 1.0
