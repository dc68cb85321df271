"""Gangs that share: jobs that would have nothing may join one with as many cards, on all of them.

Single GPUs are shared by pairing.py, which weighs every pair there could be. Among gangs equals are
few, so it is enough that those left over look for a host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.company import Neighbours
from scheduler.model import Job, RunPhase
from scheduler.placing import may_leave
from scheduler.prices import Floats, Ints
from scheduler.worth import Offer


def guests(jobs: Sequence[Job]) -> list[int]:
    """Those that run on the same cards, two and more, as one before them. They have no cards of
    their own, so they do not take part in the choice of cards."""
    on: dict[frozenset[tuple[str, str]], int] = {}
    found = []
    # Who cannot be asked to leave is first, so that it is for the other to make room.
    for row, job in sorted(enumerate(jobs), key=lambda numbered: may_leave(numbered[1])):
        run = job.run
        if run is None or run.phase is RunPhase.STOPPING or len(run.shares) < 2:
            continue
        host = on.setdefault(frozenset(share.key for share in run.shares), row)
        if host != row:
            found.append(row)
    return found


def joined(offer: Offer, neighbours: Neighbours, choice: Ints) -> list[tuple[int, ...]]:
    """Hosts, and who joins them, one after the other. `choice`: what each has without."""
    together: list[tuple[int, ...]] = []
    idle = (choice < 0) & neighbours.shareable
    types = [stock.type for stock in offer.stocks]
    for column, config in enumerate(offer.configs):
        hosts = np.flatnonzero((choice == column) & neighbours.shareable)
        if config.count < 2:
            continue
        type = types.index(config.type)
        groups = [_Group(offer, neighbours, column, type, host) for host in hosts.tolist()]
        open = groups
        for _ in range(neighbours.members_max - 1):
            rows = np.flatnonzero(idle & offer.possible[:, column])
            if not open or not len(rows):
                break
            gain = np.array([group.gain(rows) for group in open])
            pairs = zip(*linear_sum_assignment(gain, maximize=True), strict=True)
            found = [(open[host], rows[guest]) for host, guest in pairs if gain[host, guest] > 0]
            for group, guest in found:
                group.add(guest)
                idle[guest] = False
            open = [group for group, _ in found]  # who found nobody does not find another now
        together += [tuple(group.members) for group in groups if len(group.members) > 1]
    return together


class _Group:
    """A gang, and those that have joined it."""

    def __init__(self, offer: Offer, near: Neighbours, column: int, type: int, host: int) -> None:
        self.offer, self.near, self.column, self.type = offer, near, column, type
        self.members, self.speeds = [host], np.ones(1)

    def gain(self, guests: Ints) -> Floats:
        """[guests] by which all are worth more with the guest than without."""
        near, members = self.near, np.array(self.members)
        slowed = self.speeds[:, None] * near.speeds(members, guests, self.type)
        before = self._worth(members, self.speeds).sum()
        after = self._worth(members[:, None], slowed).sum(axis=0)
        own = self._worth(guests, near.speeds(guests, members, self.type).prod(axis=1))
        fits = near.memory[members].sum() + near.memory[guests] <= near.capacity[self.type]
        return np.where(fits, np.maximum(own + after - before, 0.0), 0.0)

    def add(self, guest: int) -> None:
        near, members, one = self.near, np.array(self.members), np.array([guest])
        own = near.speeds(one, members, self.type).prod()
        self.speeds = np.append(self.speeds * near.speeds(members, one, self.type)[:, 0], own)
        self.members.append(int(guest))

    def _worth(self, rows: Ints, speed: Floats) -> Floats:
        return self.offer.worth(rows, self.column, speed)
