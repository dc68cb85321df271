"""What jobs are worth beside each other on one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer.groups import GroupValues, Neighbours
from scheduler.planning.optimizer.menu import Menu


def case(
    *slows: float, memory: Sequence[float] = (), types: int = 1
) -> tuple[Menu, Neighbours, GroupValues]:
    """Jobs worth 1 alone. Each slows its neighbours to this speed; a GPU has 10 of memory."""
    jobs = len(slows)
    factor = np.array(slows)

    def each(a: Ints, b: Ints, type: int) -> Floats:
        return np.asarray(np.broadcast_to(factor[b], np.broadcast_shapes(a.shape, b.shape)).copy())

    def speeds(a: Ints, b: Ints, type: int) -> Floats:
        return each(a[:, None], b, type)

    def worth(jobs: Ints, type: int, speed: Floats) -> Floats:
        return np.asarray(speed + 0.0 * jobs)

    menu = Menu(np.ones((jobs, types)), np.ones(types, int), np.arange(types), np.full(types, 9))
    takes = np.array(memory or [1.0] * jobs, float)
    near = Neighbours(np.ones(jobs, bool), takes, np.full(types, 10.0), speeds, each, worth)
    return menu, near, GroupValues(menu, near)


def group(near: Neighbours, *jobs: int) -> Ints:
    members = near.rows(np.array(jobs[:1]))
    members[0, : len(jobs)] = jobs
    return members


def test_two_are_worth_what_each_is_at_its_speed_beside_the_other() -> None:
    _, _, values = case(0.9, 0.6)
    pairs = values.pairs(np.arange(2))[0]
    assert pairs[0, 1] == pytest.approx(0.6 + 0.9)
    assert pairs[0, 1] == pairs[1, 0]


def test_of_several_the_speeds_multiply() -> None:
    _, near, _ = case(0.9, 0.8, 0.5)
    speeds = near.together(group(near, 0, 1, 2), 0)[0]
    assert speeds[:3].tolist() == pytest.approx([0.8 * 0.5, 0.9 * 0.5, 0.9 * 0.8])


def test_what_does_not_fit_together_is_not_possible() -> None:
    _, near, values = case(1.0, 1.0, 1.0, memory=(6.0, 5.0, 4.0))
    pairs = values.pairs(np.arange(3))[0]
    assert pairs[0, 1] == -np.inf
    assert pairs[0, 2] == pytest.approx(2.0)
    assert near.gain_of_joining(group(near, 0, 2), np.array([1]), 0).tolist() == [[0.0]]


def test_a_guest_gains_what_it_is_worth_less_what_it_costs_its_hosts() -> None:
    _, near, _ = case(0.9, 0.6)
    gain = near.gain_of_joining(group(near, 0), np.array([1]), 0)
    assert gain[0, 0] == pytest.approx(0.9 - (1.0 - 0.6))


def test_a_guest_that_costs_more_than_it_is_worth_gains_nothing() -> None:
    _, near, _ = case(0.1, 0.1)
    assert near.gain_of_joining(group(near, 0), np.array([1]), 0)[0, 0] == 0.0


def test_a_job_that_does_not_share_is_in_no_pair() -> None:
    menu, near, _ = case(1.0, 1.0, 1.0)
    values = GroupValues(menu, replace(near, shareable=np.array([True, False, True])))
    assert values.sharing.tolist() == [0, 2]
    pairs = values.pairs(np.arange(3))[0]
    assert (pairs[1] == -np.inf).all()
    assert pairs[0, 2] == pytest.approx(2.0)


def test_a_job_that_cannot_be_on_a_type_is_in_no_group_there() -> None:
    menu, near, _ = case(1.0, 1.0, types=2)
    worth = menu.worth.copy()
    worth[1, 1] = -np.inf
    values = GroupValues(replace(menu, worth=worth), near)
    assert values.pairs(np.arange(2))[:, 0, 1].tolist() == [2.0, -np.inf]
    groups = values.on(np.concatenate([group(near, 0, 1)] * 2), np.array([0, 1]))
    assert groups.worth.tolist() == [[2.0, -np.inf], [-np.inf, -np.inf]]


def test_everyone_is_alone_or_the_first_of_a_group() -> None:
    _, near, values = case(1.0, 1.0, 1.0)
    everyone = values.everyone(values.on(group(near, 2, 0), np.array([0])))
    assert everyone[:, :2].tolist() == [[0, -1], [1, -1], [2, 0]]
    assert values.on(group(near, 2, 0), np.array([0])).others().tolist() == [0]
