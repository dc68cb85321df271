"""The reference for the optimizer: the best plan by mixed-integer programming, with a column for
each job and configuration, and one for each pair of jobs and type of GPU."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.pairing import Neighbours

GAP = 1e-6
NODES_MAX = 50_000


def solve(menu: Menu, neighbours: Neighbours | None = None, gap: float = GAP) -> float:
    """The worth of the best plan. Without neighbours no jobs share."""
    jobs, types = len(menu.worth), len(menu.capacity)
    job, column = np.nonzero(menu.worth > 0)
    worth = menu.worth[job, column]
    rows = [job, jobs + menu.type[column]]
    columns = [np.arange(len(worth))] * 2
    uses = [np.ones(len(worth)), menu.count[column].astype(float)]
    if neighbours:
        sharing = np.flatnonzero(neighbours.shareable)
        offers = np.triu(pairs(menu, neighbours, sharing, sharing), 1)
        type, a, b = np.nonzero(offers > 0)
        new = len(worth) + np.arange(len(type))
        worth = np.append(worth, offers[type, a, b])
        rows += [sharing[a], sharing[b], jobs + type]
        columns += [new] * 3
        uses += [np.ones(len(new))] * 3
    if not len(worth):
        return 0.0
    where = np.concatenate(rows), np.concatenate(columns)
    matrix = csr_array((np.concatenate(uses), where), shape=(jobs + types, len(worth)))
    result = milp(
        -worth,
        constraints=LinearConstraint(matrix, ub=np.append(np.ones(jobs), menu.capacity)),
        integrality=np.ones(len(worth)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": gap, "node_limit": NODES_MAX},
    )
    assert result.status == 0, result.message
    return -float(result.fun)


def pairs(menu: Menu, neighbours: Neighbours, a: Ints, b: Ints) -> Floats:
    """[types, a, b] The worth of two jobs on one GPU; 0: not possible."""
    offers = np.zeros((len(menu.capacity), len(a), len(b)))
    for column in np.flatnonzero(menu.count == 1).tolist():
        type = int(menu.type[column])
        here, there = menu.worth[a, column] > -np.inf, menu.worth[b, column] > -np.inf
        fits = neighbours.memory[a][:, None] + neighbours.memory[b] <= neighbours.capacity[type]
        first = neighbours.worth(a[:, None], type, neighbours.speeds(a, b, type))
        second = neighbours.worth(b[:, None], type, neighbours.speeds(b, a, type)).T
        offers[type] = np.where(here[:, None] & there & fits, first + second, 0.0)
    return offers
