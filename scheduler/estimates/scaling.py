"""How the time of an epoch shrinks with the number of GPUs: the law, and its fit to measurements.

The time of an epoch of a job on GPUs of one type is modelled as

    T(n, nodes) = T(1) · (1/n + a·r + m·(b·r + c·r/n)),    r = (n - 1)/n

with m = 1 on several nodes, else 0. No parameter is negative, so nothing scales better than
perfectly (spec/optimizer.md, section 4). In measurements, jobs whose batch grows with the GPUs have
an a near 0 and a c; jobs whose batch stays constant have an a and a b. All parameters are fitted at
once, by a linear maximum a posteriori estimate in closed form.

The prior of a job is what other jobs of its family (its *kind*) have shown, then what the kinds on
that type of GPU show, then a fixed guess. Of each kind, the type of GPU learns one shape, and the
less of it the less the kind has shown. A kind far from the others pulls no harder than a kind a
little off them, so alone it moves what is expected of another kind by no more than a part of
the doubt; kinds that agree add up (docs/adr/0036).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler.estimates.arrays import Floats, Ints
from scheduler.estimates.grid import SD_EPOCH, Grid

# The fixed guess of (1, a, b, c), and its uncertainty: between a batch that grows with the GPUs
# (measured: an a near 0.06) and one that stays constant (0.9).
GUESS = np.array([1.0, 0.2, 0.15, 0.5])
GUESS_SD = np.array([0.2, 0.4, 0.5, 0.6])
# How far a job may be from others on its type of GPU: a part of what they show, plus a little.
SPREAD, SPREAD_LEAST = 0.7, np.array([0.1, 0.1, 0.1, 0.15])

# Relative standard deviations.
SD_KIND = 0.1  # between jobs of one kind
KIND_WEIGHT_MAX = 10.0  # other jobs of the kind count for no more measurements than this
OUTLIER = 20.0  # a measurement this many times off the guess does not affect the fit
PINNED = 1e9  # a precision that leaves a parameter at 0
FIRST_LEAST = 0.05  # the least part of T(1) that the fit may arrive at

# Between kinds: the guess counts like this many kinds; and in standard deviations of the guess, a
# kind further off than this pulls no harder than one at this distance, so alone it moves the centre
# of the kinds by at most a quarter of a standard deviation.
GUESS_KINDS, FAR = 0.25, 0.0625
_SWEEPS = 12  # of the search for the centre of the kinds


@dataclass(frozen=True, slots=True)
class Shapes:
    """The fitted laws. A shape is (1, a, b, c): the law for an epoch of one second on one GPU."""

    first: Floats  # [line] seconds on one GPU
    line: Floats  # [line, parameter]
    precision: Floats  # [line, parameter, parameter]: the certainty of these
    kind: Floats  # [kind, parameter]
    kind_precision: Floats  # [kind, parameter, parameter]
    type: Floats  # [type, parameter]; the last type stands for those without measurements
    type_sd: Floats  # [type, parameter]: of a kind that has shown nothing on the type


def terms(count: npt.ArrayLike, nodes: npt.ArrayLike) -> Floats:
    """[situation, parameter] The terms of the law."""
    n = np.maximum(np.asarray(count, dtype=np.float64), 1.0)  # without a GPU: as on one
    over = np.asarray(nodes, dtype=np.float64)
    rest = (n - 1.0) / n
    return np.stack([1.0 / n, rest, rest * (over > 1), rest / n * (over > 1)], axis=-1)


def spread(shape: Floats) -> Floats:
    """Standard deviations of a job's shape around that of the jobs on the same type of GPU."""
    sd: Floats = SPREAD * shape + SPREAD_LEAST
    return sd


def fit(grid: Grid, types: int) -> Shapes:
    """The shape of each line, of each kind on a type, and of each type."""
    columns = terms(grid.count, grid.nodes)
    solid = grid.solid.sum(axis=1)
    tells = (solid >= 2)[:, None]  # these show a shape; a single measurement shows only a scale
    lines_of_kind = _Lines.of(grid.kind)
    type_of_kind = grid.type[lines_of_kind.first]
    count: Floats = np.bincount(grid.kind, solid * tells[:, 0]).astype(np.float64)

    guess = np.broadcast_to(GUESS, (len(grid.owner), len(GUESS)))
    told = _evidence(grid, columns, guess, _scale(grid, columns, guess, GUESS_SD)) * tells
    likes = _limit(lines_of_kind.summed(told), count)
    shown, precision = _posterior(likes, columns, GUESS, GUESS_SD)
    left = np.linalg.inv(precision).diagonal(axis1=1, axis2=2) / GUESS_SD**2
    by_type, kinds = _centres(_unit(shown), 1.0 - left, type_of_kind, types)
    type_sd = np.hypot(spread(by_type), GUESS_SD * np.sqrt(GUESS_KINDS / (GUESS_KINDS + kinds)))

    guess, sd = by_type[grid.type], type_sd[grid.type]
    usual = guess[lines_of_kind.first]
    told = _evidence(grid, columns, guess, _scale(grid, columns, guess, sd)) * tells
    likes = _limit(lines_of_kind.summed(told), count)
    by_kind, kind_precision = _posterior(likes, columns, usual, sd[lines_of_kind.first])
    by_kind = _unit(by_kind)

    of_kind = by_kind[grid.kind]
    scale = _scale(grid, columns, of_kind, spread(of_kind))
    told = _evidence(grid, columns, of_kind, scale) * tells
    others = lines_of_kind.summed(told)[:, grid.kind] - told
    likes = _limit(others, count[grid.kind] - solid * tells[:, 0])
    own = _evidence(grid, columns, guess, scale, own=True) / SD_EPOCH**2
    shape, precision = _posterior(likes + own, columns, guess, sd)
    first, by_line = scale * shape[:, 0], _unit(shape)
    return Shapes(first, by_line, precision, by_kind, kind_precision, by_type, type_sd)


