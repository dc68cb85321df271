"""What jobs are worth beside each other on one GPU: two, three, and one more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.planning.optimizer.menu import Menu


@dataclass(frozen=True, slots=True)
class Neighbours:
    """How jobs on the same GPU affect each other. On which types a job can be, and what it is worth
    there alone, is in the menu: its entry for one GPU."""

    shareable: Bools  # [jobs]
    memory: Floats  # [jobs] what each uses of a GPU
    capacity: Floats  # [types] the capacity of a GPU
    # Jobs [a], jobs [b], type: the speed of each a beside each b [a, b], relative to alone; for
    # several neighbours the speeds multiply. The cost of moving one of two jobs to the other must
    # be included here.
    speeds: Callable[[Ints, Ints, int], Floats]
    each: Callable[[Ints, Ints, int], Floats]  # the same for each a beside the b at its index [a]
    # Jobs, type, speeds that broadcast: the worth of the jobs on one GPU at these speeds.
    worth: Callable[[Ints, int, Floats], Floats]
    members_max: int = 8  # on one GPU; at least 2

    def rows(self, jobs: Ints) -> Ints:
        """Groups of one job each."""
        members = np.full((len(jobs), self.members_max), -1)
        members[:, 0] = jobs
        return members

    def together(self, members: Ints, type: int) -> Floats:
        """[groups, members] The speed of each member beside the others of its group."""
        speed = np.ones(members.shape)
        slots = range(_most(members))
        for a, b in ((a, b) for a in slots for b in slots if a != b):
            both = np.flatnonzero((members[:, a] >= 0) & (members[:, b] >= 0))
            speed[both, a] *= self.each(members[both, a], members[both, b], type)
        return speed

    def gain_of_joining(self, hosts: Ints, guests: Ints, type: int) -> Floats:
        """[hosts, guests] how much more all jobs on a GPU are worth with the guest than without."""
        now = self.together(hosts, type)
        own = np.ones((len(hosts), len(guests)))
        lost = np.zeros((len(hosts), len(guests)))
        for slot in range(_most(hosts)):
            at = np.flatnonzero(hosts[:, slot] >= 0)
            jobs, before = hosts[at, slot], now[at, slot, None]
            after = before * self.speeds(jobs, guests, type)
            worth = self.worth(jobs[:, None], type, np.hstack([before, after]))
            lost[at] += worth[:, :1] - worth[:, 1:]
            own[at] *= self.speeds(guests, jobs, type).T
        memory = np.where(hosts >= 0, self.memory[hosts], 0.0).sum(axis=1)
        fits = memory[:, None] + self.memory[guests] <= self.capacity[type]
        gain = self.worth(guests, type, own) - lost
        return np.where(fits, np.maximum(gain, 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class Groups:
    """Jobs that have, or could have, one GPU together."""

    members: Ints  # [groups, members_max] -1: no job
    worth: Floats  # [groups, types] of all members together, -inf: not possible

    def of(self, which: Ints | Bools) -> Groups:
        return Groups(self.members[which], self.worth[which])

    def others(self) -> Ints:
        """All members but the first of each group."""
        others = self.members[:, 1:]
        return others[others >= 0]

    def and_(self, *others: Groups) -> Groups:
        parts = (self, *others)
        return Groups(
            np.concatenate([part.members for part in parts]),
            np.concatenate([part.worth for part in parts]),
        )


class GroupValues:
    """Which jobs could be together on one GPU, and what that would be worth."""

    def __init__(self, menu: Menu, neighbours: Neighbours) -> None:
        self.jobs, self.neighbours = len(menu.worth), neighbours
        self.single = np.full(len(menu.capacity), -1)  # [types] its configuration of one GPU
        columns = np.flatnonzero(menu.count == 1)
        self.single[menu.type[columns]] = columns
        # [jobs, types] the worth of one GPU to the jobs that would share it
        self.alone = np.where(
            neighbours.shareable[:, None] & (self.single >= 0),
            menu.worth[:, self.single],
            -np.inf,
        )
        self.may_share: Bools = np.asarray((self.alone > -np.inf).any(axis=1))
        self.sharing = np.flatnonzero(self.may_share)
        usual = np.maximum(self.alone, 0.0).sum(axis=0)
        best_first = np.argsort(-usual, kind="stable")
        self.types = best_first[self.single[best_first] >= 0].tolist()
        self.nobody = Groups(
            np.zeros((0, neighbours.members_max), np.intp), np.zeros((0, len(self.single)))
        )

    def pairs(self, jobs: Ints) -> Floats:
        """[types, jobs, jobs] The worth of two jobs together; -inf: not possible."""
        near = self.neighbours
        worth = np.full((len(self.single), len(jobs), len(jobs)), -np.inf)
        for type in self.types:
            at = np.flatnonzero(self.alone[jobs, type] > -np.inf)
            here = jobs[at]
            each = near.worth(here[:, None], type, near.speeds(here, here, type))
            fits = near.memory[here][:, None] + near.memory[here] <= near.capacity[type]
            worth[type][np.ix_(at, at)] = np.where(fits, each + each.T, -np.inf)
        return worth

    def on(self, members: Ints, type: Ints) -> Groups:
        """These groups on the types where they run; they are not possible on others."""
        worth = np.full((len(members), len(self.single)), -np.inf)
        for each in self.types:
            here = np.flatnonzero(type == each)
            worth[here, each] = self._together(members[here], each)
        return Groups(members, worth)

    def _together(self, members: Ints, type: int) -> Floats:
        """[groups] The worth of all members on one GPU; -inf: not possible."""
        near, present = self.neighbours, members >= 0
        memory = np.where(present, near.memory[members], 0.0).sum(axis=1)
        here = (~present | (self.alone[members, type] > -np.inf)).all(axis=1)
        at = np.flatnonzero(here & (memory <= near.capacity[type]))
        some = members[at]
        # Empty slots temporarily stand for the first member.
        each = near.worth(np.where(present[at], some, some[:, :1]), type, near.together(some, type))
        worth = np.full(len(members), -np.inf)
        worth[at] = np.where(present[at], each, 0.0).sum(axis=1)
        return worth

    def everyone(self, groups: Groups) -> Ints:
        """[jobs, members_max] Each job alone, or as the first of its group."""
        drawn = self.neighbours.rows(np.arange(self.jobs))
        drawn[groups.members[:, 0]] = groups.members
        return drawn


def _most(members: Ints) -> int:
    """The largest size of these groups; slots beyond it are empty."""
    return int((members >= 0).sum(axis=1).max(initial=0))
