from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks import workload
from scheduler.estimates.arrays import Ints
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.prices import (
    Prices,
    chosen,
    fill,
    priced,
    reduce_to_fit,
    responded,
)
from tests import menus, milp

SEEDS = st.integers(0, 2**32 - 1)


def fits(menu: Menu, choice: Ints) -> bool:
    possible = menu.of(choice) > -np.inf
    return bool(possible.all() and (menu.used(choice) <= menu.capacity).all())


def large(gpus: int = 512, jobs: int = 1_500, seed: int = 0) -> Menu:
    """Too large for any method but prices."""
    return workload.drawn(gpus, jobs, seed).menu(np.full(jobs, -1))


@pytest.mark.slow
@settings(max_examples=300)
@given(SEEDS)
@example(0)
def test_what_is_chosen_fits_and_is_almost_the_best_there_is(seed: int) -> None:
    menu, _ = menus.drawn(seed)
    choice = chosen(menu, priced(menu))
    assert fits(menu, choice)
    assert menu.value(choice) >= (1 - 0.001) * milp.solve(menu)


@settings(max_examples=100)
@given(SEEDS)
def test_nothing_that_fits_is_worth_more_than_the_bound(seed: int) -> None:
    menu, _ = menus.drawn(seed)
    assert milp.solve(menu) <= priced(menu).bound * (1 + 1e-6) + 1e-9


@settings(max_examples=100)
@given(SEEDS)
def test_whatever_the_prices_are_what_is_put_right_fits(seed: int) -> None:
    menu, _ = menus.drawn(seed)
    per_gpu = np.random.default_rng(seed).lognormal(0, 2, len(menu.capacity))
    prices = Prices(per_gpu, np.inf)
    choice, _ = responded(menu, per_gpu)
    less = reduce_to_fit(menu, prices, choice)
    more = fill(menu, prices, less)
    assert fits(menu, less)
    assert fits(menu, more)
    assert menu.value(more) >= menu.value(less) - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_on_many_gpus_the_choice_is_almost_worth_the_bound(seed: int) -> None:
    menu = large(seed=seed)
    prices = priced(menu)
    choice = chosen(menu, prices)
    assert fits(menu, choice)
    assert menu.value(choice) >= 0.999 * prices.bound


def test_old_prices_lead_to_the_same_bound_however_old_they_are() -> None:
    menu = large()
    bound = priced(menu).bound
    for factor in (0.0, 0.5, 0.99, 1.0, 3.0, 1e6):
        again = priced(menu, factor * priced(menu).per_gpu)
        assert again.bound == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_worth_does_not_matter(unit: float) -> None:
    menu = large()
    other = replace(menu, worth=menu.worth * unit)
    prices = priced(other)
    assert prices.bound == pytest.approx(priced(menu).bound * unit, rel=1e-4)
    assert other.value(chosen(other, prices)) >= 0.999 * prices.bound


def test_twice_the_same_menu_is_twice_the_same_choice() -> None:
    menu = large()
    first, second = (chosen(menu, priced(menu)) for _ in range(2))
    assert (first == second).all()


def test_jobs_that_are_all_alike_share_out_all_there_is() -> None:
    jobs = 1_000
    menu = Menu(
        worth=np.tile([1.0, 1.5], (jobs, 1)),
        count=np.array([1, 2]),
        type=np.array([0, 0]),
        capacity=np.array([700]),
    )
    choice = chosen(menu, priced(menu))
    assert menu.value(choice) == 700
    assert menu.used(choice) == [700]


def test_gpus_that_no_job_wants_cost_nothing() -> None:
    menu = Menu(np.array([[3.0]]), np.array([1]), np.array([0]), np.array([5]))
    assert priced(menu).per_gpu == pytest.approx([0.0])
    assert chosen(menu, priced(menu)).tolist() == [0]


@pytest.mark.parametrize(
    "menu",
    [
        Menu(np.zeros((0, 2)), np.array([1, 2]), np.array([0, 0]), np.array([4])),
        Menu(np.zeros((3, 0)), np.zeros(0, np.intp), np.zeros(0, np.intp), np.array([4])),
        Menu(np.full((3, 1), -np.inf), np.array([1]), np.array([0]), np.array([4])),
        Menu(np.ones((3, 1)), np.array([1]), np.array([0]), np.array([0])),
        Menu(np.full((3, 1), -1.0), np.array([1]), np.array([0]), np.array([4])),
    ],
    ids=["no jobs", "no configurations", "nothing possible", "no GPUs", "worth less than nothing"],
)
def test_no_job_has_anything_without_gpus(menu: Menu) -> None:
    assert (chosen(menu, priced(menu)) == -1).all()


def test_what_is_far_too_much_is_lowered_step_by_step() -> None:
    """No single step is enough; it must not wait for one that is, which would take for ever."""
    menu = Menu(
        worth=np.array([[1.9, 2.0]] * 4),
        count=np.array([1, 2]),
        type=np.array([0, 0]),
        capacity=np.array([4]),
    )
    less = reduce_to_fit(menu, Prices(np.zeros(1), 8.0), np.ones(4, np.intp))
    assert less.tolist() == [0, 0, 0, 0]
