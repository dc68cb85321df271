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

from scheduler import exact
from scheduler.matching import matched
from scheduler.menu import Bools, Floats, Ints, Menu
from scheduler.prices import chosen, priced, responded

TINY, SMALL, MEDIUM = 100, 2_000, 20_000  # jobs
ROUNDS, ROUNDS_FEW = 4, 2
TOLERANCE = 1e-4  # of prices for groups that are not the last ones
FEW, POLISHING = 8, 20
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
    if not menu.worth.size:
        return Allotment(np.full(len(menu.worth), -1), (), 0.0, np.zeros(len(menu.capacity)))
    block = BLOCK_SMALL if len(menu.worth) <= SMALL and not limits else BLOCK_LARGE
    pairing = _Pairing(menu, neighbours, seed, block)
    before = incumbent and pairing.still(incumbent)
    groups = before.groups if before else pairing.no_groups
    prices = before.prices if before else priced(menu, tolerance=TOLERANCE).per_gpu
    limits = limits if before else None
    if exact.small(menu, pairing.sharing):
        best = pairing.best(prices)
    else:
        rounds = 1 if limits else ROUNDS if len(menu.worth) <= MEDIUM and not before else ROUNDS_FEW
        best = pairing.good(groups, prices, rounds, limits)
        if len(menu.worth) <= TINY:
            best = pairing.polished(best)
    best = pairing.joined(best, limits)
    if before and before.worth >= best.worth:
        best = before
    rows = best.groups.members.tolist()
    members = tuple(tuple(job for job in row if job >= 0) for row in rows)
    return Allotment(best.choice, members, best.worth, best.prices)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Jobs that have, or could have, one GPU together."""

    members: Ints  # [groups, members_max] -1: nobody
    worth: Floats  # [groups, types] of all together, -inf: not possible

    def of(self, which: npt.NDArray[np.generic]) -> _Groups:
        return _Groups(self.members[which], self.worth[which])


@dataclass(frozen=True, slots=True)
class _Plan:
    choice: Ints  # [jobs] configuration, -1: none
    groups: _Groups  # that have a GPU
    prices: Floats
    worth: float


class _Pairing:
    def __init__(self, menu: Menu, neighbours: Neighbours, seed: int, block: int) -> None:
        self.menu, self.neighbours, self.block = menu, neighbours, block
        self.generator = np.random.default_rng(seed)
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
        self.sharing = np.flatnonzero((self.alone > -np.inf).any(axis=1))
        nobody = np.zeros((0, neighbours.members_max), np.intp)
        self.no_groups = _Groups(nobody, np.zeros((0, len(self.single))))

    def best(self, prices: Floats) -> _Plan:
        """The best there is with pairs: where there are few jobs."""
        nobody = _Plan(np.full(len(self.menu.worth), -1), self.no_groups, prices, 0.0)
        return self._best_of(np.arange(len(self.menu.worth)), nobody) or nobody

    def polished(self, plan: _Plan) -> _Plan:
        """Again and again a few jobs take the best of what they have together and what is left."""
        for _ in range(POLISHING):
            drawn = self._drawn(plan.groups)
            leads = np.setdiff1d(drawn[:, 0], plan.groups.members[:, 1:])
            few = drawn[self.generator.permutation(leads)[:FEW]]
            plan = self._best_of(few[few >= 0], plan) or plan
        return plan

    def _best_of(self, jobs: Ints, plan: _Plan) -> _Plan | None:
        """The plan, better for these jobs, and the same for others; None if it is not better."""
        choice = plan.choice.copy()
        choice[jobs] = -1
        groups = plan.groups.of(~np.isin(plan.groups.members[:, 0], jobs))
        left = self.menu.capacity - self._used(choice, groups)
        menu = replace(self.menu, worth=self.menu.worth[jobs], capacity=left)
        sharing = np.flatnonzero(np.isin(jobs, self.sharing))
        if not exact.small(menu, sharing):
            return None
        own, found = exact.best(menu, sharing, self._pairs(jobs[sharing]))
        choice[jobs] = own
        pairs = self._rows(jobs[np.array([first for first, _, _ in found], np.intp)])
        pairs[:, 1] = jobs[np.array([second for _, second, _ in found], np.intp)]
        types = np.array([type for _, _, type in found], np.intp)
        choice[pairs[:, :2]] = self.single[types][:, None]
        better = self._plan(choice, _all([groups, self._on(pairs, types)]), plan.prices)
        return better if better.worth > plan.worth else None

    def _used(self, choice: Ints, groups: _Groups) -> Ints:
        """GPUs of each type."""
        firsts = choice.copy()
        others = groups.members[:, 1:]
        firsts[others[others >= 0]] = -1
        return self.menu.used(firsts)

    def good(self, groups: _Groups, prices: Floats, rounds: int, limits: Limits | None) -> _Plan:
        """Of those that share in pairs: by prices, matching, better prices, and so on."""
        found = list[_Plan]()
        for _ in range(rounds):
            groups = self.rematched(groups, prices, limits)
            found.append(self.planned(groups, prices))
            prices = (prices + found[-1].prices) / 2
        return max(found, key=lambda plan: plan.worth)

    # --- matching ---------------------------------------------------------------------------

    def rematched(self, groups: _Groups, prices: Floats, limits: Limits | None) -> _Groups:
        """Pairs that are worth more than their members apart; groups out of reach stay."""
        _, surplus = responded(self.menu, prices)
        kept, blocks = self._blocks(groups, surplus, limits)
        found = [groups.of(kept)]
        for jobs in blocks:
            offers = self._pairs(jobs)
            gain = (offers - prices[:, None, None]).max(axis=0)
            gain -= surplus[jobs][:, None] + surplus[jobs]
            np.fill_diagonal(gain, 0.0)
            first, second = matched(np.maximum(gain, 0.0))
            pairs = self._rows(jobs[first])
            pairs[:, 1] = jobs[second]
            found.append(_Groups(pairs, offers[:, first, second].T))
        return _all(found)

    def _blocks(
        self, groups: _Groups, surplus: Floats, limits: Limits | None
    ) -> tuple[Bools, list[Ints]]:
        """The groups that stay, and all other jobs that could be in one, by blocks."""
        # Who would pay more than one GPU is worth to it has no use for half of one.
        open = self.alone.max(axis=1, initial=-np.inf) > surplus
        # A group is drawn as a whole, so that it can be found again.
        drawn = self._drawn(groups)
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
        for type in self.types:
            at = np.flatnonzero(self.alone[jobs, type] > -np.inf)
            here = jobs[at]
            each = near.worth(here[:, None], type, near.speeds(here, here, type))
            fits = near.memory[here][:, None] + near.memory[here] <= near.capacity[type]
            worth[type][np.ix_(at, at)] = np.where(fits, each + each.T, -np.inf)
        return worth

    # --- what is chosen ---------------------------------------------------------------------

    def planned(self, groups: _Groups, start: Floats) -> _Plan:
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
        prices = priced(short, start, TOLERANCE)
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
        return self._plan(choice, groups.of(on[together]), prices.per_gpu)

    def joined(self, plan: _Plan, limits: Limits | None) -> _Plan:
        """Whoever has nothing may join others on a GPU."""
        choice, groups = plan.choice.copy(), plan.groups
        for type in np.argsort(-plan.prices, kind="stable").tolist():
            visits = self._visits(choice, groups, type, limits) if self.single[type] >= 0 else []
            joined = [self.no_groups.members]
            for hosts, guests in visits:
                gain = self._gain_of_joining(hosts, guests, type)
                host, guest = linear_sum_assignment(gain, maximize=True)
                pays = gain[host, guest] > 0
                host, guest = host[pays], guest[pays]
                members = hosts[host]
                members[np.arange(len(host)), (members >= 0).sum(axis=1)] = guests[guest]
                choice[guests[guest]] = self.single[type]
                joined.append(members)
            members = np.concatenate(joined)
            rest = groups.of(~np.isin(groups.members[:, 0], members[:, 0]))
            groups = _all([rest, self._on(members, np.full(len(members), type))])
        return self._plan(choice, groups, plan.prices)

    def _visits(
        self, choice: Ints, groups: _Groups, type: int, limits: Limits | None
    ) -> list[tuple[Ints, Ints]]:
        """Some that have a GPU and room on it, and some that have none, again and again."""
        here = choice == self.single[type]
        lone = here & self.neighbours.shareable
        lone[groups.members[groups.members >= 0]] = False
        room = groups.members[here[groups.members[:, 0]] & (groups.members[:, -1] < 0)]
        hosts = np.concatenate([self._rows(np.flatnonzero(lone)), room])
        guests = np.flatnonzero((choice < 0) & (self.alone[:, type] > -np.inf))
        # More than two to choose from would be of little use.
        best = np.argsort(-self.alone[guests, type], kind="stable")[: 2 * len(hosts)]
        guests = self.generator.permutation(guests[best])
        hosts = self.generator.permutation(hosts)
        count = -(-len(hosts) // self.block)
        if not count or not len(guests):
            return []
        blocks = zip(np.array_split(hosts, count), np.array_split(guests, count), strict=True)
        return list(blocks)[: limits.blocks if limits else None]

    def _drawn(self, groups: _Groups) -> Ints:
        """[jobs, members_max] Each alone, or as the first of its group."""
        drawn = self._rows(np.arange(len(self.menu.worth)))
        drawn[groups.members[:, 0]] = groups.members
        return drawn

    def _rows(self, jobs: Ints) -> Ints:
        members = np.full((len(jobs), self.neighbours.members_max), -1)
        members[:, 0] = jobs
        return members

    def _gain_of_joining(self, hosts: Ints, guests: Ints, type: int) -> Floats:
        """[hosts, guests] by which all on a GPU are worth more with the guest than without."""
        near = self.neighbours
        now = self._speeds(hosts, type)
        own = np.ones((len(hosts), len(guests)))
        lost = np.zeros((len(hosts), len(guests)))
        for slot in range(hosts.shape[1] - 1):
            at = np.flatnonzero(hosts[:, slot] >= 0)
            jobs, before = hosts[at, slot], now[at, slot, None]
            after = before * near.speeds(jobs, guests, type)
            worth = near.worth(jobs[:, None], type, np.hstack([before, after]))
            lost[at] += worth[:, :1] - worth[:, 1:]
            own[at] *= near.speeds(guests, jobs, type).T
        memory = np.where(hosts >= 0, near.memory[hosts], 0.0).sum(axis=1)
        fits = memory[:, None] + near.memory[guests] <= near.capacity[type]
        gain = near.worth(guests, type, own) - lost
        return np.where(fits, np.maximum(gain, 0.0), 0.0)

    # --- groups -----------------------------------------------------------------------------

    def still(self, incumbent: Allotment) -> _Plan | None:
        """The incumbent, without what has become impossible; None if it is too much altogether."""
        menu, choice = self.menu, incumbent.choice.copy()
        choice[menu.of(choice) == -np.inf] = -1
        most = self.neighbours.members_max
        for group in incumbent.groups:
            choice[list(group[most:])] = -1
        known = [group[:most] for group in incumbent.groups]
        members = self._rows(np.array([group[0] for group in known], np.intp))
        for row, group in zip(members, known, strict=True):
            row[: len(group)] = group
        groups = self._on(members, menu.type[choice[members[:, 0]]])
        same = (choice[members] == choice[members[:, :1]]) | (members < 0)
        stays = same.all(axis=1) & (groups.worth.max(axis=1) > -np.inf)
        gone = members[~stays]
        choice[gone[gone >= 0]] = -1
        plan = self._plan(choice, groups.of(stays), incumbent.prices)
        return plan if (self._used(choice, plan.groups) <= menu.capacity).all() else None

    def _plan(self, choice: Ints, groups: _Groups, prices: Floats) -> _Plan:
        worth = self.menu.of(choice)
        worth[groups.members[groups.members >= 0]] = 0.0
        type = self.menu.type[choice[groups.members[:, 0]]]
        total = worth.sum() + groups.worth[np.arange(len(type)), type].sum()
        return _Plan(choice, groups, prices, float(total))

    def _on(self, members: Ints, type: Ints) -> _Groups:
        """These groups on the types where they are; on others they are not."""
        worth = np.full((len(members), len(self.single)), -np.inf)
        for each in self.types:
            here = np.flatnonzero(type == each)
            worth[here, each] = self._together(members[here], each)
        return _Groups(members, worth)

    def _together(self, members: Ints, type: int) -> Floats:
        """[groups] What all are worth on one GPU; -inf: not possible."""
        near, present = self.neighbours, members >= 0
        memory = np.where(present, near.memory[members], 0.0).sum(axis=1)
        here = (~present | (self.alone[members, type] > -np.inf)).all(axis=1)
        at = np.flatnonzero(here & (memory <= near.capacity[type]))
        some = members[at]
        # Nobody is as good as the first, for the while.
        each = near.worth(np.where(present[at], some, some[:, :1]), type, self._speeds(some, type))
        worth = np.full(len(members), -np.inf)
        worth[at] = np.where(present[at], each, 0.0).sum(axis=1)
        return worth

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


def _all(parts: Sequence[_Groups]) -> _Groups:
    return _Groups(
        np.concatenate([part.members for part in parts]),
        np.concatenate([part.worth for part in parts]),
    )
