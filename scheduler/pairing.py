"""Who shares a GPU with whom: pairs by price, and a third job where one more pays.

At given prices two jobs are worth putting together if both on one GPU leave more than each does by
itself. All such pairs at once are a matching; it is made in blocks of jobs drawn at random, each by
linear assignment on the symmetric matrix of gains, whose cycles are then cut into pairs. The pairs
become jobs like others on a shorter menu, which gives better prices, and the matching begins
again, the pairs found so far kept in one block. In the end whoever has nothing may join a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from scheduler.prices import Floats, Ints, Menu, chosen, priced, responded

Bools = npt.NDArray[np.bool_]

SMALL, MEDIUM = 2_000, 20_000  # jobs
ROUNDS, ROUNDS_LARGE = 4, 2
BLOCK_SMALL, BLOCK_LARGE = 256, 64
STRIP = 32  # pairs whose speeds are asked for at once


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What becomes of jobs that are together on one GPU. On which types a job can be, and what it
    is worth there alone, says the menu: what it has for one GPU."""

    shareable: Bools  # [jobs]
    memory: Floats  # [jobs] what each takes of a GPU
    capacity: Floats  # [types] what a GPU has
    # Jobs [a], jobs [b], type: the speed of each a beside each b [a, b], 1 being alone; for several
    # they multiply. That one of two would have to move to the other is to be taken off here.
    speeds: Callable[[Ints, Ints, int], Floats]
    # Jobs, type, speeds that broadcast: what they are worth on one GPU at these speeds.
    worth: Callable[[Ints, int, Floats], Floats]
    members_max: int = 3  # on one GPU


@dataclass(frozen=True, slots=True)
class Allotment:
    choice: Ints  # [jobs] configuration, -1: none
    groups: tuple[tuple[int, ...], ...]  # jobs that have one GPU together
    worth: float
    prices: Floats  # [types]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of an incumbent may be matched anew."""

    changed: Ints  # jobs that are new, or not what they were: they come first
    blocks: int


def shared(
    menu: Menu,
    neighbours: Neighbours,
    seed: int,
    incumbent: Allotment | None = None,
    limits: Limits | None = None,
) -> Allotment:
    """The best found, or the incumbent if nothing better was."""
    pairing = _Pairing(menu, neighbours, seed)
    before = incumbent and pairing.still(incumbent)
    groups = pairing.groups(before.groups if before else ())
    prices = before.prices if before else priced(menu).per_gpu
    limits = limits if before else None
    rounds = 1 if limits else ROUNDS if len(menu.worth) <= MEDIUM else ROUNDS_LARGE
    found = list[Allotment]()
    for _ in range(rounds):
        groups = pairing.rematched(groups, prices, limits)
        found.append(pairing.allotted(groups, prices))
        prices = (prices + found[-1].prices) / 2
    best = pairing.joined(max(found, key=lambda allotment: allotment.worth), limits)
    return before if before and before.worth >= best.worth else best


@dataclass(frozen=True, slots=True)
class _Groups:
    """Jobs that could have one GPU together."""

    members: Ints  # [groups, members_max] -1: nobody
    worth: Floats  # [groups, types] of all together, -inf: not possible


