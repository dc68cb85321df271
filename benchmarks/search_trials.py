"""Searches in virtual time, and what they cost: for search.py, in a Python that has Optuna.

The goal of a search is a loss that half of all random searches of so many trials reach: those that
train each of their trials to the end. So a random search needs all of its GPU time, in the median.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

from benchmarks.figures import in_processes, options
from benchmarks.search_tasks import EPOCHS, TASKS
from benchmarks.search_world import Asked, searched
from cli.search import choose
from cli.search_space import space_of

PARALLEL, START_EPOCHS = 4, 0.1
COST_MAX = 2.0  # a search that has come to no end is given up then
DRAWN = 25  # searches' worth of random trials, from which the goal is found
METHODS = {
    "random": ("random", ""),
    "random_asha": ("random", "asha"),
    "tpe": ("tpe", ""),
    "tpe_asha": ("tpe", "asha"),
}


def main() -> None:
    given = options(
        __doc__, trials=40, seeds=12, tasks="shipped,late", methods=",".join(METHODS), processes=2
    )
    names = given.tasks.split(",")
    goals = {name: goal(name, given.trials) for name in names}
    works = {
        f"{name} {method} {seed}": partial(cost, name, method, seed, goals[name], given.trials)
        for name in names
        for method in given.methods.split(",")
        for seed in range(given.seeds)
    }
    told = "{:.2f}".format
    found = dict(in_processes(works, dict.fromkeys(works), told, given.processes))
    costs: dict[str, dict[str, Sequence[float]]] = {name: {} for name in names}
    for name in names:
        for method in given.methods.split(","):
            of = [found[f"{name} {method} {seed}"] for seed in range(given.seeds)]
            costs[name][method] = sorted(of)
    json.dump({"goals": goals, "costs": costs}, sys.stdout)


def goal(name: str, trials: int) -> float:
    task = TASKS[name]
    space = space_of(task.axes)
    bests = sorted(
        task.curve({key: str(value) for key, value in chosen.items()}).best()
        for chosen in (
            choose("random", space, number, f"goal-{name}", [], False)
            for number in range(DRAWN * trials)
        )
    )
    at: float = bests[round(len(bests) * (1 - 0.5 ** (1 / trials)))]
    return at


def cost(name: str, method: str, seed: int, goal: float, trials: int) -> float:
    """Relative to `trials` trials that are trained to the end."""
    how, rule = METHODS[method]
    task, whole = TASKS[name], trials * (EPOCHS + START_EPOCHS)
    asked = Asked(task.axes, how, EPOCHS, PARALLEL, rule)
    label = f"{name}-{method}-{seed}"
    found = searched(asked, label, task.curve, goal, COST_MAX * whole, START_EPOCHS)
    return min(COST_MAX, found.epochs_spent / whole)
