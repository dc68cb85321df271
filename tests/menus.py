"""Menus and neighbours drawn at random: few jobs, on few GPUs of up to three types."""

from __future__ import annotations

import numpy as np

from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.pairing import Neighbours

COUNTS = np.array([1, 2, 4, 8])


def drawn(seed: int, jobs_min: int = 1, jobs_max: int = 12) -> tuple[Menu, Neighbours]:
    chance = np.random.default_rng(seed)
    jobs, types = int(chance.integers(jobs_min, jobs_max + 1)), int(chance.integers(1, 4))
    count, type = np.tile(COUNTS, types), np.repeat(np.arange(types), len(COUNTS))
    exponent = float(chance.choice([0.3, 0.5, 0.75, 1.0]))
    weight = chance.lognormal(0, 0.7 * chance.integers(0, 3), (jobs, 1))  # all alike, or far apart
    fast = chance.lognormal(0, 0.5, types)
    loss = chance.uniform(0, 0.3, (jobs, 1))
    most = chance.choice([1, 1, 2, 4, 8], (jobs, 1))
    capacity, memory = chance.choice([16.0, 24.0, 40.0], types), chance.uniform(1, 30, jobs)
    possible = (
        (count <= most) & (memory[:, None] <= capacity[type]) & (chance.random(jobs) < 0.9)[:, None]
    )
    pace = fast[type] * count / (1 + loss * (count - 1))
    worth = np.where(possible, weight * pace**exponent, -np.inf)
    sensitivity, pressure = chance.uniform(0, 1, jobs), chance.uniform(0, 1.5, jobs)
    single = np.arange(types) * len(COUNTS)

    def speeds(a: Ints, b: Ints, type: int) -> Floats:
        return each(a[:, None], b, type)

    def each(a: Ints, b: Ints, type: int) -> Floats:
        return np.asarray(1 / (1 + sensitivity[a] * pressure[b]))

    def worth_at(jobs: Ints, type: int, speed: Floats) -> Floats:
        return np.asarray(worth[jobs, single[type]] * speed**exponent)

    menu = Menu(worth, count, type, chance.integers(0, 9, types))
    shareable = chance.random(jobs) < 0.8
    return menu, Neighbours(shareable, memory, capacity, speeds, each, worth_at)
