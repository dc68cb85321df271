"""Parallel trials give the same results as consecutive ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

import pytest

from simulator.trials.study import Task, WorkerDied, run_study
from tests.simulator.little import RULES, job, nodes

JOBS = [job(f"j{n}", at=20.0 * n) for n in range(6)]


def task(seed: int, policy: str = "fifo_sharing") -> Task:
    return Task(policy, seed, JOBS[: 6 - seed], nodes(2), RULES, 20.0)


def test_two_processes_come_to_the_same_as_one() -> None:
    tasks = [task(seed) for seed in range(3)]
    shares: dict[int, float] = {}

    def progress(number: int, share: float) -> None:
        shares[number] = share

    alone, together = (run_study(tasks, processes, progress) for processes in (1, 2))
    assert alone == together
    assert [entry.seed for entry in together] == [0, 1, 2]
    assert shares == {0: 1.0, 1: 1.0, 2: 1.0}


class Dying(Task):
    def run(self, progress: Callable[[float], None]) -> NoReturn:
        os._exit(3)


def test_a_process_that_dies_is_named() -> None:
    dying = Dying("fifo_sharing", 7, JOBS, nodes(2), RULES, 20.0)
    with pytest.raises(WorkerDied, match=r"^fifo_sharing, seed 7: the process ended with code 3$"):
        run_study([task(0), dying], 2, lambda number, share: None)
