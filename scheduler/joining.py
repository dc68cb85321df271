"""Gangs that share: a job that would have nothing may join one with as many cards, on all of them.

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


def joined(offer: Offer, neighbours: Neighbours, choice: Ints) -> list[tuple[int, int]]:
    """Hosts, and who joins them. `choice`: what each has without."""
    pairs: list[tuple[int, int]] = []
    idle = (choice < 0) & neighbours.shareable
    types = [stock.type for stock in offer.stocks]
    for column, config in enumerate(offer.configs):
        hosts = np.flatnonzero((choice == column) & neighbours.shareable)
        rows = np.flatnonzero(idle & offer.possible[:, column])
        if config.count < 2 or not len(hosts) or not len(rows):
            continue
        gain = _gain(offer, neighbours, hosts, rows, column, types.index(config.type))
        for host, guest in zip(*linear_sum_assignment(gain, maximize=True), strict=True):
            if gain[host, guest] > 0:
                pairs.append((int(hosts[host]), int(rows[guest])))
                idle[rows[guest]] = False
    return pairs


def _gain(
    offer: Offer, near: Neighbours, hosts: Ints, rows: Ints, column: int, type: int
) -> Floats:
    """[hosts, guests] by which both are worth more together than the host alone."""
    slowed = offer.worth(hosts[:, None], column, near.speeds(hosts, rows, type))
    lost = offer.worth(hosts, column, 1.0)[:, None] - slowed
    gain = offer.worth(rows, column, near.speeds(rows, hosts, type).T) - lost
    fits = near.memory[hosts][:, None] + near.memory[rows] <= near.capacity[type]
    return np.where(fits, np.maximum(gain, 0.0), 0.0)
