"""GPUs as goods: a price for each type at which the jobs would choose what all of them together can
have, and their choice made to fit. It works on arrays only; the worth of configurations is computed
in offer.py.

To give each job at most one configuration, within the GPUs of each type, is a knapsack problem with
one row per type. Its Lagrangian dual has one variable per type, a price, and is minimised by
cutting planes (Kelley 1960). At its minimum the jobs' own best choices almost fit: all but about as
many jobs as there are types, and those are corrected one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer import exact
from scheduler.planning.optimizer.menu import Menu

__all__ = ["Floats", "Ints", "Menu", "Prices", "chosen", "priced", "responded"]

ITERATIONS_MAX = 60
PARTS = 8
TOLERANCE = 1e-5  # of the bound
TRUST = 0.15  # how far prices may initially move from those given, relative
CANDIDATES = 4  # for each GPU that is left over, in each round
ROUNDS_MAX = 12  # of giving away what is left over


@dataclass(frozen=True, slots=True)
class Prices:
    per_gpu: Floats  # [types]
    bound: float  # no choice that fits is worth more


def priced(menu: Menu, start: Floats | None = None, tolerance: float = TOLERANCE) -> Prices:
    """The prices that minimise the bound; found sooner if those of a similar menu are given."""
    if not menu.worth.size:
        return Prices(np.zeros(len(menu.capacity)), 0.0)
    ceiling = _ceiling(menu)
    low, high = np.zeros_like(ceiling), ceiling
    best = Prices(low, np.inf)
    prices = low
    if start is not None:
        prices = np.clip(start, low, ceiling)
        low, high = _box(prices, ceiling)
    cuts = _Cuts(menu, ceiling)
    for turn in range(ITERATIONS_MAX):
        bound = cuts.add(prices)
        if bound < best.bound:
            best = Prices(prices, bound)
        lowest, floor = cuts.lowest(low, high)
        if best.bound - floor <= tolerance * abs(best.bound):
            near = 1e-6 * (high - low)
            stuck = (lowest <= low + near) & (low > 0)
            stuck |= (lowest >= high - near) & (high < ceiling)
            if not stuck.any():
                break
            low = np.where(stuck, 0.0, low)
            high = np.where(stuck, ceiling, high)
        # Half way back to the best so far, because the lowest point of few cuts is an extreme one.
        prices = lowest if turn % 2 else (lowest + best.per_gpu) / 2
    return best


def responded(menu: Menu, prices: Floats) -> tuple[Ints, Floats]:
    """What each job would buy for itself, and its worth beyond the price."""
    net = menu.worth - prices[menu.type] * menu.count
    choice = net.argmax(axis=1)
    surplus = net[np.arange(len(net)), choice]
    return np.where(surplus > 0, choice, -1), np.maximum(surplus, 0.0)


def chosen(menu: Menu, prices: Prices) -> Ints:
    """The configuration of each job, -1 for none; all together within the capacity."""
    if not menu.worth.size:
        return np.full(len(menu.worth), -1)
    no_jobs = np.zeros(0, np.intp)
    if exact.is_small(menu, no_jobs):
        return exact.solve(menu, no_jobs, np.zeros((len(menu.capacity), 0, 0)))[0]
    choice, _ = responded(menu, prices.per_gpu)
    return fill(menu, prices, reduce_to_fit(menu, prices, choice))


def _ceiling(menu: Menu) -> Floats:
    """For each type a price that no job would pay."""
    per_gpu = np.maximum(menu.worth.max(axis=0), 0.0) / menu.count
    ceiling = np.zeros(len(menu.capacity))
    np.maximum.at(ceiling, menu.type, per_gpu)
    return ceiling


def _box(prices: Floats, ceiling: Floats) -> tuple[Floats, Floats]:
    return prices * (1 - TRUST), np.minimum(prices * (1 + TRUST) + 1e-3 * ceiling, ceiling)


class _Cuts:
    """Planes below the jobs' surplus as a function of the prices. Each part of the jobs has its own
    planes, which is more precise than one plane for all jobs."""

    def __init__(self, menu: Menu, ceiling: Floats) -> None:
        self.menu = menu
        self.unit = max(float(ceiling.max()), 1e-300)  # of prices, so that numbers are not extreme
        self.part = np.arange(len(menu.worth)) % PARTS
        # What each job might buy; there are many other entries that no job would buy at any price.
        self.job, self.column = np.nonzero(menu.worth > 0)
        self.worth = menu.worth[self.job, self.column]
        self.first = np.flatnonzero(np.diff(self.job, prepend=-1))
        self.length = np.diff(self.first, append=len(self.job))
        self.planes, self.heights = list[Floats](), list[Floats]()

    def add(self, prices: Floats) -> float:
        """Adds the planes that touch at these prices; returns the bound there."""
        menu, types = self.menu, len(prices)
        job, choice, surplus = self._responded(prices)
        cell = self.part[job] * types + menu.type[choice]
        used = np.bincount(cell, menu.count[choice], minlength=PARTS * types)
        used = used.reshape(PARTS, types)
        have = np.bincount(self.part, surplus, minlength=PARTS) / self.unit
        self.planes.append(np.hstack([-used, -np.eye(PARTS)]))
        self.heights.append(-have - used @ (prices / self.unit))
        return float(surplus.sum() + prices @ menu.capacity)

    def _responded(self, prices: Floats) -> tuple[Ints, Ints, Floats]:
        """Which jobs buy something, what they buy, and the surplus of all jobs."""
        surplus = np.zeros(len(self.menu.worth))
        if not len(self.job):
            return self.job, self.column, surplus
        net = self.worth - (prices[self.menu.type] * self.menu.count)[self.column]
        most = np.maximum.reduceat(net, self.first)
        surplus[self.job[self.first]] = np.maximum(most, 0.0)
        # Of equal ones the first.
        best = np.flatnonzero((net == np.repeat(most, self.length)) & (net > 0.0))
        best = best[np.diff(self.job[best], prepend=-1) > 0]
        return self.job[best], self.column[best], surplus

    def lowest(self, low: Floats, high: Floats) -> tuple[Floats, float]:
        """The prices where the bound could be lowest, by these planes, and that bound."""
        # Without integer variables it equals `linprog`, and takes half the time.
        result = milp(
            np.append(self.menu.capacity, np.ones(PARTS)),
            constraints=LinearConstraint(np.vstack(self.planes), ub=np.concatenate(self.heights)),
            bounds=Bounds(
                np.append(low / self.unit, np.zeros(PARTS)),
                np.append(high / self.unit, np.full(PARTS, np.inf)),
            ),
        )
        return result.x[: len(low)] * self.unit, result.fun * self.unit


def reduce_to_fit(menu: Menu, prices: Prices, choice: Ints) -> Ints:
    """The choice, made to fit by the changes that lose the least worth per GPU."""
    choice = choice.copy()
    left = menu.capacity - menu.used(choice)
    while len(over := np.flatnonzero(left < 0)):
        jobs, columns = _leavers(menu, prices, choice, left, over[0])
        for job, column in zip(jobs.tolist(), columns.tolist(), strict=True):
            if left[over[0]] >= 0:
                break
            need = _need(menu, choice[job], column) if column >= 0 else 0
            if need <= max(0, left[menu.type[column]]):
                _move(menu, choice, left, job, column)
    return choice


def _leavers(menu: Menu, prices: Prices, choice: Ints, left: Ints, type: int) -> tuple[Ints, Ints]:
    """Jobs on a type and their alternatives with less of it, the least loss per GPU first."""
    jobs = np.flatnonzero((choice >= 0) & (menu.type[choice] == type))
    has = menu.count[choice[jobs]]
    same = menu.type == type
    # Fewer GPUs of the type, or free ones of another type, or, in the last column, nothing.
    columns = np.append(np.flatnonzero(same | (menu.count <= left[menu.type])), -1)
    worth = np.column_stack([menu.worth[np.ix_(jobs, columns[:-1])], np.zeros(len(jobs))])
    charge = np.where(same, 0.0, prices.per_gpu[menu.type] * menu.count)
    freed = has[:, None] - np.append(np.where(same, menu.count, 0)[columns[:-1]], 0)
    loss = menu.of(choice)[jobs, None] - worth + np.append(charge[columns[:-1]], 0.0)
    loss = np.where(freed > 0, loss, np.inf) / np.maximum(freed, 1)
    best = loss.argmin(axis=1)
    order = np.argsort(loss[np.arange(len(jobs)), best], kind="stable")
    return jobs[order], columns[best[order]]


def fill(menu: Menu, prices: Prices, choice: Ints) -> Ints:
    """The choice, after what is left over is given to the jobs that gain most for each GPU."""
    choice = choice.copy()
    left = menu.capacity - menu.used(choice)
    for _ in range(ROUNDS_MAX):
        jobs, columns = _upgrades(menu, prices, choice, left)
        moved = set[int]()
        for job, column in zip(jobs.tolist(), columns.tolist(), strict=True):
            fits = _need(menu, choice[job], column) <= left[menu.type[column]]
            if fits and job not in moved:
                moved.add(job)
                _move(menu, choice, left, job, column)
        if not moved:
            break
    return choice


def _need(menu: Menu, before: int, column: int) -> int:
    """GPUs of the new type that the job does not have yet."""
    same = before >= 0 and menu.type[before] == menu.type[column]
    return int(menu.count[column] - (menu.count[before] if same else 0))


def _move(menu: Menu, choice: Ints, left: Ints, job: int, column: int) -> None:
    if choice[job] >= 0:
        left[menu.type[choice[job]]] += menu.count[choice[job]]
    if column >= 0:
        left[menu.type[column]] -= menu.count[column]
    choice[job] = column


def _upgrades(menu: Menu, prices: Prices, choice: Ints, left: Ints) -> tuple[Ints, Ints]:
    """Jobs and what they could have instead, the best first."""
    worth = menu.of(choice)
    type = np.where(choice >= 0, menu.type[choice], -1)
    count = np.where(choice >= 0, menu.count[choice], 0)
    refund = np.where(choice >= 0, prices.per_gpu[type] * count, 0.0)
    found: list[tuple[Floats, Ints, Ints]] = []
    for column in np.flatnonzero(left[menu.type] > 0):
        same = type == menu.type[column]
        need = menu.count[column] - np.where(same, count, 0)
        gain = menu.worth[:, column] - worth
        jobs = np.flatnonzero((gain > 0) & (need <= left[menu.type[column]]))
        rate = (gain[jobs] + np.where(same[jobs], 0.0, refund[jobs])) / np.maximum(need[jobs], 0.5)
        found.append((rate, jobs, np.full(len(jobs), column)))
    if not found:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    rates, jobs, columns = (np.concatenate(part) for part in zip(*found, strict=True))
    most = CANDIDATES * int(left.sum())
    if len(rates) > most:
        first = np.sort(np.argpartition(-rates, most)[:most])
        rates, jobs, columns = rates[first], jobs[first], columns[first]
    order = np.argsort(-rates, kind="stable")
    return jobs[order], columns[order]
