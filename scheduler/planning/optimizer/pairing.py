"""Which jobs share a GPU: pairs by price, and more jobs where one more pays.

At given prices two jobs are worth putting together if both on one GPU leave more value above the
price than each does by itself. All such pairs at once are a matching. It is computed in blocks of
jobs drawn at random, each by linear assignment on the symmetric matrix of gains, whose cycles are
then cut into pairs. The pairs become jobs like others on a shorter menu, which gives better prices,
and the matching is repeated with each pair found so far kept in one block. In the end jobs that
have nothing may join a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.planning.optimizer import exact
from scheduler.planning.optimizer.groups import Groups, GroupValues, Neighbours
from scheduler.planning.optimizer.matching import match_pairs
from scheduler.planning.optimizer.menu import Menu, mark
from scheduler.planning.optimizer.prices import chosen, priced, responded

__all__ = ["Allotment", "Limits", "Neighbours", "shared"]

TINY, SMALL, MEDIUM = 100, 2_000, 20_000  # jobs
ROUNDS, ROUNDS_FEW = 4, 2  # the latter for very many jobs, or when there is an incumbent
BLOCK_LARGE, BLOCK = 256, 64  # jobs that are matched at once; large blocks cost more and find more
TOLERANCE = 1e-4  # of prices: the pairs that they are for change again
FEW, POLISHING = 8, 20  # jobs (or groups), times


@dataclass(frozen=True, slots=True)
class Allotment:
    choice: Ints  # [jobs] configuration, -1: none
    groups: tuple[tuple[int, ...], ...]  # jobs that have one GPU together
    worth: float = 0.0
    prices: Floats | None = None  # [types] of one GPU; None: not known, or not asked for


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of an incumbent may be matched again."""

    changed: Ints  # jobs that are new or have changed: they come first
    blocks: int


def shared(
    menu: Menu,
    neighbours: Neighbours,
    seed: int,
    incumbent: Allotment | None = None,
    limits: Limits | None = None,
) -> Allotment:
    """The best choice found, or the incumbent if nothing better was found."""
    if not menu.worth.size:
        return Allotment(np.full(len(menu.worth), -1), ())
    pairing = _Pairing(menu, neighbours, seed)
    before = pairing.adapt_incumbent(incumbent) if incumbent else None
    limits = limits if before else None
    if len(menu.worth) <= SMALL and not limits:
        pairing.block = BLOCK_LARGE
    if exact.is_small(menu, pairing.company.sharing):
        best = pairing.solve_exactly()
    else:
        best = pairing.solve_by_prices(before, limits)
        if len(menu.worth) <= TINY:
            best = pairing.polish(best)
    best = pairing.join_idle(best, limits)
    if before and before.worth >= best.worth:
        best = pairing.join_idle(pairing.give_leftovers(before), limits)
    rows = best.groups.members.tolist()
    members = tuple(tuple(job for job in row if job >= 0) for row in rows)
    return Allotment(best.choice, members, best.worth, best.prices)


@dataclass(frozen=True, slots=True)
class _Plan:
    choice: Ints  # [jobs] configuration, -1: none
    groups: Groups  # each of these has a GPU
    prices: Floats | None
    worth: float