def _centres(shape: Floats, shown: Floats, type: Ints, types: int) -> tuple[Floats, Floats]:
    """[type, parameter] the centre of the kinds on each type, and how many kinds have shown it; one
    type more has none. `shown`: [kind, parameter] from 0 to 1."""
    parameters = len(GUESS)
    cell = (type[:, None] * parameters + np.arange(parameters)).ravel()
    off = ((shape - GUESS) / GUESS_SD).ravel()
    weight, cells = np.clip(shown, 0.0, 1.0).ravel(), (types + 1) * parameters
    centre = np.zeros(cells)
    for _ in range(_SWEEPS):
        pull = weight * FAR / np.maximum(np.abs(off - centre[cell]), FAR)
        sums = np.bincount(cell, pull * off, cells)
        centre = sums / (GUESS_KINDS + np.bincount(cell, pull, cells))
    kinds: Floats = np.bincount(cell, weight, cells).astype(np.float64).reshape(-1, parameters)
    return GUESS + GUESS_SD * centre.reshape(-1, parameters), kinds


def _scale(grid: Grid, columns: Floats, shape: Floats, sd: Floats) -> Floats:
    """[line] seconds on one GPU, if the line has this shape, with this doubt.

    Measurements on few GPUs count most, because the shape matters least there.
    """
    law = shape @ columns.T
    doubt = sd[..., 1:] ** 2 @ columns[:, 1:].T ** 2
    weight = grid.weight / (SD_EPOCH**2 + doubt / law**2)
    log_scale = (weight * np.log(grid.seconds / law)).sum(axis=1) / weight.sum(axis=1)
    scale: Floats = np.exp(log_scale)
    return scale


def _evidence(
    grid: Grid, columns: Floats, shape: Floats, scale: Floats, own: bool = False
) -> Floats:
    """[2, line, column] what each measurement adds to the two sides of the normal equations.

    For a line's `own` fit, errors are relative to what was measured. For the fit of others they are
    relative to the guess; otherwise jobs that scale well would count for more than those that do
    not.
    """
    law = shape @ columns.T
    relative = np.clip(grid.seconds / scale[:, None], law / OUTLIER, law * OUTLIER)
    weight = grid.weight / (relative if own else law) ** 2
    return np.stack([weight, weight * relative])


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines grouped by a key."""

    key: Ints  # the distinct keys
    order: Ints  # of the lines, so that those with the same key are together
    start: Ints  # where each key begins in this order

    @classmethod
    def of(cls, key: Ints) -> _Lines:
        """The keys are small numbers: see `numbered`."""
        lines = np.bincount(key)
        found = np.flatnonzero(lines)
        few = key.astype(np.uint16) if len(lines) <= 1 << 16 else key  # sorted without comparing
        return cls(found, np.argsort(few, kind="stable"), (np.cumsum(lines) - lines)[found])

    @property
    def first(self) -> Ints:
        """[key] the first line with it."""
        line: Ints = self.order[self.start]
        return line

    def summed(self, values: Floats) -> Floats:
        """[..., key, column] sums over lines."""
        sums: Floats = np.add.reduceat(values[:, self.order], self.start, axis=1)
        return sums


def _limit(likes: Floats, count: Floats) -> Floats:
    """Limits the weight of other jobs: however many they are, they are not the job itself."""
    limited: Floats = likes * np.minimum(1.0, KIND_WEIGHT_MAX / np.maximum(count, 1.0))[:, None]
    return limited / SD_KIND**2


def _posterior(shown: Floats, columns: Floats, guess: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """[line, parameter] the likeliest shapes, none negative, and their precisions."""
    lines, parameters = shown.shape[1], columns.shape[1]
    squares = (columns[:, :, None] * columns[:, None, :]).reshape(-1, parameters**2)
    # Not by BLAS, whose threads cost ten times as much on matrices that are this narrow.
    precision = np.einsum("lc,cp->lp", shown[0], squares).reshape(lines, parameters, parameters)
    weight = np.broadcast_to(1.0 / sd**2, (lines, parameters))
    diagonal = np.arange(parameters)
    precision[:, diagonal, diagonal] += weight
    right = np.einsum("lc,cp->lp", shown[1], columns) + weight * guess
    shape = np.linalg.solve(precision, right[..., None])[..., 0]
    below = shape < 0.0
    again = np.flatnonzero(below.any(axis=1))
    if len(again):  # with these at 0, the others are likeliest elsewhere
        pinned = precision[again]
        pinned[:, diagonal, diagonal] += np.where(below[again], PINNED, 0.0)
        shape[again] = np.linalg.solve(pinned, np.where(below, 0.0, right)[again, :, None])[..., 0]
    shape = np.maximum(shape, 0.0)
    shape[:, 0] = np.maximum(shape[:, 0], FIRST_LEAST)
    return shape, precision


def _unit(shape: Floats) -> Floats:
    return shape / shape[:, :1]