class _Pairing:
    def __init__(self, menu: Menu, neighbours: Neighbours, seed: int) -> None:
        self.menu, self.neighbours = menu, neighbours
        self.generator = np.random.default_rng(seed)
        self.block = BLOCK_SMALL if len(menu.worth) <= SMALL else BLOCK_LARGE
        self.single = np.full(len(menu.capacity), -1)  # [types] its configuration of one GPU
        columns = np.flatnonzero(menu.count == 1)
        self.single[menu.type[columns]] = columns
        self.types = np.flatnonzero(self.single >= 0).tolist()
        # [jobs, types] what one GPU is worth to those that would share it
        self.alone = np.where(
            neighbours.shareable[:, None] & (self.single >= 0),
            menu.worth[:, self.single],
            -np.inf,
        )

    # --- matching ---------------------------------------------------------------------------

    def rematched(self, groups: _Groups, prices: Floats, limits: Limits | None) -> _Groups:
        """Pairs that are worth more than their members apart; groups out of reach stay."""
        _, surplus = responded(self.menu, prices)
        kept, blocks = self._blocks(groups, surplus, limits)
        members, worth = [groups.members[kept]], [groups.worth[kept]]
        for jobs in blocks:
            offers = self._pairs(jobs)
            gain = (offers - prices[:, None, None]).max(axis=0)
            gain -= surplus[jobs][:, None] + surplus[jobs]
            np.fill_diagonal(gain, 0.0)
            first, second = _matching(np.maximum(gain, 0.0))
            pairs = np.full((len(first), groups.members.shape[1]), -1)
            pairs[:, 0], pairs[:, 1] = jobs[first], jobs[second]
            members.append(pairs)
            worth.append(offers[:, first, second].T)
        return _Groups(np.concatenate(members), np.concatenate(worth))

    def _blocks(
        self, groups: _Groups, surplus: Floats, limits: Limits | None
    ) -> tuple[Bools, list[Ints]]:
        """The groups that stay, and all other jobs that could be in one, by blocks."""
        # Who would pay more than one GPU is worth to it has no use for half of one.
        open = self.alone.max(axis=1, initial=-np.inf) > surplus
        # A group is drawn as a whole, so that it can be found again.
        drawn = np.full((len(open), groups.members.shape[1]), -1)
        drawn[:, 0] = np.arange(len(open))
        drawn[groups.members[:, 0]] = groups.members
        open[groups.members[:, 1:][groups.members[:, 1:] >= 0]] = False
        leads = self.generator.permutation(np.flatnonzero(open))
        if limits:
            changed = np.zeros(len(open) + 1, bool)
            changed[limits.changed] = True
            first = changed[drawn[leads]].any(axis=1)
            size = limits.blocks * self.block // 2
            leads = np.concatenate([leads[first][:size], leads[~first]])[: 2 * size]
            leads = self.generator.permutation(leads)
        jobs = drawn[leads].ravel()
        jobs = jobs[jobs >= 0]
        kept = ~np.isin(groups.members[:, 0], leads)
        return kept, np.array_split(jobs, max(1, -(-len(jobs) // self.block)))

    def _pairs(self, jobs: Ints) -> Floats:
        """[types, jobs, jobs] What two are worth together; -inf: not possible."""
        near = self.neighbours
        worth = np.full((len(self.single), len(jobs), len(jobs)), -np.inf)
        memory = near.memory[jobs][:, None] + near.memory[jobs]
        for type in self.types:
            here = self.alone[jobs, type] > -np.inf
            each = near.worth(jobs[:, None], type, near.speeds(jobs, jobs, type))
            possible = here[:, None] & here & (memory <= near.capacity[type])
            worth[type] = np.where(possible, each + each.T, -np.inf)
        return worth

    # --- what is chosen ---------------------------------------------------------------------

    def allotted(self, groups: _Groups, start: Floats) -> Allotment:
        """Choose among the groups, and for jobs in none, and for each job of a group alone."""
        menu, members = self.menu, groups.members
        present = members >= 0
        rest = np.ones(len(menu.worth), bool)
        rest[members[present]] = False
        rows = np.flatnonzero(rest)
        apart = np.where(present[:, :, None], menu.worth[members], -np.inf)
        either = apart.max(axis=1, initial=-np.inf)
        either[:, self.single] = np.maximum(either[:, self.single], groups.worth)
        short = replace(menu, worth=np.concatenate([menu.worth[rows], either]))
        prices = priced(short, start)
        picked = chosen(short, prices)

        choice = np.full(len(menu.worth), -1)
        choice[rows] = picked[: len(rows)]
        picked = picked[len(rows) :]
        on = np.flatnonzero(picked >= 0)
        column = picked[on]
        type = menu.type[column]
        best = apart[on, :, column]
        together = (column == self.single[type]) & (groups.worth[on, type] >= best.max(axis=1))
        choice[members[on, best.argmax(axis=1)]] = column
        for slot in range(members.shape[1]):
            sharing = together & present[on, slot]
            choice[members[on[sharing], slot]] = column[sharing]
        return self._counted(choice, members[on[together]], prices.per_gpu)

    def joined(self, allotment: Allotment, limits: Limits | None) -> Allotment:
        """Whoever has nothing may join others on a GPU."""
        near, choice = self.neighbours, allotment.choice.copy()
        grouped = self._padded(allotment.groups)
        lone = near.shareable & (choice >= 0)
        lone[grouped[grouped >= 0]] = False
        done = [grouped]
        for type in np.argsort(-allotment.prices, kind="stable").tolist():
            if self.single[type] < 0:
                continue
            hosts = self._padded(
                np.flatnonzero(lone & (choice == self.single[type]))[:, None].tolist()
            )
            here = grouped[choice[grouped[:, 0]] == self.single[type]]
            hosts = np.concatenate([hosts, here[here[:, -1] < 0]])
            idle = np.flatnonzero((choice < 0) & (self.alone[:, type] > -np.inf))
            if not len(hosts) or not len(idle):
                continue
            idle = idle[np.argsort(-self.alone[idle, type], kind="stable")][: 2 * len(hosts)]
            hosts, idle = self.generator.permutation(hosts), self.generator.permutation(idle)
            count = -(-len(hosts) // self.block)
            limit = limits.blocks if limits else count
            blocks = zip(np.array_split(hosts, count), np.array_split(idle, count), strict=True)
            for some, others in list(blocks)[:limit]:
                gain = self._gain_of_joining(some, others, type)
                host, guest = linear_sum_assignment(gain, maximize=True)
                pays = gain[host, guest] > 0
                host, guest = host[pays], guest[pays]
                joint = some[host]
                joint[np.arange(len(host)), (joint >= 0).sum(axis=1)] = others[guest]
                choice[others[guest]] = self.single[type]
                done.append(joint)
        members = np.concatenate(done)
        # Of a group that has been joined, only the larger one counts: it comes later.
        last = {row[0]: at for at, row in enumerate(members.tolist())}
        return self._counted(choice, members[sorted(last.values())], allotment.prices)

    def _gain_of_joining(self, hosts: Ints, guests: Ints, type: int) -> Floats:
        """[hosts, guests] by which all on a GPU are worth more with the guest than without."""
        near = self.neighbours
        now = self._speeds(hosts, type)
        own = np.ones((len(hosts), len(guests)))
        lost = np.zeros((len(hosts), len(guests)))
        for slot in range(hosts.shape[1] - 1):
            present = hosts[:, slot, None] >= 0
            jobs = hosts[:, slot]
            speed = now[:, slot, None] * near.speeds(jobs, guests, type)
            worth = near.worth(jobs[:, None], type, now[:, slot, None])
            lost += np.where(present, worth - near.worth(jobs[:, None], type, speed), 0.0)
            own *= np.where(present, near.speeds(guests, jobs, type).T, 1.0)
        memory = np.where(hosts >= 0, near.memory[hosts], 0.0).sum(axis=1)
        fits = memory[:, None] + near.memory[guests] <= near.capacity[type]
        gain = near.worth(guests, type, own) - lost
        return np.where(fits, np.maximum(gain, 0.0), 0.0)

    # --- groups -----------------------------------------------------------------------------

    def groups(self, groups: tuple[tuple[int, ...], ...]) -> _Groups:
        members = self._padded(groups)
        worth = np.full((len(members), len(self.single)), -np.inf)
        for type in self.types:
            worth[:, type] = self._together(members, type)
        return _Groups(members, worth)

    def still(self, incumbent: Allotment) -> Allotment | None:
        """The incumbent, without what has become impossible; None if it is too much altogether."""
        choice = incumbent.choice.copy()
        choice[self.menu.of(choice) == -np.inf] = -1
        groups = []
        for group in incumbent.groups:
            type = self.menu.type[choice[group[0]]]
            same = len({int(choice[job]) for job in group}) == 1 and choice[group[0]] >= 0
            if same and self._together(self._padded([group]), type)[0] > -np.inf:
                groups.append(group)
            else:
                choice[list(group)] = -1
        found = self._counted(choice, self._padded(groups), incumbent.prices)
        used = self.menu.used(choice)
        for group in groups:
            used[self.menu.type[choice[group[0]]]] -= len(group) - 1
        return found if (used <= self.menu.capacity).all() else None

    def _counted(self, choice: Ints, members: Ints, prices: Floats) -> Allotment:
        worth = self.menu.of(choice)
        worth[members[members >= 0]] = 0.0
        total = worth.sum()
        for type in self.types:
            here = members[choice[members[:, 0]] == self.single[type]]
            total += self._together(here, type).sum()
        groups = tuple(tuple(job for job in row if job >= 0) for row in members.tolist())
        return Allotment(choice, groups, float(total), prices)

    def _padded(self, groups: Sequence[Sequence[int]]) -> Ints:
        members = np.full((len(groups), self.neighbours.members_max), -1)
        for row, group in zip(members, groups, strict=True):
            row[: len(group)] = group
        return members

    def _together(self, members: Ints, type: int) -> Floats:
        """[groups] What all are worth on one GPU; -inf: not possible."""
        near, present = self.neighbours, members >= 0
        worth = near.worth(members, type, self._speeds(members, type))
        memory = np.where(present, near.memory[members], 0.0).sum(axis=1)
        here = (~present | (self.alone[members, type] > -np.inf)).all(axis=1)
        possible = here & (memory <= near.capacity[type])
        return np.where(possible, np.where(present, worth, 0.0).sum(axis=1), -np.inf)

    def _speeds(self, members: Ints, type: int) -> Floats:
        """[groups, members] The speed of each beside the others of its group."""
        speed = np.ones(members.shape)
        slots = range(members.shape[1])
        for a, b in ((a, b) for a in slots for b in slots if a != b):
            both = np.flatnonzero((members[:, a] >= 0) & (members[:, b] >= 0))
            for at in np.array_split(both, -(-len(both) // STRIP)) if len(both) else ():
                beside = self.neighbours.speeds(members[at, a], members[at, b], type)
                speed[at, a] *= beside.diagonal()
        return speed


def _matching(gain: Floats) -> tuple[Ints, Ints]:
    """Pairs of rows of a symmetric matrix, each row in at most one, that gain almost the most."""
    _, beside = linear_sum_assignment(gain, maximize=True)
    rows = np.arange(len(gain))
    mutual = (beside[beside] == rows) & (rows < beside) & (gain[rows, beside] > 0)
    pairs = list(zip(rows[mutual].tolist(), beside[mutual].tolist(), strict=True))
    seen = beside[beside] == rows
    for start in np.flatnonzero(~seen).tolist():
        cycle = list[int]()
        at = start
        while not seen[at]:
            seen[at] = True
            cycle.append(at)
            at = int(beside[at])
        if cycle:
            pairs += _cut(cycle, gain)
    array = np.array(pairs, np.intp).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _cut(cycle: list[int], gain: Floats) -> list[tuple[int, int]]:
    """Every other edge of a cycle, beginning where that gains most."""
    best, most = list[tuple[int, int]](), 0.0
    for shift in range(len(cycle) if len(cycle) % 2 else 2):
        turned = cycle[shift:] + cycle[:shift]
        edges = [(a, b) for a, b in zip(turned[::2], turned[1::2], strict=False) if gain[a, b] > 0]
        total = sum(float(gain[edge]) for edge in edges)
        if total > most:
            best, most = edges, total
    return best
