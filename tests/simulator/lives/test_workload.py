"""The truth about jobs of a life."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulator.lives.workload import SLOWED, ClientKind, TrueJob, draw_jobs, draw_nodes

MARGIN_MIB = 200
SEEDS = range(100)


def jobs(seed: int, count: int = 10) -> list[TrueJob]:
    rng = random.Random(seed)
    return draw_jobs(rng, count, draw_nodes(rng), MARGIN_MIB)


def test_each_job_could_run_if_it_were_alone() -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        nodes = draw_nodes(rng)
        gpus = sum(len(node.gpus) for node in nodes)
        for job in draw_jobs(rng, 10, nodes, MARGIN_MIB):
            assert 0 <= job.spec.gpus_min <= job.spec.gpus_max <= gpus
            capacity = nodes[0].gpus[0].capacity_mib - MARGIN_MIB
            assert 0 < job.memory_mib <= capacity
            assert job.spec.memory_mib <= capacity


def test_the_same_seed_draws_the_same() -> None:
    assert all(jobs(seed) == jobs(seed) for seed in range(10))


def test_there_is_every_kind_of_client_and_of_misbehaviour() -> None:
    drawn = [job for seed in SEEDS for job in jobs(seed)]
    assert {job.kind for job in drawn} == set(ClientKind)
    for trait in ("deaf_to_term", "deaf_to_stop", "fails_always", "cancel_gracefully"):
        assert {getattr(job, trait) for job in drawn} == {False, True}
    for moment in ("fails_at", "ends_early_at", "cancel_at"):
        assert any(getattr(job, moment) is None for job in drawn)
        assert any(getattr(job, moment) is not None for job in drawn)


def test_a_job_that_is_held_at_first_is_released_some_day() -> None:
    for seed in SEEDS:
        for job in jobs(seed):
            told = sorted((at, value) for at, field, value in job.changes if field == "held")
            assert not told or told[-1][1] == 0
            assert told or not job.spec.held


def test_more_gpus_make_epochs_shorter_but_less_than_in_proportion() -> None:
    job = jobs(1)[0]
    one, two = job.seconds(1, ()), job.seconds(2, ())
    assert one == job.epoch_seconds
    assert one / 2 < two < one
    assert job.seconds(0, ()) == one


def test_several_on_one_gpu_are_never_slower_than_one_after_the_other() -> None:
    busy = replace(jobs(1)[0], gpu_util=1.0)
    for others in range(1, 6):
        together = busy.seconds(1, [busy] * others)
        assert together == pytest.approx(busy.epoch_seconds * (1 + SLOWED * others))
        assert together < busy.epoch_seconds * (1 + others)
