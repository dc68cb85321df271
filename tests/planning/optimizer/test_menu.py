"""What each job could have, and what it would be worth."""

from __future__ import annotations

import numpy as np

from scheduler.planning.optimizer.menu import Menu, mark

# Two jobs; one or two GPUs of a first type, one of a second.
MENU = Menu(
    worth=np.array([[1.0, 1.5, 3.0], [2.0, -np.inf, 4.0]]),
    count=np.array([1, 2, 1]),
    type=np.array([0, 0, 1]),
    capacity=np.array([4, 1, 7]),
)


def test_a_choice_uses_gpus_of_each_type() -> None:
    assert MENU.used(np.array([1, 0])).tolist() == [3, 0, 0]
    assert MENU.used(np.array([2, 0])).tolist() == [1, 1, 0]


def test_nothing_uses_nothing_and_is_worth_nothing() -> None:
    nothing = np.array([-1, -1])
    assert MENU.used(nothing).tolist() == [0, 0, 0]
    assert MENU.of(nothing).tolist() == [0.0, 0.0]


def test_a_choice_is_worth_what_each_job_has_of_it() -> None:
    choice = np.array([1, 2])
    assert MENU.of(choice).tolist() == [1.5, 4.0]
    assert MENU.value(choice) == 5.5


def test_rows_are_marked() -> None:
    assert mark(np.array([0, 3]), 4).tolist() == [True, False, False, True]
    assert not mark(np.array([], np.intp), 2).any()
