from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks import workload
from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer import exact
from scheduler.planning.optimizer.groups import GroupValues, Neighbours
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.pairing import Allotment, Limits, shared
from scheduler.planning.optimizer.prices import chosen, priced
from tests import menus, milp

SEEDS = st.integers(0, 2**32 - 1)


def worth(menu: Menu, neighbours: Neighbours, plan: Allotment) -> float:
    """Counted job by job; fails if the plan is not possible."""
    total, used = 0.0, menu.used(plan.choice)
    grouped = {job for group in plan.groups for job in group}
    assert sum(map(len, plan.groups)) == len(grouped)
    for job, column in enumerate(plan.choice.tolist()):
        if column >= 0 and job not in grouped:
            assert menu.worth[job, column] > -np.inf
            total += float(menu.worth[job, column])
    for group in plan.groups:
        assert 2 <= len(group) <= neighbours.members_max
        assert neighbours.shareable[list(group)].all()
        (column,) = set(plan.choice[list(group)].tolist())
        assert column >= 0
        assert menu.count[column] == 1
        assert (menu.worth[list(group), column] > -np.inf).all()
        type = int(menu.type[column])
        assert neighbours.memory[list(group)].sum() <= neighbours.capacity[type]
        used[type] -= len(group) - 1
        for job in group:
            one, others = np.array([job]), np.array([other for other in group if other != job])
            speed = neighbours.speeds(one, others, type).prod()
            total += float(neighbours.worth(one, type, np.array([speed]))[0])
    assert (used <= menu.capacity).all()
    assert plan.worth == pytest.approx(total)
    return total


def cluster(
    gpus: int, jobs: int, seed: int = 0, now: Ints | None = None
) -> tuple[Menu, Neighbours]:
    drawn = workload.drawn(gpus, jobs, seed)
    now = np.full(jobs, -1) if now is None else now
    return drawn.menu(now), drawn.neighbours(now, 3)


def two_jobs(speed: float, **changes: object) -> tuple[Menu, Neighbours]:
    """Two equal jobs, on one GPU, each worth its speed."""
    menu = Menu(np.ones((2, 1)), np.array([1]), np.array([0]), np.array([1]))

    def speeds(a: Ints, b: Ints, type: int) -> Floats:
        return np.full((len(a), len(b)), speed)

    def each(a: Ints, b: Ints, type: int) -> Floats:
        return np.full(len(a), speed)

    def worth_at(jobs: Ints, type: int, speed: Floats) -> Floats:
        return np.asarray(speed + 0.0 * jobs)

    near = Neighbours(np.ones(2, bool), np.ones(2), np.array([2.0]), speeds, each, worth_at)
    return menu, replace(near, **changes)  # type: ignore[arg-type]  # one of its fields


@pytest.mark.slow
@settings(max_examples=300)
@given(SEEDS)
@example(0)
def test_in_pairs_it_is_almost_the_best_there_is(seed: int) -> None:
    menu, neighbours = menus.drawn(seed)
    neighbours = replace(neighbours, members_max=2)
    plan = shared(menu, neighbours, seed)
    assert worth(menu, neighbours, plan) >= 0.99 * milp.solve(menu, neighbours)


@pytest.mark.parametrize("seed", range(20))
def test_with_some_more_jobs_it_is_so_too(seed: int) -> None:
    menu, neighbours = menus.drawn(seed, jobs_min=13, jobs_max=24)
    neighbours = replace(neighbours, members_max=2)
    plan = shared(menu, neighbours, seed)
    assert worth(menu, neighbours, plan) >= 0.99 * milp.solve(menu, neighbours)


@settings(max_examples=100)
@given(SEEDS)
def test_a_third_job_is_never_a_loss(seed: int) -> None:
    menu, neighbours = menus.drawn(seed, jobs_max=7)
    assume(
        exact.is_small(menu, GroupValues(menu, neighbours).sharing)
    )  # so that the pairs are the best
    pairs = shared(menu, replace(neighbours, members_max=2), seed)
    plan = shared(menu, neighbours, seed)
    assert worth(menu, neighbours, plan) >= pairs.worth * (1 - 1e-9)


@pytest.mark.parametrize(("gpus", "jobs"), [(64, 160), (512, 1_500)])
def test_on_many_gpus_sharing_pays_and_a_third_job_does_too(gpus: int, jobs: int) -> None:
    menu, neighbours = cluster(gpus, jobs)
    apart = menu.value(chosen(menu, priced(menu)))
    pairs = shared(menu, replace(neighbours, members_max=2), 0)
    three = shared(menu, neighbours, 0)
    assert worth(menu, replace(neighbours, members_max=2), pairs) > 1.1 * apart
    assert worth(menu, neighbours, three) > 1.01 * pairs.worth
    assert {len(group) for group in three.groups} == {2, 3}


