"""How far a job may grow at once: a law that was fitted to a few GPUs says little of many. Pure.

A job gets at most twice the GPUs on which it, or another job of its script, was measured on that
type of GPU, over at most twice the nodes; on another type at most as many as somewhere. So a script
that scales badly is found out after one step, and one that scales well doubles with each epoch.
Kinds of one script differ by their batch size, which makes them scale better or worse by degrees:
each batch size by itself would climb all steps, with a restart each. A new script takes its first
step from the fewest GPUs that the job can use: nothing is learned before the end of its first
epoch, which could take long on those. While there are GPUs for all jobs at the most that each has
had, one with much left may take two steps at once: what it could lose is little of what it has
left, and no other job needs the GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.core.model import Placement
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.measurements import Measurements

STEP = 2.0  # times the GPUs and the nodes that were measured
MUCH_LEFT = 20.0  # epochs, and restarts


class Tried:
    """On how many GPUs, and nodes, each script was measured, by type."""

    def __init__(self, measured: Measurements) -> None:
        shape = int(measured.script.max(initial=-1)) + 1, len(measured.types) + 1
        self._script, self._types = measured.script, measured.types
        self.gpus, self.nodes = np.zeros(shape), np.zeros(shape)
        for rows in (measured.alone, measured.beside):
            at = measured.script[rows.owner], rows.type
            np.maximum.at(self.gpus, at, rows.count)
            np.maximum.at(self.nodes, at, rows.nodes)

    def allows(self, owners: Ints, choices: Sequence[Placement], least: Ints, much: Bools) -> Bools:
        """[owner, choice] whether it is within reach of what was measured; `least`: the fewest GPUs
        that each can use; `much`: they may take two steps."""
        scripts = self._script[owners]
        number = {type: at for at, type in enumerate(self._types)}
        type = np.array([number.get(choice.type, len(number)) for choice in choices], np.intp)
        count = np.array([choice.gpus for choice in choices])
        nodes = np.array([choice.nodes for choice in choices])
        step = np.where(much, STEP * STEP, STEP)
        here, had = self.gpus[scripts][:, type], self.gpus[scripts].max(axis=1)
        elsewhere = np.where(had > 0, had, step * least)
        most = np.where(here > 0, step[:, None] * here, elsewhere[:, None])
        over = np.where(here > 0, step[:, None] * self.nodes[scripts][:, type], np.inf)
        allowed: Bools = (count <= most) & (nodes <= over)
        return allowed


def has_much_left(used: Ints, gpus: int, left: Floats, work: Floats, restart: Floats) -> Bools:
    """[job] whether it has much left, in epochs and in restarts, and there is room. `used`: the
    most GPUs that each has had, or the fewest that it can use; it does not change when a run
    stops to start elsewhere. `work`: seconds that are left where it is fastest."""
    if used.sum() > gpus:
        return np.zeros(len(used), bool)
    much: Bools = (left >= MUCH_LEFT) & (work >= MUCH_LEFT * restart)
    return much
