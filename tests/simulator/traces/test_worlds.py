"""Worlds that break what the scheduler believes: each breaks what it says, and is drawn again."""

from __future__ import annotations

import pytest

from scheduler.core.model import Rules
from simulator.traces.behaviour import TraceJob
from simulator.traces.worlds import FAST, SLOW, WORLDS, build_world
from simulator.trials.trial import split_by_possible

every_world = pytest.mark.parametrize("name", WORLDS)


def seconds(job: TraceJob, count: int, nodes: int = 1, type: str = FAST) -> float:
    return job.truth.epoch_seconds(type, count, nodes)


def by_project(name: str) -> dict[str, list[TraceJob]]:
    found: dict[str, list[TraceJob]] = {}
    for job in build_world(name, 1).jobs:
        found.setdefault(job.spec.project, []).append(job)
    return found


@every_world
def test_the_same_seed_gives_the_same_world_and_another_one_does_not(name: str) -> None:
    assert build_world(name, 1) == build_world(name, 1)
    assert build_world(name, 1).jobs != build_world(name, 2).jobs


@every_world
def test_a_world_is_a_trace_of_tens_of_jobs_that_all_can_run(name: str) -> None:
    world = build_world(name, 1)
    moments = [job.submit_at for job in world.jobs]
    assert moments == sorted(moments)
    assert 20 <= len(moments) <= 60
    assert len({job.spec.name for job in world.jobs}) == len(moments)
    refused, _ = split_by_possible(world.jobs, world.nodes, Rules())
    assert refused == []
    assert 32 <= sum(len(node.gpus) for node in world.nodes) <= 64


@every_world
def test_jobs_of_one_kind_have_samples_of_one_length_for_each_program(name: str) -> None:
    for jobs in by_project(name).values():
        per_sample = {f"{seconds(job, 1) / job.spec.training_set_size:.2e}" for job in jobs}
        assert len(per_sample) <= (2 if name == "mixed_kinds" else 1)


def test_behind_the_cliff_half_of_the_kinds_are_four_times_slower() -> None:
    ratios = [
        round(seconds(jobs[0], 8, 2) / seconds(jobs[0], 8, 1), 6)
        for jobs in by_project("cliff").values()
    ]
    assert sorted(ratios) == [1.0] * 3 + [4.0] * 3


def test_with_a_cache_two_gpus_are_more_than_twice_as_fast() -> None:
    ratios = [seconds(jobs[0], 1) / seconds(jobs[0], 2) for jobs in by_project("cache").values()]
    assert sum(ratio > 2.4 for ratio in ratios) == 3
    assert sum(ratio < 2.0 for ratio in ratios) == 3


def test_the_first_minutes_of_each_run_are_six_times_slower() -> None:
    for job in build_world("tuning", 1).jobs:
        assert job.course.epoch_seconds(10.0, 5, 30, 0.0) == 60.0
        assert job.course.epoch_seconds(10.0, 5, 30, 300.0) == 10.0


def test_epochs_drift_threefold_in_either_direction_or_not_at_all() -> None:
    ratios = [
        jobs[0].course.factor(29, 30) / jobs[0].course.factor(0, 30)
        for jobs in by_project("drift").values()
    ]
    assert sorted(ratios) == pytest.approx([1 / 3, 1 / 3, 1.0, 1.0, 3.0, 3.0])


def test_one_node_is_bad_and_is_a_type_of_its_own_for_who_knows_it() -> None:
    world = build_world("bad_node", 1)
    ((name, times),) = world.slowness.items()
    assert times == 5.0
    types = {node.name: {gpu.type for gpu in node.gpus} for node in world.told_nodes}
    (slow,) = types.pop(name)
    assert set().union(*types.values()) == {FAST}
    assert world.type_slowness == {slow: 5.0}
    assert slow != FAST
    assert {gpu.type for node in world.nodes for gpu in node.gpus} == {FAST}


def test_a_mixed_kind_has_two_programs_under_one_name() -> None:
    for jobs in by_project("mixed_kinds").values():
        speedups = {round(seconds(job, 1) / seconds(job, 4), 1) for job in jobs}
        assert len(speedups) == 2
        assert min(speedups) < 2.0 < 3.5 < max(speedups)


def test_the_poison_is_slower_on_all_gpus_than_on_one() -> None:
    projects = by_project("poisoned")
    one, most = projects["poison"]
    assert (one.spec.gpus_max, most.spec.gpus_min) == (1, 28)
    assert seconds(most, 28, 7) > 5 * seconds(most, 1)
    (long,) = projects["long"]
    assert seconds(long, 32, 8) < seconds(long, 4, 1) / 6


def test_liars_report_what_would_buy_them_gpus() -> None:
    world, projects = build_world("liars", 1), by_project("liars")
    greedy, erratic = projects["greedy"][0], projects["erratic"][0]
    assert greedy.lie.told_seconds(100.0, 1, 32) < 15.0
    assert seconds(greedy, 1) < 2 * seconds(greedy, 32, 8), "in truth it hardly scales"
    assert [erratic.lie.told_seconds(1.0, epoch, 8) for epoch in range(3)] == [0.0, 10.0, 0.1]
    lying = {job.spec.project for job in world.jobs if world.is_liar(job.spec.name)}
    assert lying == {"greedy", "erratic"}


def test_the_other_type_is_almost_as_fast_for_half_of_the_kinds() -> None:
    projects = by_project("two_types").values()
    ratios = [seconds(jobs[0], 4, 1, SLOW) / seconds(jobs[0], 4) for jobs in projects]
    assert sorted(ratios) == pytest.approx([1.15] * 3 + [5.0] * 3)