def test_the_same_seed_is_the_same_plan() -> None:
    menu, neighbours = cluster(64, 160)
    first, second = (shared(menu, neighbours, 7) for _ in range(2))
    assert (first.choice == second.choice).all()
    assert first.groups == second.groups


@pytest.mark.parametrize(
    ("speed", "changes", "together"),
    [
        (0.6, {}, True),
        (0.4, {}, False),
        (0.9, {"shareable": np.array([True, False])}, False),
        (0.9, {"memory": np.array([1.0, 1.5])}, False),
    ],
    ids=["pays", "harms", "does not share", "memory"],
)
def test_two_share_if_both_get_more_out_of_it_than_one(
    speed: float, changes: dict[str, object], together: bool
) -> None:
    menu, neighbours = two_jobs(speed, **changes)
    plan = shared(menu, neighbours, 0)
    assert plan.groups == (((0, 1),) if together else ())
    assert worth(menu, neighbours, plan) == pytest.approx(2 * speed if together else 1.0)


def test_a_pair_that_has_turned_out_to_harm_is_split() -> None:
    menu, neighbours = two_jobs(0.3)
    before = Allotment(np.array([0, 0]), ((0, 1),))
    plan = shared(menu, neighbours, 0, before)
    assert not plan.groups
    assert sorted(plan.choice.tolist()) == [-1, 0]


def test_what_is_there_stays_if_nothing_is_better() -> None:
    menu, neighbours = two_jobs(1.0)
    menu = replace(menu, worth=np.ones((4, 1)), capacity=np.array([2]))
    neighbours = replace(neighbours, shareable=np.ones(4, bool), memory=np.ones(4))
    for groups in (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))):
        plan = shared(menu, neighbours, 0, Allotment(np.zeros(4, np.intp), groups))
        assert plan.groups == groups


@settings(max_examples=40)
@given(SEEDS, st.booleans())
def test_whatever_was_there_the_plan_is_possible_and_not_worse(seed: int, few: bool) -> None:
    menu, neighbours = menus.drawn(seed, jobs_max=20)
    chance = np.random.default_rng(seed)
    jobs, columns = menu.worth.shape
    order = chance.permutation(jobs).tolist()
    choice = np.array(chance.integers(-1, columns, jobs), np.intp)
    groups = tuple(tuple(order[at : at + 4]) for at in range(0, jobs // 2, 4))  # one too many
    for group in groups:
        choice[list(group)] = choice[group[0]]
    limits = Limits(np.array(order[:2]), 1) if few else None
    plan = shared(menu, neighbours, seed, Allotment(choice, groups), limits)
    worth(menu, neighbours, plan)
    again = shared(menu, neighbours, seed + 1, plan, limits)
    assert worth(menu, neighbours, again) >= plan.worth * (1 - 1e-9)


def test_few_blocks_touch_few_groups_and_first_those_of_changed_jobs() -> None:
    drawn = workload.drawn(512, 1_500, 0)
    plan = shared(drawn.menu(np.full(1_500, -1)), drawn.neighbours(np.full(1_500, -1), 3), 0)
    changed = np.flatnonzero(plan.choice < 0)[:15]
    menu = drawn.menu(plan.choice)
    menu.worth[changed] *= 3
    neighbours = drawn.neighbours(plan.choice, 3)
    after = shared(menu, neighbours, 1, plan, Limits(changed, 1))
    assert worth(menu, neighbours, after) > plan.worth
    assert (after.choice[changed] >= 0).mean() > 0.5
    before = set(plan.groups)
    assert len(before & set(after.groups)) > 0.8 * len(before)


def test_prices_that_are_known_need_not_be_found_again() -> None:
    menu, neighbours = cluster(512, 1_500)
    plan = shared(menu, neighbours, 0)
    assert plan.prices is not None
    for prices in (plan.prices, None):
        again = shared(menu, neighbours, 0, replace(plan, prices=prices))
        assert worth(menu, neighbours, again) >= plan.worth


@pytest.mark.parametrize("jobs", [0, 3])
def test_without_configurations_no_job_has_anything(jobs: int) -> None:
    nothing = np.zeros(0, np.intp)
    menu = Menu(np.zeros((jobs, 0)), nothing, nothing, np.array([4]))
    _, neighbours = two_jobs(1.0, shareable=np.ones(jobs, bool), memory=np.ones(jobs))
    plan = shared(menu, neighbours, 0)
    assert plan.choice.tolist() == [-1] * jobs
    assert plan.groups == ()


def test_a_type_without_a_configuration_of_one_gpu_is_not_shared() -> None:
    menu, neighbours = two_jobs(1.0, capacity=np.array([2.0, 2.0]))
    menu = Menu(np.ones((2, 2)), np.array([1, 2]), np.array([0, 1]), np.array([0, 2]))
    plan = shared(menu, neighbours, 0)
    assert worth(menu, neighbours, plan) == 1.0
    assert plan.groups == ()
