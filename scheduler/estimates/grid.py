"""The measured epochs of jobs that ran alone, as a grid: a row for each owner and type of GPU, a
column for each number of GPUs and of nodes. It knows how reliable each entry is, but no law that
connects them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.core.model import GPUS_MAX
from scheduler.estimates.arrays import Bools, Floats, Ints, numbered
from scheduler.estimates.measurements import Measurements, Rows

# Relative standard deviations of one measurement: of an epoch; of a run's first epoch with its
# warm-up; of an epoch beside others, corrected by their expected effect.
SD_EPOCH, SD_WARM_UP, SD_BESIDE = 0.04, 0.3, 0.2
FASTEST = 4  # power with which the slowness of a place reduces what its measurement counts
WEIGHT_WEAK_MAX = 0.25  # of all unreliable measurements of one situation, in epochs

# The same for what a line says about one GPU: measured there, or on more GPUs.
SD_ON_ONE, SD_ELSEWHERE = 0.02, 0.1

SLOWDOWN = 0.38  # of two jobs that keep the GPU busy: spec/optimizer.md, section 5

SITUATION = GPUS_MAX + 1  # count * SITUATION + nodes encodes both numbers


@dataclass(frozen=True, slots=True)
class Grid:
    """A line is an owner on a type, a column is a number of GPUs and of nodes."""

    owner: Ints  # [line]
    type: Ints  # [line]
    kind: Ints  # [line]: lines of one kind and one type resemble each other
    count: Ints  # [column]
    nodes: Ints  # [column]
    seconds: Floats  # [line, column]; 1 where nothing was measured
    weight: Floats  # [line, column]: 1 for a reliable measurement, 0 for none
    solid: Bools  # [line, column]: reliable: alone, and not only the first epoch of a run
    relied: Bools  # [line]: solid in some column
    aside: Bools  # [line]: measured only beside others
    sd: Floats  # [line]: relative standard deviation of its seconds on one GPU

    def places(self, counts: Ints, nodes: Ints) -> Iterator[tuple[int, int]]:
        """The column of each of these situations, where there is one."""
        column = {key: at for at, key in enumerate(zip(self.count, self.nodes, strict=True))}
        for situation, key in enumerate(zip(counts, nodes, strict=True)):
            if key in column:
                yield situation, column[key]


def grid(measured: Measurements) -> Grid:
    """Epochs beside others are used only for owners that were never alone there."""
    types = max(1, len(measured.types))
    alone, beside = measured.alone, measured.beside
    needed = ~np.isin(beside.owner * types + beside.type, alone.owner * types + alone.type)
    rows = alone.with_rows(beside.at(needed, beside.seconds * _expected_speeds(measured)))
    apart = np.arange(len(rows.owner)) < len(alone.owner)
    solid = apart & (rows.epochs >= 1)
    sd = np.where(solid, SD_EPOCH, np.where(apart, SD_WARM_UP, SD_BESIDE))
    counts, which = numbered(rows.count)
    over, where = numbered(rows.nodes)
    situations, column = numbered(which * len(over) + where)
    keys, line = numbered(rows.owner * types + rows.type)
    shape = len(keys), len(situations)

    def summed(values: Floats | Bools) -> Floats:
        sums = np.bincount(line * shape[1] + column, values, shape[0] * shape[1])
        return sums.astype(np.float64).reshape(shape)

    weight = (SD_EPOCH / sd) ** 2 * _trust_in_places(rows, line * shape[1] + column, solid)
    total, reliable = summed(weight), summed(solid) > 0.0
    seconds = np.divide(summed(weight * rows.seconds), total, out=np.ones(shape), where=total > 0.0)
    owner, type = np.divmod(keys, types)
    count, nodes = counts[situations // len(over)], over[situations % len(over)]
    relied: Bools = np.any(reliable, axis=1)
    aside = np.bincount(line, apart, len(keys)) == 0
    return Grid(
        owner=owner,
        type=type,
        kind=numbered(measured.kind[owner] * types + type)[1],
        count=count,
        nodes=nodes,
        seconds=seconds,
        weight=np.where(reliable, 1.0, np.minimum(total, WEIGHT_WEAK_MAX)),
        solid=reliable,
        relied=relied,
        aside=aside,
        sd=np.select(
            [(reliable & (count == 1)).any(axis=1), relied, aside],
            [SD_ON_ONE, SD_ELSEWHERE, SD_BESIDE],
            SD_WARM_UP,
        ),
    )


def _trust_in_places(rows: Rows, cell: Ints, solid: Bools) -> Floats:
    """[row] from 0 to 1: what was measured at several places counts where it was fastest, because
    GPUs may be slower than others of their type, but not faster (slow_gpus.py)."""
    several = solid & (np.bincount(cell, solid)[cell] > 1)
    trust = np.ones(len(cell))
    if several.any():
        fastest = np.full(int(cell.max()) + 1, np.inf)
        np.minimum.at(fastest, cell[several], rows.seconds[several])
        trust[several] = (fastest[cell[several]] / rows.seconds[several]) ** FASTEST
    return trust


def _expected_speeds(measured: Measurements) -> Floats:
    """[row of `beside`] the expected speed of its owner beside all its neighbours there."""
    owner = measured.beside.owner[measured.neighbour_row]
    speed = expected_speed(measured.util[owner], measured.util[measured.neighbour])
    lost = np.bincount(measured.neighbour_row, np.log(speed), len(measured.beside.owner))
    speeds: Floats = np.exp(lost.astype(np.float64))
    return speeds


def expected_speed(util: Floats, beside: Floats) -> Floats:
    """The speed of one of two jobs on a GPU, relative to alone, before anything is learned."""
    speed: Floats = 1.0 / (1.0 + SLOWDOWN * util * beside)
    return speed
