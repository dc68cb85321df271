"""What can go wrong in a life, drawn once per seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, fields

import pytest

from simulator.lives.faults import (
    NO_FAULTS,
    Faults,
    draw_faults,
    with_gpu_faults,
    with_gpus_to_be_left,
    with_refusals,
)

SEEDS = range(300)


def drawn(seed: int) -> Faults:
    return draw_faults(random.Random(seed))


def test_the_same_seed_draws_the_same() -> None:
    assert all(drawn(seed) == drawn(seed) for seed in SEEDS)


def test_some_lives_have_no_fault_and_no_fault_is_in_all_of_them() -> None:
    lives = [asdict(drawn(seed)) for seed in SEEDS]
    assert asdict(NO_FAULTS) in lives
    kinds = {name for life in lives for name, value in life.items() if value}
    later = {"launch_refused", "gpu_lost_every_seconds", "foreign_use_every_seconds"}
    later |= {"memory_grows", "process_left", "gpu_to_be_left_every_seconds"}
    assert kinds == {field.name for field in fields(Faults)} - later
    for name in kinds - {"removal_seconds_max"}:
        assert any(not life[name] for life in lives), f"{name} is in every life"


def test_what_is_a_probability_is_one() -> None:
    spans = ("_seconds", "_seconds_max")
    for seed in SEEDS:
        for name, value in asdict(drawn(seed)).items():
            most = math.inf if name.endswith(spans) else 1.0
            assert 0.0 <= value <= most, name


def test_few_policies_are_unreliable_and_the_others_are_honest() -> None:
    honest = sum(drawn(seed).honest for seed in SEEDS)
    assert len(SEEDS) / 2 < honest < len(SEEDS)


@pytest.mark.parametrize("more", [with_gpu_faults, with_refusals, with_gpus_to_be_left])
def test_what_came_later_is_by_a_chance_of_its_own_and_changes_nothing_else(
    more: Callable[[Faults, random.Random], Faults],
) -> None:
    changed = set()
    for seed in SEEDS:
        before = drawn(seed)
        after = more(before, random.Random(seed))
        changed |= {name for name, value in asdict(after).items() if value != asdict(before)[name]}
    assert changed
    assert not changed & {"crash", "pod_dies", "report_lost", "plan_nonsense"}
    assert more(NO_FAULTS, random.Random(1)) is NO_FAULTS, "a life without faults stays one"
