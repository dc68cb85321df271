"""An upper bound for the worth of any plan in which at most two jobs share a GPU.

It is the dual of the linear relaxation: for any prices per GPU, the sum of the surplus of jobs, of
the additional surplus of pairs, and of the GPUs at their prices. The pairs' part is the largest
fractional matching. It is bounded by a potential of each job: the potentials of two jobs together
are not less than the gain of the pair.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from scheduler.estimates.arrays import Floats
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.pairing import Neighbours
from scheduler.planning.optimizer.prices import responded
from tests.milp import pairs

Gains = npt.NDArray[np.float32]

STRIP = 1_000  # rows of the matrix of gains at once
EXACT = 2_000  # jobs that may share: for more, the matching is bounded instead of solved
STEPS = ((0.1, 8), (0.03, 10), (0.01, 12), (0.004, 14), (0.0015, 14))  # temperature, turns


def relaxed(menu: Menu, neighbours: Neighbours, prices: Floats) -> float:
    _, surplus = responded(menu, prices)
    alone = float(surplus.sum() + prices @ menu.capacity)
    jobs = np.flatnonzero(neighbours.shareable)
    gains = np.empty((len(jobs), len(jobs)), np.float32)
    for at in range(0, len(jobs), STRIP):
        rows = jobs[at : at + STRIP]
        gain = pairs(menu, neighbours, rows, jobs) - prices[:, None, None]
        gains[at : at + STRIP] = gain.max(axis=0) - surplus[rows][:, None] - surplus[jobs]
    np.maximum(gains, 0.0, out=gains)
    np.fill_diagonal(gains, 0.0)
    if len(jobs) <= EXACT:
        row, column = linear_sum_assignment(gains, maximize=True)
        return alone + float(gains[row, column].sum()) / 2
    return alone + _matching_at_most(gains)


def _matching_at_most(gains: Gains) -> float:
    """Uses Sinkhorn's iteration with falling temperature; two jobs share what is then missing."""
    potential = gains.max(axis=1) / 2
    least = _repaired(gains, potential)
    for heat, turns in STEPS:
        for _ in range(turns):
            wanted = np.empty_like(potential)
            for at in range(0, len(gains), STRIP):
                rest = gains[at : at + STRIP] - potential
                most = rest.max(axis=1)
                rest = np.exp(np.maximum((rest - most[:, None]) / heat, -30))
                wanted[at : at + STRIP] = most + heat * np.log(rest.sum(axis=1))
            potential = (potential + wanted) / 2
        least = min(least, _repaired(gains, potential))
    return least


def _repaired(gains: Gains, potential: Gains) -> float:
    lacking = np.empty_like(potential)
    for at in range(0, len(gains), STRIP):
        rows = gains[at : at + STRIP] - potential[at : at + STRIP, None] - potential
        lacking[at : at + STRIP] = rows.max(axis=1)
    enough = np.maximum(potential + np.maximum(lacking, 0) / 2, 0)
    return float(enough.sum(dtype=np.float64))
