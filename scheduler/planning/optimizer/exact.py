"""Small clusters: the optimal choice, by dynamic programming over the GPUs that are left and the
jobs that are in a pair already. Each job that may share doubles the cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import EllipsisType

import numpy as np

from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer.menu import Menu, mark

Where = tuple[EllipsisType | slice, ...]
JOBS_MAX = 200
STEPS_MAX = 1_000_000  # about 10 ms


def is_small(menu: Menu, sharing: Ints) -> bool:
    """Whether `solve` takes little time."""
    if len(menu.worth) > JOBS_MAX:
        return False
    states = prod((_useful(menu) + 1).tolist())
    options = len(menu.count) + len(sharing) * len(menu.capacity)
    masks = 2 ** len(sharing) + len(menu.worth) - len(sharing)
    return bool(states * options * masks <= STEPS_MAX)


def solve(menu: Menu, sharing: Ints, pairs: Floats) -> tuple[Ints, list[tuple[int, int, int]]]:
    """The configuration of each job that is alone, and (job, job, type) of jobs that share.

    `sharing`: jobs that may share; `pairs`: [types, sharing, sharing] the worth of two of them on
    one GPU, -inf: not possible.
    """
    alone = np.flatnonzero(~mark(sharing, len(menu.worth)))
    jobs = [*sharing.tolist(), *alone.tolist()]
    options = [_options(menu, job, turn, pairs) for turn, job in enumerate(jobs)]
    # What later jobs can be worth: [those of them, as bits, that are in a pair with an earlier one;
    # the GPUs left of each type].
    left = _useful(menu)
    tables = [np.zeros((1, *(left + 1).tolist()))]
    for turn in reversed(range(len(jobs))):
        table = _add_job(tables[0], options[turn])
        if turn < len(sharing):  # unpaired, or paired with an earlier job
            table = np.stack([table, tables[0]], axis=1).reshape(-1, *table.shape[1:])
        tables.insert(0, table)
    choice, found = np.full(len(jobs), -1), list[tuple[int, int, int]]()
    mask = 0
    for turn, job in enumerate(jobs):
        in_pair, mask = mask & 1, mask >> 1
        if in_pair:
            continue
        most, option = float(tables[turn + 1][mask, *left]), None
        for each in options[turn]:
            after = left - each.used
            if not mask & each.bit and (after >= 0).all():
                worth = each.worth + float(tables[turn + 1][mask | each.bit, *after])
                if worth > most:
                    most, option = worth, each
        if option:
            mask, left = mask | option.bit, left - option.used
            if option.bit:
                partner = int(sharing[turn + option.bit.bit_length()])
                found.append((job, partner, int(option.used.argmax())))
            else:
                choice[job] = option.column
    return choice, found


def _useful(menu: Menu) -> Ints:
    """[types] GPUs: no more than all the jobs together could have."""
    most = np.zeros((len(menu.worth), len(menu.capacity)), np.intp)
    wanted = np.where(menu.worth > 0, menu.count, 0)
    for column, type in enumerate(menu.type.tolist()):
        np.maximum(most[:, type], wanted[:, column], out=most[:, type])
    useful: Ints = np.minimum(menu.capacity, most.sum(axis=0))
    return useful


@dataclass(frozen=True, slots=True)
class _Option:
    worth: float
    used: Ints  # [types] GPUs
    column: int  # of the menu, if alone
    bit: int  # of the partner among the later jobs; 0: alone


def _options(menu: Menu, job: int, turn: int, pairs: Floats) -> list[_Option]:
    """All that a job could have, disregarding the other jobs."""
    unit = np.eye(len(menu.capacity), dtype=np.intp)
    alone = [
        _Option(menu.worth[job, column], unit[menu.type[column]] * menu.count[column], column, 0)
        for column in np.flatnonzero(menu.worth[job] > 0).tolist()
    ]
    if turn >= pairs.shape[1]:
        return alone
    return alone + [
        _Option(pairs[type, turn, turn + 1 + later], unit[type], -1, 1 << later)
        for type, later in np.argwhere(pairs[:, turn, turn + 1 :] > 0).tolist()
    ]


def _add_job(table: Floats, options: list[_Option]) -> Floats:
    """The table with one more job, which has the best of these options or nothing."""
    most = table.copy()
    sizes = table.shape[1:]
    for option in options:
        counts = option.used.tolist()
        # The states with enough GPUs left, and what is left then.
        enough: Where = (..., *(slice(count, None) for count in counts))
        rest: Where = (..., *(slice(max(0, n - k)) for n, k in zip(sizes, counts, strict=True)))
        before, after = most, table
        if option.bit:  # by whether the partner is in a pair
            shape = len(table) // (2 * option.bit), 2, option.bit, *sizes
            before, after = most.reshape(shape)[:, 0], table.reshape(shape)[:, 1]
        np.maximum(before[enough], option.worth + after[rest], out=before[enough])
    return most
