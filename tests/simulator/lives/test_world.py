"""The simulated world keeps the promises that the lives rely on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    Event,
    Failure,
    JobId,
    Observed,
    PodState,
    Remove,
    Submitted,
)
from simulator.lives.faults import Crash, DiskFull, Faults
from simulator.lives.world import World
from tests import builders
from tests.simulator.calm import JOB, LAUNCH, SPEC, TRUTH, world


def news(of: World, until: float) -> list[Event]:
    """All events that arrive until then, without observations."""
    events: list[Event] = []
    while of.now() < until:
        events += [event for event in of.wait(until) if not isinstance(event, Observed)]
    return events


def test_time_jumps_to_the_deadline_when_nothing_happens() -> None:
    here = world()
    here.wait(None)  # the first observation
    assert here.wait(20.0) == []
    assert here.now() == 20.0


def test_a_clock_that_is_set_back_stands() -> None:
    here = world(Faults(clock_set_back_every_seconds=5.0))
    moments = []
    for _ in range(100):
        here.wait(here.now() + 1.0)
        moments.append(here.now())
    assert moments == sorted(moments)
    assert here.time > here.now()


def test_a_caller_is_answered_when_its_batch_was_committed() -> None:
    here, heard = world(), []
    here.wait(None)
    here.post(Submitted(JOB, SPEC), lambda: heard.append(here.now()))
    assert here.wait(10.0) == [Submitted(JOB, SPEC)]
    assert heard == []
    here.wait(here.now() + 1.0)
    assert len(heard) == 1


def test_a_crash_before_the_next_wait_answers_no_caller() -> None:
    here, heard = world(), []
    here.wait(None)
    here.post(Submitted(JOB, SPEC), lambda: heard.append(here.now()))
    here.wait(10.0)
    here.kill_daemon()
    here.start_daemon()
    here.wait(here.now() + 30.0)
    assert heard == []


def test_what_is_stored_is_answered_without_an_event() -> None:
    here, heard = world(), []
    here.wait(None)
    here.stored = {JOB: builders.job("j")}
    here.post(Submitted(JOB, SPEC), lambda: heard.append(True))
    assert news(here, 10.0) == []
    assert heard == [True]


def test_a_training_asks_trains_reports_and_ends() -> None:
    here = world()
    here.read = lambda: builders.view(
        builders.with_run(builders.job("j", max_epochs=2), *LAUNCH.shares)
    )
    here.perform(LAUNCH)
    events = news(here, 150.0)
    assert [event.epoch for event in events if isinstance(event, EpochStarted)] == [0, 1]
    ended = [event.profile.epoch for event in events if isinstance(event, EpochEnded)]
    assert list(dict.fromkeys(ended)) == [1, 2]
    (pod,) = here.observe().pods
    assert (pod.state, pod.exit_code) == (PodState.SUCCEEDED, 0)
    assert here.epochs_done == {JOB: 2}


def test_a_training_that_is_told_to_stop_does() -> None:
    here = world()
    stopping = builders.with_run(builders.job("j", max_epochs=5), *LAUNCH.shares, stop_at_epoch=1)
    here.read = lambda: builders.view(stopping)
    here.perform(replace(LAUNCH, max_epochs=5))
    news(here, 300.0)
    (pod,) = here.observe().pods
    assert (pod.state, pod.exit_code) == (PodState.FAILED, 85)
    assert here.epochs_done == {JOB: 1}


def test_two_runs_that_take_more_than_the_gpu_has_cannot_both_live() -> None:
    here = world(truth=replace(TRUTH, memory_mib=9000))
    here.perform(LAUNCH)
    here.perform(replace(LAUNCH, job_id=JobId("k")))
    news(here, 70.0)
    reasons = sorted(pod.reason for pod in here.observe().pods)
    assert reasons == ["", "out_of_memory"]


def test_what_is_removed_is_shown_until_it_is_gone() -> None:
    here = world(Faults(removal_seconds_max=30.0))
    here.perform(LAUNCH)
    here.perform(Remove(JOB, 1))
    assert [pod.state for pod in here.observe().pods] == [PodState.TERMINATING]
    news(here, 60.0)
    assert here.observe().pods == ()


@pytest.mark.parametrize(
    ("weather", "error", "happens"),
    [
        (Faults(crash=1.0), Crash, lambda here: here.perform(LAUNCH)),
        (Faults(crash=1.0), Crash, World.before_write),
        (Faults(disk_full_every_seconds=1.0), DiskFull, World.before_write),
    ],
)
def test_bad_weather_is_felt(
    weather: Faults, error: type[Exception], happens: Callable[[World], None]
) -> None:
    here = world(weather)
    news(here, 50.0)
    with pytest.raises(error):
        happens(here)
    here.heal()
    happens(here)


# --- GPUs ---------------------------------------------------------------------------------------


def test_only_agents_observe_what_processes_take() -> None:
    for agents in (True, False):
        here = world(agents=agents)
        here.perform(LAUNCH)
        here.pass_time(70.0)  # longer than any training takes to begin
        (pod,) = here.observe().pods
        assert pod.used == ((builders.share(1000),) if agents else ())


def test_memory_may_grow_after_the_first_epoch() -> None:
    here = world(Faults(memory_grows=1.0), agents=True)
    here.perform(LAUNCH)
    seen = []
    for _ in range(60):
        here.pass_time(5.0)
        seen += [pod.used[0].memory_mib for pod in here.observe().pods if pod.used]
    assert list(dict.fromkeys(seen)) == [500, 1000]


def test_processes_that_are_left_are_seen_on_pods_that_are_over_and_then_gone() -> None:
    here = world(Faults(process_left=1.0), agents=True)
    here.perform(LAUNCH)
    seen = []
    for _ in range(80):
        here.pass_time(5.0)
        seen += [bool(pod.used) for pod in here.observe().pods if not pod.alive]
    assert list(dict.fromkeys(seen)) == [True, False]


def test_of_a_gang_is_seen_what_is_left_on_the_node_that_is_in_reach() -> None:
    here = world(Faults(process_left=1.0), agents=True)
    here.nodes.append(builders.node(name="n2"))
    here.perform(replace(LAUNCH, shares=(builders.share(1000), builders.share(1000, node="n2"))))
    while not any(pod.used for pod in here.observe().pods if not pod.alive):
        here.pass_time(1.0)
    (run,) = here.runs.values()
    here.nodes[1] = replace(here.nodes[1], ready=False)
    run.cut_off("n2")
    assert [bool(pod.used) for pod in here.observe().pods] == [True, False]


def test_a_lost_gpu_is_shown_and_its_runs_do_not_work() -> None:
    here = world(Faults(gpu_lost_every_seconds=100.0))
    here.perform(LAUNCH)
    (run,) = here.runs.values()
    while not here.observe().nodes[0].gpus[0].lost:
        here.pass_time(1.0)
    assert here.observe().nodes[0].usable == ()
    assert not run.working
    assert here.failures[JOB, Failure.LOST] == 1
    here.heal()
    assert here.observe().nodes[0].gpus == builders.node().gpus
    assert [pod.state for pod in run.pods] == [PodState.FAILED]


def test_strangers_take_what_is_free_and_leave_again() -> None:
    here = world(Faults(foreign_use_every_seconds=50.0))
    here.perform(LAUNCH)
    here.pass_time(70.0)
    while not (strange := here.observe().nodes[0].gpus[0].strange_mib):
        here.pass_time(1.0)
    key = ("n1", "gpu0")
    assert here.taken_mib(key) <= here.memory_mib(key) == 16384 - strange
    here.heal()
    assert here.observe().nodes[0].gpus == builders.node().gpus
