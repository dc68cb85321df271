"""Pairs out of many rows, with a total gain close to the maximum. Knows nothing of jobs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.estimates.arrays import Floats, Ints


def match_pairs(gain: Floats) -> tuple[Ints, Ints]:
    """Pairs of rows of a symmetric matrix without negative gains; each row is in at most one pair.

    An assignment of every row to another is the best fractional matching with halves (each
    direction counts one half). It consists of pairs, which are kept, and of cycles, which are cut.
    """
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
