"""What `gpu_sharing` makes of a cluster: counts, neighbours, and the order of jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    JobId,
    Plan,
    Profile,
    Rules,
    RunPhase,
    Time,
    View,
    Waiting,
)
from scheduler.planning.policies.gpu_sharing import AGAIN_SECONDS, gpu_sharing
from simulator.generate import generate
from simulator.trials.trial import Trial
from tests import builders
from tests.builders import ScriptedCluster, node
from tests.simulator.little import nodes

RULES = Rules(plan_every_seconds=0.0, restart_seconds=20.0)


def town(gpus: int, *jobs: tuple[str, dict[str, Any]]) -> ScriptedCluster:
    made = ScriptedCluster(node(gpus), rules=RULES, policy=gpu_sharing(RULES))
    made.look()
    for name, wish in jobs:
        made.submit(name, **wish)
    return made


def gpus_of(made: ScriptedCluster, name: str) -> set[str]:
    return {share.gpu for share in made.run(name).shares}


def trains(made: ScriptedCluster, name: str, seconds: float) -> None:
    """One epoch, and then the start of the next one, or the stop that was requested."""
    job_id, run = JobId(name), made.run(name)
    made.now += seconds
    number = made.view.jobs[job_id].epochs_done + 1
    made.step(EpochEnded(Profile(job_id, run.attempt, number, epoch_seconds=seconds)))
    made.step(EpochStarted(job_id, run.attempt, number))
    if made.run(name).told_to_stop:
        made.exit(name)


def test_no_jobs_share_while_a_gpu_is_free() -> None:
    made = town(2, ("a", {"memory_mib": 2000}), ("b", {"memory_mib": 2000}))
    assert gpus_of(made, "a").isdisjoint(gpus_of(made, "b"))


def test_two_share_the_only_gpu() -> None:
    made = town(1, ("a", {"memory_mib": 6000}), ("b", {"memory_mib": 7000}))
    assert made.running() == {"a", "b"}


def test_of_two_jobs_that_were_only_together_one_has_an_epoch_alone() -> None:
    wish = {"memory_mib": 2000, "max_epochs": 60}
    made = town(1, ("a", wish), ("b", wish))
    for name in ("a", "b"):
        trains(made, name, 60.0)
    assert made.running() == {"a"}
    for _ in range(2):  # when the first of them began, the job was not alone yet
        trains(made, "a", 60.0)
    assert made.running() == {"a", "b"}


def plans_again_after_a_while(made: ScriptedCluster) -> None:
    """The next plan is made AGAIN_SECONDS after the last one, without events in between."""
    planned_at = made.view.planned_at
    assert planned_at is not None
    made.now = planned_at + AGAIN_SECONDS - 2.0
    early = made.step()
    assert (made.view.planned_at, early.wake_at) == (planned_at, planned_at + AGAIN_SECONDS)
    made.step()
    assert made.view.planned_at == made.now == planned_at + AGAIN_SECONDS


def test_while_a_job_could_grow_plans_go_on_without_news() -> None:
    made = town(4, ("a", {"gpus_min": 1, "gpus_max": 4, "max_epochs": 50, "memory_mib": 9000}))
    plans_again_after_a_while(made)
    plans_again_after_a_while(made)
    replan_at, job_id, number = made.view.replan_at, JobId("a"), 1
    made.step(EpochEnded(Profile(job_id, 1, number, epoch_seconds=9.0)))
    made.step(EpochStarted(job_id, 1, number))
    assert made.view.jobs[job_id].measured
    assert (made.view.stale, made.view.replan_at) == (False, replan_at), "a speed is no news"
    plans_again_after_a_while(made)


def test_while_a_job_must_be_measured_alone_plans_go_on_without_news() -> None:
    wish = {"memory_mib": 2000, "max_epochs": 60}
    made = town(1, ("a", wish), ("b", wish))
    for name in ("a", "b"):
        trains(made, name, 60.0)
    assert made.running() == {"a"}
    made.step()
    plans_again_after_a_while(made)


def test_where_no_speed_matters_there_is_no_plan_without_news() -> None:
    made = town(1, ("a", {"memory_mib": 9000}), ("b", {"memory_mib": 9000}))
    assert made.view.replan_at is None


def test_two_jobs_with_little_left_stay_together() -> None:
    wish = {"memory_mib": 2000, "max_epochs": 9}
    made = town(1, ("a", wish), ("b", wish))
    for _ in range(4):
        trains(made, "a", 60.0)
        trains(made, "b", 60.0)
    assert made.running() == {"a", "b"}


def test_what_does_not_fit_beside_another_waits_and_says_so() -> None:
    made = town(1, ("a", {"memory_mib": 9000}), ("b", {"memory_mib": 9000}))
    assert made.running() == {"a"}
    assert made.why("b") == "memory (needs 9,000 MiB; gpu0 has the most free: 6,872 MiB)"


def test_a_job_that_does_not_share_is_alone() -> None:
    made = town(1, ("a", {"memory_mib": 2000, "shareable": False}), ("b", {"memory_mib": 2000}))
    assert made.running() == {"a"}


def test_a_job_alone_gets_more_gpus_once_it_is_known_and_gives_way_to_another_user() -> None:
    wish = {"gpus_min": 1, "gpus_max": 4, "max_epochs": 19, "memory_mib": 9000}
    made = town(4, ("a", {**wish, "user": "ada"}))
    assert len(gpus_of(made, "a")) == 2, "its scaling is unknown"
    for _ in range(3):
        trains(made, "a", 600.0)
    assert len(gpus_of(made, "a")) == 4
    for _ in range(2):
        trains(made, "a", 150.0)
    made.submit("b", **wish, user="bob")
    trains(made, "a", 150.0)
    assert "b" in made.running(), "its user has had nothing yet"


def test_a_run_is_not_moved_before_it_has_finished_an_epoch() -> None:
    wish = {"gpus_min": 1, "gpus_max": 4, "max_epochs": 50, "memory_mib": 9000}
    made = town(4, ("a", wish))
    made.now += 10_000.0
    made.step()
    assert made.run("a").phase is RunPhase.RUNNING


def test_a_short_job_starts_although_its_restart_takes_longer_than_its_work() -> None:
    made = town(1, ("a", {"memory_mib": 2000, "max_epochs": 1, "hours_estimate": 0.0001}))
    assert made.running() == {"a"}


def test_the_higher_priority_has_what_it_needs_first() -> None:
    made = town(1, ("low", {"memory_mib": 12000, "max_epochs": 9}))
    trains(made, "low", 60.0)
    made.submit("high", memory_mib=12000, priority=5)
    assert made.run("low").phase is RunPhase.STOPPING
    trains(made, "low", 60.0)
    assert made.running() == {"high"}
    assert made.view.jobs[JobId("low")].epochs_done == 2


def test_gangs_of_a_size_share_their_gpus() -> None:
    wish = {"gpus_min": 2, "gpus_max": 2, "memory_mib": 3000, "max_epochs": 9}
    made = town(2, ("a", wish), ("b", wish))
    assert made.running() == {"a", "b"}
    assert gpus_of(made, "a") == gpus_of(made, "b")


def test_as_many_gangs_share_their_gpus_as_pays() -> None:
    wish = {"gpus_min": 2, "gpus_max": 2, "memory_mib": 1000, "max_epochs": 9}
    made = town(2, ("a", wish), ("b", wish), ("c", wish))
    assert made.running() == {"a", "b", "c"}
    assert gpus_of(made, "a") == gpus_of(made, "b") == gpus_of(made, "c")


def train_both(made: ScriptedCluster, rounds: int) -> None:
    """Of a and b, those that run: three quarters as fast beside each other."""
    for _ in range(rounds):
        for name in sorted(made.running() & {"a", "b"}):
            trains(made, name, 800.0 if {"a", "b"} <= made.running() else 600.0)


def test_gangs_that_share_part_when_other_gpus_become_free() -> None:
    wish = {"gpus_min": 2, "gpus_max": 2, "memory_mib": 3000, "max_epochs": 40}
    made = town(4, ("alone", {**wish, "shareable": False}), ("a", wish), ("b", wish))
    assert gpus_of(made, "a") == gpus_of(made, "b")
    train_both(made, 6)
    assert gpus_of(made, "a") == gpus_of(made, "b"), "each has had its epoch alone"
    made.exit("alone", 0)
    train_both(made, 3)
    assert gpus_of(made, "a").isdisjoint(gpus_of(made, "b"))


def test_a_job_without_gpus_runs_beside_everything() -> None:
    made = town(1, ("a", {"shareable": False}), ("cpu", {"gpus_min": 0, "gpus_max": 0}))
    assert made.running() == {"a", "cpu"}


def test_a_run_that_can_be_asked_to_stop_keeps_its_neighbour_that_cannot() -> None:
    made = town(2, ("first", {"memory_mib": 12000, "max_epochs": 9, "priority": 5}))
    trains(made, "first", 60.0)
    for name, epochs in (("long", 9), ("last", 2)):
        made.submit(name, memory_mib=3000, max_epochs=epochs)
    for name in ("long", "last"):
        trains(made, name, 60.0)
    assert made.run("long").phase is made.run("last").phase is RunPhase.RUNNING
    assert gpus_of(made, "long") == gpus_of(made, "last")


def test_a_gpu_is_not_kept_for_some_of_the_jobs_that_cannot_be_separated() -> None:
    made = town(2, ("first", {"shareable": False, "priority": 5}))
    for name in ("a", "b", "c", "d"):
        made.submit(name, memory_mib=2000, max_epochs=9)
    made.submit("late", shareable=False, priority=0)
    assert len({key for name in ("a", "b", "c", "d") for key in gpus_of(made, name)}) == 1
    made.exit("first")
    assert made.running() == {"a", "b", "c", "d", "late"}
    trains(made, "late", 60.0)
    made.look()
    assert made.run("late").phase is RunPhase.RUNNING, "no other job could have its GPU"


def test_a_gpu_that_two_classes_must_stay_on_counts_once_for_those_between_them() -> None:
    bound = [  # neither can be asked to stop, because they have not reported
        builders.with_run(
            builders.job(name, 2000, priority=priority), builders.share(2200), heard_at=None
        )
        for name, priority in (("low", 0), ("high", 5))
    ]
    waiting = [
        builders.job(name, 2000, priority=priority, shareable=False)
        for name, priority in (("least", 0), ("between", 3))
    ]
    view = builders.view(*bound, *waiting, nodes=[node(2)])
    plan = gpu_sharing(RULES)(view, builders.NOW)
    assert plan.placements.keys() == {"low", "high", "between"}


def test_a_job_that_is_held_and_still_stops_is_given_nothing() -> None:
    """One of a lower class would be stopped for it, or not start beside it."""
    stops = builders.with_run(
        builders.job("held", 2000, priority=5, held=True, shareable=False),
        builders.share(2200),
        phase=RunPhase.STOPPING,
    )
    waiting = builders.job("waits", 2000, shareable=False)
    one_gpu = builders.view(stops, waiting, nodes=[node(1)])
    plan = gpu_sharing(RULES)(one_gpu, builders.NOW)
    assert plan.why[stops.id].kind is Waiting.HELD


FAULTY, AWAY = {"gpus": (replace(builders.make_gpu(), fault="XID 79"),)}, {"ready": False}


@pytest.mark.parametrize(
    ("broken", "priority", "gpus", "stays"),
    [
        pytest.param(FAULTY, 3, 1, False, id="a GPU with a fault, and a higher class waits"),
        pytest.param(FAULTY, 0, 1, True, id="none of a higher class waits"),
        pytest.param(FAULTY, 3, 2, True, id="there is another GPU for the waiting job"),
        pytest.param(AWAY, 3, 1, True, id="it would not hear that it is asked"),
    ],
)
def test_a_run_with_a_gpu_that_is_not_visible_leaves_the_others_to_a_higher_class(
    broken: dict[str, Any], priority: int, gpus: int, stays: bool
) -> None:
    gang = builders.job("gang", 2000, gpus=2, priority=0)
    gang = builders.with_run(gang, builders.share(2200), builders.share(2200, node="n2"))
    waiting = builders.job("waiting", 2000, priority=priority, shareable=False)
    nodes = [node(gpus), replace(node(1, name="n2"), **broken)]
    plan = gpu_sharing(RULES)(builders.view(gang, waiting, nodes=nodes), builders.NOW)
    assert ("gang" in plan.placements) == stays
    assert ("waiting" in plan.placements) == (gpus == 2), "not before the other has left"


def test_a_job_without_gpus_waits_for_a_node() -> None:
    made = ScriptedCluster(node(1, ready=False), rules=RULES, policy=gpu_sharing(RULES))
    made.look()
    made.submit("cpu", gpus_min=0, gpus_max=0)
    assert made.why("cpu") == "nodes (no node is ready)"


def test_a_run_on_a_node_that_is_not_ready_does_not_hold_up_others() -> None:
    made = ScriptedCluster(
        node(1, name="here"), node(1, name="away"), rules=RULES, policy=gpu_sharing(RULES)
    )
    made.look()
    for name in ("a", "b"):
        made.submit(name, shareable=False, max_epochs=9)
        trains(made, name, 60.0)
    away = next(name for name in ("a", "b") if made.run(name).shares[0].node == "away")
    here = "b" if away == "a" else "a"
    made.nodes = (made.nodes[0], replace(made.nodes[1], ready=False))
    made.look()
    assert made.run(away).phase is made.run(here).phase is RunPhase.RUNNING


def test_what_was_planned_before_makes_no_difference_to_a_plan() -> None:
    rules = Rules(plan_every_seconds=60.0)
    remembers = gpu_sharing(rules)
    plans = []

    def both(view: View, now: Time) -> Plan:
        plans.append(remembers(view, now))
        assert plans[-1] == gpu_sharing(rules)(view, now)
        return plans[-1]

    jobs = generate(8, seed=1, gpus=4, load=2.0)
    Trial(jobs, nodes(2, 2), both, rules).run()
    assert len(plans) > 50
