from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scheduler.planning.optimizer import exact
from scheduler.planning.optimizer.groups import GroupValues
from scheduler.planning.optimizer.menu import Menu
from tests import menus, milp


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_with_pairs_it_is_the_best_there_is(seed: int) -> None:
    menu, neighbours = menus.drawn(seed, jobs_max=7)
    company = GroupValues(menu, neighbours)
    assume(exact.is_small(menu, company.sharing))
    choice, found = exact.solve(menu, company.sharing, company.pairs(company.sharing))
    worth, used = menu.value(choice), menu.used(choice)
    members = [job for a, b, _ in found for job in (a, b)]
    assert len(set(members)) == len(members)
    assert (choice[members] == -1).all()
    offers = milp.pairs(menu, neighbours, np.arange(len(choice)), np.arange(len(choice)))
    for a, b, type in found:
        assert offers[type, a, b] > 0
        worth += offers[type, a, b]
        used[type] += 1
    assert (used <= menu.capacity).all()
    assert worth == pytest.approx(milp.solve(menu, neighbours))


def test_many_jobs_or_many_gpus_are_too_much() -> None:
    no_jobs = np.zeros(0, np.intp)

    def menu(jobs: int, gpus: int) -> Menu:
        return Menu(np.ones((jobs, 1)), np.array([1]), np.array([0]), np.array([gpus]))

    assert exact.is_small(menu(20, 8), no_jobs)
    assert exact.is_small(menu(20, 10**9), no_jobs)  # more than they could use
    assert not exact.is_small(menu(1_000, 8), no_jobs)
    assert exact.is_small(menu(10, 8), np.arange(10))
    assert not exact.is_small(menu(30, 8), np.arange(30))