class _Pairing:
    def __init__(self, menu: Menu, neighbours: Neighbours, seed: int) -> None:
        self.menu, self.neighbours, self.block = menu, neighbours, BLOCK
        self.company = GroupValues(menu, neighbours)
        self.generator = np.random.default_rng(seed)

    def solve_exactly(self) -> _Plan:
        """The optimal choice with pairs, for few jobs."""
        jobs = np.arange(len(self.menu.worth))
        nothing = _Plan(np.full(len(jobs), -1), self.company.nobody, None, 0.0)
        return self._improve(nothing, jobs[:, None]) or nothing

    def polish(self, plan: _Plan) -> _Plan:
        """Repeatedly gives a few jobs the best of what they have together and what is left."""
        most = self.menu.worth.max(axis=1)
        for _ in range(POLISHING):
            drawn = self.company.everyone(plan.groups)
            leads = np.flatnonzero(~mark(plan.groups.others(), len(drawn)))
            served, idle = leads[plan.choice[leads] >= 0], leads[plan.choice[leads] < 0]
            # Of the jobs that have nothing, the last only cost time.
            idle = idle[np.argsort(-most[idle], kind="stable")][: len(served) + FEW]
            few = self.generator.permutation(np.concatenate([served, idle]))[:FEW]
            plan = self._improve(plan, drawn[few]) or plan
        return plan

    def give_leftovers(self, plan: _Plan) -> _Plan:
        """Gives what is left over to the jobs that gain most by it and have nothing."""
        idle = np.flatnonzero(plan.choice < 0)
        most = self.menu.worth[idle].max(axis=1)
        return self._improve(plan, idle[np.argsort(-most, kind="stable")][:FEW]) or plan

    def _improve(self, plan: _Plan, few: Ints) -> _Plan | None:
        """The plan with the optimum for these jobs, or for as many of them as can be solved
        quickly; None if it is no better."""
        jobs, choice = few[few >= 0], plan.choice.copy()
        choice[jobs] = -1
        groups = plan.groups.of(~mark(jobs, len(choice))[plan.groups.members[:, 0]])
        left = self.menu.capacity - self._used(choice, groups)
        menu = replace(self.menu, worth=self.menu.worth[jobs], capacity=left)
        sharing = np.flatnonzero(self.company.may_share[jobs])
        if not exact.is_small(menu, sharing):
            return self._improve(plan, few[:-1])
        choice[jobs], found = exact.solve(menu, sharing, self.company.pairs(jobs[sharing]))
        first, second, types = np.array(found, np.intp).reshape(-1, 3).T
        pairs = self.neighbours.rows(jobs[first])
        pairs[:, 1] = jobs[second]
        choice[pairs[:, :2]] = self.company.single[types][:, None]
        better = self._plan(choice, groups.and_(self.company.on(pairs, types)), plan.prices)
        return better if better.worth > plan.worth else None

    def _used(self, choice: Ints, groups: Groups) -> Ints:
        """GPUs of each type."""
        firsts = choice.copy()
        firsts[groups.others()] = -1
        return self.menu.used(firsts)

    def solve_by_prices(self, before: _Plan | None, limits: Limits | None) -> _Plan:
        """A choice with pairs: by prices, matching, better prices, and so on."""
        groups, prices = (before.groups, before.prices) if before else (self.company.nobody, None)
        if prices is None:
            prices = priced(self.menu, tolerance=TOLERANCE).per_gpu
        rounds = 1 if limits else ROUNDS
        if not limits and (before or len(self.menu.worth) > MEDIUM):
            rounds = ROUNDS_FEW
        found = list[_Plan]()
        for _ in range(rounds):
            groups = self.rematch(groups, prices, limits)
            plan, better = self.choose(groups, prices)
            found.append(plan)
            prices = (prices + better) / 2
        return max(found, key=lambda plan: plan.worth)

    # --- matching ---------------------------------------------------------------------------

    def rematch(self, groups: Groups, prices: Floats, limits: Limits | None) -> Groups:
        """Pairs that are worth more than their members apart; groups without members in these
        blocks stay."""
        _, surplus = responded(self.menu, prices)
        kept, blocks = self._blocks(groups, surplus, limits)
        found = list[Groups]()
        for jobs in blocks:
            offers = self.company.pairs(jobs)
            gain = (offers - prices[:, None, None]).max(axis=0)
            gain -= surplus[jobs][:, None] + surplus[jobs]
            np.fill_diagonal(gain, 0.0)
            first, second = match_pairs(np.maximum(gain, 0.0))
            pairs = self.neighbours.rows(jobs[first])
            pairs[:, 1] = jobs[second]
            found.append(Groups(pairs, offers[:, first, second].T))
        return groups.of(kept).and_(*found)

    def _blocks(
        self, groups: Groups, surplus: Floats, limits: Limits | None
    ) -> tuple[Bools, list[Ints]]:
        """The groups that stay, and all other jobs that could be in one, by blocks."""
        # A job that would pay more than one GPU is worth to it has no use for half of one.
        open = self.company.alone.max(axis=1, initial=-np.inf) > surplus
        # A group is drawn as a whole, so that it can be found again.
        drawn = self.company.everyone(groups)
        open[groups.others()] = False
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
        kept = ~mark(leads, len(open))[groups.members[:, 0]]
        return kept, np.array_split(jobs, max(1, -(-len(jobs) // self.block)))

    # --- what is chosen ---------------------------------------------------------------------

    def choose(self, groups: Groups, start: Floats) -> tuple[_Plan, Floats]:
        """Chooses among groups, jobs in none, and jobs of a group alone; returns the choice and the
        prices."""
        menu, members = self.menu, groups.members
        present = members >= 0
        rest = np.ones(len(menu.worth), bool)
        rest[members[present]] = False
        rows = np.flatnonzero(rest)
        apart = np.where(present[:, :, None], menu.worth[members], -np.inf)
        either = apart.max(axis=1, initial=-np.inf)
        for type in self.company.types:
            column = self.company.single[type]
            either[:, column] = np.maximum(either[:, column], groups.worth[:, type])
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
        together = (column == self.company.single[type]) & (
            groups.worth[on, type] >= best.max(axis=1)
        )
        choice[members[on, best.argmax(axis=1)]] = column
        for slot in range(members.shape[1]):
            sharing = together & present[on, slot]
            choice[members[on[sharing], slot]] = column[sharing]
        plan = self._plan(choice, groups.of(on[together]), prices.per_gpu)
        return plan, prices.per_gpu

    def join_idle(self, plan: _Plan, limits: Limits | None) -> _Plan:
        """Jobs that have nothing may join others on a GPU, one after the other."""
        for _ in range(1 if limits else self.neighbours.members_max - 1):
            idle, plan = plan.choice < 0, self._visited(plan, limits)
            if (idle == (plan.choice < 0)).all():
                break
        return plan

    def _visited(self, plan: _Plan, limits: Limits | None) -> _Plan:
        choice, groups = plan.choice.copy(), plan.groups
        for type in self.company.types:
            visits = self._visits(choice, groups, type, limits)
            found = [self.company.nobody.members]
            for hosts, guests in visits:
                gain = self.neighbours.gain_of_joining(hosts, guests, type)
                host, guest = linear_sum_assignment(gain, maximize=True)
                pays = gain[host, guest] > 0
                host, guest = host[pays], guest[pays]
                members = hosts[host]
                members[np.arange(len(host)), (members >= 0).sum(axis=1)] = guests[guest]
                choice[guests[guest]] = self.company.single[type]
                found.append(members)
            members = np.concatenate(found)
            rest = groups.of(~mark(members[:, 0], len(choice))[groups.members[:, 0]])
            groups = rest.and_(self.company.on(members, np.full(len(members), type)))
        return self._plan(choice, groups, plan.prices)

    def _visits(
        self, choice: Ints, groups: Groups, type: int, limits: Limits | None
    ) -> list[tuple[Ints, Ints]]:
        """Repeatedly, some groups that have a GPU with room on it, and some jobs that have none."""
        here = choice == self.company.single[type]
        lone = here & self.neighbours.shareable
        lone[groups.members[groups.members >= 0]] = False
        room = groups.members[here[groups.members[:, 0]] & (groups.members[:, -1] < 0)]
        hosts = np.concatenate([self.neighbours.rows(np.flatnonzero(lone)), room])
        guests = np.flatnonzero((choice < 0) & (self.company.alone[:, type] > -np.inf))
        # More than two candidates would be of little use.
        best = np.argsort(-self.company.alone[guests, type], kind="stable")[: 2 * len(hosts)]
        guests = self.generator.permutation(guests[best])
        hosts = self.generator.permutation(hosts)
        count = -(-len(hosts) // self.block)
        if not count or not len(guests):
            return []
        blocks = zip(np.array_split(hosts, count), np.array_split(guests, count), strict=True)
        return list(blocks)[: limits.blocks if limits else None]

    # --- groups -----------------------------------------------------------------------------

    def adapt_incumbent(self, incumbent: Allotment) -> _Plan | None:
        """The incumbent, without what has become impossible; None if it exceeds the capacity."""
        menu, choice = self.menu, incumbent.choice.copy()
        choice[menu.of(choice) == -np.inf] = -1
        most = self.neighbours.members_max
        for group in incumbent.groups:
            choice[list(group[most:])] = -1
        known = [group[:most] for group in incumbent.groups]
        members = self.neighbours.rows(np.array([group[0] for group in known], np.intp))
        for row, group in zip(members, known, strict=True):
            row[: len(group)] = group
        type = menu.type[choice[members[:, 0]]]
        groups = self.company.on(members, type)
        here = (choice[members] == self.company.single[type][:, None]) | (members < 0)
        stays = here.all(axis=1) & (groups.worth.max(axis=1) > -np.inf)
        gone = members[~stays]
        choice[gone[gone >= 0]] = -1
        plan = self._plan(choice, groups.of(stays), incumbent.prices)
        return plan if (self._used(choice, plan.groups) <= menu.capacity).all() else None

    def _plan(self, choice: Ints, groups: Groups, prices: Floats | None) -> _Plan:
        worth = self.menu.of(choice)
        worth[groups.members[groups.members >= 0]] = 0.0
        type = self.menu.type[choice[groups.members[:, 0]]]
        total = worth.sum() + groups.worth[np.arange(len(type)), type].sum()
        return _Plan(choice, groups, prices, float(total))
