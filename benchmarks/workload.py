"""Random jobs and GPUs as arrays: the input of the optimizer's benchmark.

There are 2.5 jobs per GPU, and four types of GPU from 512 GPUs on. 45 % of the jobs want one GPU,
the others up to 32; 80 % may share, with 2 to 40 GiB each. The speed on n GPUs grows as
n / (1 + a (n - 1) + b ln n), and less on several nodes; the worth is weight x speed^0.75, and a
move costs 2 to 20 % of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.pairing import Neighbours

COUNTS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32])
EXPONENT = 0.75
USABLE = 0.95  # of a GPU's memory


@dataclass(frozen=True)
class Workload:
    worth: Floats  # [jobs, configurations] without a move
    count: Ints
    type: Ints
    capacity: Ints
    restart: Floats  # [jobs] part of the worth that a move costs
    shareable: Bools
    memory: Floats  # [jobs] GiB
    gib: Floats  # [types] GiB
    sensitivity: Floats  # [jobs]
    pressure: Floats  # [jobs]

    def menu(self, now: Ints) -> Menu:
        """`now`: the current configuration of each job; -1: none."""
        stays = np.arange(len(self.count)) == now[:, None]
        cost = np.where((now[:, None] >= 0) & ~stays, self.restart[:, None], 0.0)
        return Menu(self.worth * (1 - cost), self.count, self.type, self.capacity)

    def neighbours(self, now: Ints, members_max: int) -> Neighbours:
        menu = self.menu(now)
        single = [int(np.flatnonzero(menu.type == t)[0]) for t in range(len(menu.capacity))]

        def speeds(a: Ints, b: Ints, type: int) -> Floats:
            return each(a[:, None], b, type)

        def each(a: Ints, b: Ints, type: int) -> Floats:
            return np.maximum(1 / (1 + 0.9 * self.sensitivity[a] * self.pressure[b]), 0.5)

        def worth(jobs: Ints, type: int, speed: Floats) -> Floats:
            return np.asarray(menu.worth[jobs, single[type]] * speed**EXPONENT)

        return Neighbours(
            self.shareable, self.memory, USABLE * self.gib, speeds, each, worth, members_max
        )

    def with_new(self, rows: Ints, other: Workload) -> Workload:
        """Replaces some jobs by those of another workload of the same cluster."""

        def mixed(mine: Floats, others: Floats) -> Floats:
            result = mine.copy()
            result[rows] = others[rows]
            return result

        return Workload(
            worth=mixed(self.worth, other.worth),
            count=self.count,
            type=self.type,
            capacity=self.capacity,
            restart=mixed(self.restart, other.restart),
            shareable=mixed(self.shareable.astype(float), other.shareable.astype(float)) > 0.0,
            memory=mixed(self.memory, other.memory),
            gib=self.gib,
            sensitivity=mixed(self.sensitivity, other.sensitivity),
            pressure=mixed(self.pressure, other.pressure),
        )


def drawn(gpus: int, jobs: int, seed: int) -> Workload:
    chance = np.random.default_rng(seed)
    if gpus <= 8:
        kinds = [(40, 4, 1.0, 1.0)]  # GiB, GPUs of a node, share of the GPUs, speed
    elif gpus <= 64:
        kinds = [(24, 4, 0.5, 1.0), (80, 8, 0.5, 2.2)]
    else:
        kinds = [(16, 4, 0.2, 1.0), (24, 8, 0.25, 1.5), (40, 8, 0.35, 2.5), (80, 8, 0.2, 4.0)]
    gib, node, part, speed = (np.array(column) for column in zip(*kinds, strict=True))
    capacity = np.rint(gpus * part / node).astype(np.intp) * node
    count, type = np.tile(COUNTS, len(kinds)), np.repeat(np.arange(len(kinds)), len(COUNTS))

    most = chance.choice([2, 4, 8, 16, 32], jobs, p=[0.3, 0.35, 0.25, 0.07, 0.03])
    most = np.where(chance.random(jobs) < 0.45, 1, most)
    memory = np.clip(chance.lognormal(np.log(8), 0.8, jobs), 2, 40)
    a, b = chance.uniform(0.005, 0.12, (jobs, 1)), chance.uniform(0, 0.15, (jobs, 1))
    network = chance.uniform(0, 0.3, (jobs, 1))
    weight = chance.choice([1.0, 2.0, 4.0], jobs, p=[0.7, 0.2, 0.1]) * chance.lognormal(
        0, 0.5, jobs
    )
    weight *= 1 + np.minimum(3, chance.exponential(0.5, jobs))
    fast = (speed / speed.max()) ** chance.uniform(0.6, 1.1, (jobs, 1))
    pace = count / (1 + a * (count - 1) + b * np.log(count)) * fast[:, type]
    pace = np.where(count > node[type], pace / (1 + network), pace)
    possible = (count <= most[:, None]) & (memory[:, None] <= USABLE * gib[type])
    possible &= count <= capacity[type]
    return Workload(
        worth=np.where(possible, weight[:, None] * pace**EXPONENT, -np.inf),
        count=count,
        type=type,
        capacity=capacity,
        restart=chance.uniform(0.02, 0.2, jobs),
        shareable=chance.random(jobs) > 0.2,
        memory=memory,
        gib=gib,
        sensitivity=chance.uniform(0.05, 1, jobs),
        pressure=chance.uniform(0.05, 1, jobs),
    )
