"""Gangs that share: jobs that would have nothing may join a job with the same number of GPUs, on
all of them.

They part when a guest could have GPUs of its own and that pays for its restart.

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
from scheduler.planning.optimizer.offer import GAIN_MIN, Offer

BLOCK = 64  # hosts that are matched at once


def guests(jobs: Sequence[Job]) -> list[int]:
    """The jobs that run on the same GPUs, two or more, as an earlier job. They have no GPUs of
    their own; what those would be worth to them is `worth_of_parting`."""
    return [row for rows in _together(jobs) for row in rows[1:]]


def _together(jobs: Sequence[Job]) -> list[list[int]]:
    """The gangs that are on the same GPUs, each with its host first."""
    on: dict[frozenset[tuple[str, str]], list[int]] = {}
    # A job that cannot be preempted comes first, so that the other one is stopped if necessary.
    gangs = [
        (row, job) for row, job in enumerate(jobs) if is_running(job) and len(gpu_keys(job)) > 1
    ]
    for row, job in sorted(gangs, key=lambda numbered: may_stop(numbered[1].run)):
        on.setdefault(frozenset(gpu_keys(job)), []).append(row)
    return [rows for rows in on.values() if len(rows) > 1]


def worth_of_parting(offer: Offer, neighbours: Neighbours) -> dict[int, float]:
    """How much more all jobs on some GPUs are worth if one of the guests has as many GPUs of its
    own, for the guests for which that pays."""
    worth: dict[int, float] = {}
    types = [stock.type for stock in offer.stocks]
    for rows in _together(offer.jobs):
        column = int(offer.now[rows[0]])
        if column < 0 or len(rows) > neighbours.members_max:
            continue
        near, type = _with(offer, neighbours, column), types.index(offer.configs[column].type)
        members = np.full((1, near.members_max), -1)
        members[0, : len(rows)] = rows
        speeds = near.together(members, type)[0]
        for at, guest in enumerate(rows[1:], start=1):
            alone = offer.left[guest] * offer.seconds[guest, column]
            moved = alone + offer.restart[guest]
            if offer.fixed[guest] or moved > alone / speeds[at] * (1 - GAIN_MIN):
                continue
            others = np.full((1, near.members_max), -1)
            others[0, : len(rows) - 1] = [row for row in rows if row != guest]
            joined = near.gain_of_joining(others, np.array([guest]), type)[0, 0]
            gain = float(offer.worth(guest, column, alone / moved) - joined)
            if gain > 0:
                worth[guest] = gain
    return worth


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
