"""The cost of a decision of the optimizer: `python -m benchmarks.decision`.

Random jobs on GPUs of up to four types (workload.py); CPU seconds, on one thread.

    cpu_seconds    the first decision, with no job running: the minimum of three, because other
                   work on the machine adds to it
    gap            the gap to the bound (bounds.py), both with at most two jobs on a GPU, because
                   there is no bound for three; null: the bound cannot be computed for the largest
    milp_gap       the gap to the optimum, up to 64 GPUs, where it can be computed
    sharing_gain   how much more it is worth than the best decision found without sharing
    third_gain     how much more it is worth if three jobs may share a GPU
    tick_seconds   a decision after 1 % of the jobs have been replaced: the median of five
                   consecutive ones
    tick_gap       the gap of the last of them to a first decision
    rss_mib        peak memory
"""

from __future__ import annotations

import os

# One thread: numpy reads this when it is imported.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from benchmarks.bounds import relaxed
from benchmarks.figures import options, show
from benchmarks.workload import Workload, drawn
from scheduler.estimates.arrays import Ints
from scheduler.planning.optimizer.pairing import Allotment, Limits, shared
from scheduler.planning.optimizer.prices import chosen, priced
from tests.milp import solve

BOUND_MAX = 20_000  # jobs: for more, the matrix of gains does not fit in memory
MILP_MAX = 64  # GPUs
MILP_GAP = 1e-4
TICKS, REPLACED, BLOCKS = 5, 0.01, 16
Result = TypeVar("Result")


def main() -> None:
    given = options(__doc__, gpus=4_096, jobs=10_000, seed=0)
    workload = drawn(given.gpus, given.jobs, given.seed)
    unplaced = np.full(given.jobs, -1)
    menu = workload.menu(unplaced)
    two, three = (workload.neighbours(unplaced, most) for most in (2, 3))
    runs = [_timed(partial(shared, menu, three, given.seed)) for _ in range(3)]
    first = runs[0][1]
    ticks, tick_gap = _ticks(workload, first, given.gpus, given.seed)
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    pairs = shared(menu, two, given.seed)
    prices = priced(menu)
    apart = menu.value(chosen(menu, prices))
    lowest = prices.per_gpu if pairs.prices is None else pairs.prices
    bound = relaxed(menu, two, lowest) if given.jobs <= BOUND_MAX else None
    most = solve(menu, two, MILP_GAP) if given.gpus <= MILP_MAX else None
    show(
        cpu_seconds=round(min(seconds for seconds, _ in runs), 3),
        gap=bound and _less(pairs.worth, bound),
        milp_gap=most and _less(pairs.worth, most),
        sharing_gain=-_less(pairs.worth, apart),
        third_gain=-_less(first.worth, pairs.worth),
        tick_seconds=round(statistics.median(ticks), 3),
        tick_gap=tick_gap,
        rss_mib=round(rss_mib),
    )


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def _less(worth: float, than: float) -> float:
    return round(1 - worth / than, 5)


def _ticks(workload: Workload, plan: Allotment, gpus: int, seed: int) -> tuple[list[float], float]:
    """Decisions in each of which some jobs have ended and as many new ones wait."""
    chance = np.random.default_rng(seed)
    jobs = len(plan.choice)
    seconds = list[float]()
    for tick in range(TICKS):
        rows = np.sort(chance.choice(jobs, max(1, int(REPLACED * jobs)), replace=False))
        other = drawn(gpus, jobs, seed + 1 + tick)
        workload = workload.with_new(rows, other)
        plan = _without(plan, rows)
        menu, neighbours = workload.menu(plan.choice), workload.neighbours(plan.choice, 3)
        limits = Limits(rows, BLOCKS)
        spent, plan = _timed(partial(shared, menu, neighbours, seed + tick, plan, limits))
        seconds.append(spent)
    return seconds, _less(plan.worth, shared(menu, neighbours, seed).worth)


def _without(plan: Allotment, rows: Ints) -> Allotment:
    choice = plan.choice.copy()
    choice[rows] = -1
    gone = set(rows.tolist())
    rest = [tuple(job for job in group if job not in gone) for group in plan.groups]
    groups = tuple(group for group in rest if len(group) > 1)
    return Allotment(choice, groups, plan.worth, plan.prices)


if __name__ == "__main__":
    main()
