"""Gangs that share: jobs that would have nothing may join a job with the same number of GPUs, on
all of them.

Single GPUs are shared by pairing.py, which weighs every possible pair. Few gangs are of equal size,
so it is enough that the jobs left over look for a host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.core.model import Job
from scheduler.core.runs import gpu_keys, is_running, may_stop
from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer.groups import Neighbours
from scheduler.planning.optimizer.offer import Offer

BLOCK = 64  # hosts that are matched at once


def guests(jobs: Sequence[Job]) -> list[int]:
    """The jobs that run on the same GPUs, two or more, as an earlier job. They have no GPUs of
    their own, so they do not take part in the choice of GPUs."""
    on: dict[frozenset[tuple[str, str]], int] = {}
    found = []
    # A job that cannot be preempted comes first, so that the other one is stopped if necessary.
    gangs = [
        (row, job) for row, job in enumerate(jobs) if is_running(job) and len(gpu_keys(job)) > 1
    ]
    for row, job in sorted(gangs, key=lambda numbered: may_stop(numbered[1].run)):
        host = on.setdefault(frozenset(gpu_keys(job)), row)
        if host != row:
            found.append(row)
    return found


def join_gangs(offer: Offer, neighbours: Neighbours, choice: Ints) -> list[tuple[int, ...]]:
    """Hosts and the jobs that join them, one after the other. `choice`: what each job has without
    joining."""
    together: list[tuple[int, ...]] = []
    idle = (choice < 0) & neighbours.shareable
    types = [stock.type for stock in offer.stocks]
    for column, config in enumerate(offer.configs):
        if config.gpus < 2:
            continue
        near, type = _with(offer, neighbours, column), types.index(config.type)
        groups = near.rows(np.flatnonzero((choice == column) & near.shareable))
        open = np.arange(len(groups))
        for members in range(1, near.members_max):
            guests = np.flatnonzero(idle & offer.possible[:, column])
            if not len(open) or not len(guests):
                break
            # A job that finds no host now does not find one later.
            open, guests = _pairs(near, groups, open, guests, type)
            groups[open, members] = guests
            idle[guests] = False
        several = groups[groups[:, 1] >= 0].tolist()
        together += [tuple(row for row in group if row >= 0) for group in several]
    return together


def _with(offer: Offer, neighbours: Neighbours, column: int) -> Neighbours:
    """The worth on all GPUs of this configuration; the jobs affect each other as on one."""

    def worth(rows: Ints, type: int, speed: Floats) -> Floats:
        return offer.worth(rows, column, speed)

    return replace(neighbours, worth=worth)


def _pairs(
    near: Neighbours, groups: Ints, open: Ints, guests: Ints, type: int
) -> tuple[Ints, Ints]:
    """Which of the open groups find a guest, and which one; by blocks, so that it is fast for
    thousands."""
    found = [(open[:0], guests[:0])]
    blocks = -(-len(open) // BLOCK)
    for first in range(blocks):
        hosts, visitors = open[first::blocks], guests[first::blocks]
        gain = near.gain_of_joining(groups[hosts], visitors, type)
        host, guest = linear_sum_assignment(gain, maximize=True)
        pays = gain[host, guest] > 0
        found.append((hosts[host[pays]], visitors[guest[pays]]))
    hosts, visitors = (np.concatenate(each) for each in zip(*found, strict=True))
    return hosts, visitors
