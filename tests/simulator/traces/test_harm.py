"""The daemon's own loop soon separates jobs that slow each other down on one GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from scheduler.core.model import JobId, Outcome, Rules
from scheduler.core.ports import Step
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from simulator.traces.behaviour import TraceJob, Truth
from simulator.trials.outcome import Result
from tests.simulator.little import Plain, job, trial

TOGETHER_MAX = 2  # epochs of either; first epochs, with their warm-up, are not counted


@dataclass(frozen=True)
class Foe(Plain):
    """A job that takes most of the GPU from another such job."""

    speed: float = 0.9

    def speed_beside(self, other: Truth, type: str) -> float:
        return 0.3 if isinstance(other, Foe) else self.speed


def friend(name: str, at: float, seconds: float) -> TraceJob:
    return job(name, at, epochs=30, truth=Plain(seconds, speed=0.9), project=name)


def foe(name: str, at: float, seconds: float, kind: str = "") -> TraceJob:
    return job(name, at, epochs=30, truth=Foe(seconds), project=kind or name)


Harmed = Counter[tuple[JobId, tuple[JobId, ...]]]


def lived(jobs: Sequence[TraceJob], gpus: int) -> tuple[Harmed, Result]:
    """The whole epochs of each job beside each set of neighbours that at least halved its speed."""
    rules, seconds = Rules(), {f"job-{n:05}": one.truth for n, one in enumerate(jobs)}
    harmed = Harmed()

    def listen(step: Step) -> None:
        for profile in step.profiles:
            alone = seconds[profile.job_id].epoch_seconds("t4", 1, 1)
            harmed[profile.job_id, profile.beside] += profile.epoch_seconds > 2 * alone

    return harmed, trial(jobs, gpu_sharing(rules), gpus, rules=rules, listener=listen).run()


@pytest.mark.parametrize("seconds", [50.0, 300.0])
@pytest.mark.parametrize("friends", [0, 1, 2])
def test_a_job_measured_alone_before_a_harmful_neighbour_is_separated(
    friends: int, seconds: float
) -> None:
    first = [friend(f"friend{n}", 0.0, seconds) for n in range(friends)]
    foes = [foe("a", 0.0, seconds), foe("b", 3 * seconds, seconds)]
    harmed, result = lived([*first, *foes], 1 + friends)
    assert max(harmed.values()) <= TOGETHER_MAX
    assert {times.outcome for times in result.jobs} == {Outcome.SUCCEEDED}


def test_a_job_with_one_of_its_kind_measured_alone_is_separated_too() -> None:
    before = [foe(f"old{n}", 3100.0 * n, 100.0, kind=f"kind{n}") for n in range(2)]
    foes = [foe(f"new{n}", 7000.0, 100.0, kind=f"kind{n}") for n in range(2)]
    harmed, _ = lived([*before, *foes], 1)
    assert max(harmed.values()) <= 1 + TOGETHER_MAX


@pytest.mark.parametrize("seconds", [50.0, 300.0])
@pytest.mark.parametrize(("count", "gpus"), [(2, 1), (3, 1), (4, 2), (7, 3)])
def test_jobs_that_started_together_are_separated_though_none_was_alone(
    count: int, gpus: int, seconds: float
) -> None:
    harmed, result = lived([foe(f"foe{n}", 0.0, seconds) for n in range(count)], gpus)
    assert max(harmed.values()) <= TOGETHER_MAX
    assert {times.outcome for times in result.jobs} == {Outcome.SUCCEEDED}


def test_harmless_neighbours_are_separated_once_and_then_share() -> None:
    harmed, result = lived([friend(f"friend{n}", 0.0, 100.0) for n in range(2)], 1)
    assert max(harmed.values()) == 0
    assert sum(times.restarts for times in result.jobs) == 1
    one_after_the_other = 2 * 30 * 100.0
    assert result.makespan_seconds < 0.65 * one_after_the_other
