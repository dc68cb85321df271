"""How the time of an epoch shrinks with the number of GPUs: the law, and its fit to measurements.

Of a job on GPUs of one type we believe that an epoch takes

    T(n, nodes) = T(1) · (1/n + a·r + m·(b·r + c·r/n)),    r = (n - 1)/n

with m = 1 on several nodes, else 0. No parameter is negative, so nothing scales better than
perfectly. (After spec/optimizer.md, section 4. Measured, a batch that grows with the GPUs has an a
near 0 and a c; one that stays has an a and a b.) All are fitted at once, by a linear maximum a
posteriori estimate in closed form. What is expected of a job before it has shown it is what others
of its kind have shown, then what all have on that type of GPU, then a fixed guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler.estimates.arrays import Floats, Ints
from scheduler.estimates.grid import SD_EPOCH, Grid

# The fixed guess, of (1, a, b, c), and how wrong it may be: between a batch that grows with the
# GPUs (measured: an a near 0.06) and one that stays (0.9).
GUESS = np.array([1.0, 0.2, 0.15, 0.5])
GUESS_SD = np.array([0.2, 0.4, 0.5, 0.6])
# How far a job may be from others on its type of GPU: a part of what they show, and a little.
SPREAD, SPREAD_LEAST = 0.7, np.array([0.1, 0.1, 0.1, 0.15])

# Relative standard deviations.
SD_KIND = 0.1  # of what a job's likes say of it
SD_TYPE = 0.25  # of what any others say
KIND_WEIGHT_MAX = 10.0  # its likes never count for more measurements than that
OUTLIER = 20.0  # what is so many times off the guess bends no law
FIRST_LEAST = 0.05  # of T(1), that the fit may make of it

_PASSES = 2  # between the scale of each and the shape of all; more change next to nothing


@dataclass(frozen=True, slots=True)
class Shapes:
    """The fitted laws. A shape is (1, a, b, c): the law of an epoch of one second on one GPU."""

    first: Floats  # [line] seconds on one GPU
    line: Floats  # [line, parameter]
    precision: Floats  # [line, parameter, parameter]: how sure that is
    kind: Floats  # [kind, parameter]
    type: Floats  # [type, parameter]


def terms(count: npt.ArrayLike, nodes: npt.ArrayLike) -> Floats:
    """[situation, parameter] of the law."""
    n = np.maximum(np.asarray(count, dtype=np.float64), 1.0)  # without a GPU it is as on one
    over = np.asarray(nodes, dtype=np.float64)
    rest = (n - 1.0) / n
    return np.stack([1.0 / n, rest, rest * (over > 1), rest / n * (over > 1)], axis=-1)


def spread(shape: Floats) -> Floats:
    """Standard deviations of a job's shape, about that of the jobs on the same type of GPU."""
    sd: Floats = SPREAD * shape + SPREAD_LEAST
    return sd


def fit(grid: Grid, types: int) -> Shapes:
    """The shape of each line, of each kind on a type, and of each type."""
    columns = terms(grid.count, grid.nodes)
    solid = grid.solid.sum(axis=1)
    tells = solid >= 2  # of its shape; who was measured but once tells of its scale only
    lines_of_type, lines_of_kind = _Lines.of(grid.type), _Lines.of(grid.kind)
    by_type = np.tile(GUESS, (types, 1))
    for _ in range(_PASSES):
        guess = by_type[grid.type]
        told = _evidence(grid, columns, guess, _scale(grid, columns, guess)) * tells[:, None]
        sums = lines_of_type.summed(told) / SD_TYPE**2
        by_type[lines_of_type.key] = _unit(_posterior(sums, columns, GUESS, GUESS_SD)[0])

    guess = by_type[grid.type]
    count: Floats = np.bincount(grid.kind, solid * tells).astype(np.float64)
    likes = _limit(lines_of_kind.summed(told), count)
    usual = guess[lines_of_kind.first]
    by_kind = _unit(_posterior(likes, columns, usual, spread(usual))[0])

    scale = _scale(grid, columns, by_kind[grid.kind])
    told = _evidence(grid, columns, guess, scale) * tells[:, None]
    others = lines_of_kind.summed(told)[:, grid.kind] - told
    likes = _limit(others, count[grid.kind] - solid * tells)
    own = _evidence(grid, columns, guess, scale, own=True) / SD_EPOCH**2
    shape, precision = _posterior(likes + own, columns, guess, spread(guess))
    return Shapes(scale * shape[:, 0], _unit(shape), precision, by_kind, by_type)


def _scale(grid: Grid, columns: Floats, shape: Floats) -> Floats:
    """[line] seconds on one GPU, if the line has this shape.

    What was measured on few GPUs says most of it, because the shape matters least there.
    """
    law = shape @ columns.T
    doubt = spread(shape)[:, 1:] ** 2 @ columns[:, 1:].T ** 2
    weight = grid.weight / (SD_EPOCH**2 + doubt / law**2)
    log_scale = (weight * np.log(grid.seconds / law)).sum(axis=1) / weight.sum(axis=1)
    scale: Floats = np.exp(log_scale)
    return scale


def _evidence(
    grid: Grid, columns: Floats, shape: Floats, scale: Floats, own: bool = False
) -> Floats:
    """[2, line, column] what each measurement adds to the two sides of the normal equations.

    Errors are relative to what was measured if it is a line's `own`. For others they are relative
    to what was guessed: else those who scale well would count for more than those who do not.
    """
    law = shape @ columns.T
    relative = np.clip(grid.seconds / scale[:, None], law / OUTLIER, law * OUTLIER)
    weight = grid.weight / (relative if own else law) ** 2
    return np.stack([weight, weight * relative])


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines by a key that they have."""

    key: Ints  # those that there are
    order: Ints  # of the lines, so that those of a key are together
    start: Ints  # of each key there

    @classmethod
    def of(cls, key: Ints) -> _Lines:
        order = np.argsort(key, kind="stable")
        found, start = np.unique(key[order], return_index=True)
        return cls(found, order, start)

    @property
    def first(self) -> Ints:
        """[key] the first line of it."""
        line: Ints = self.order[self.start]
        return line

    def summed(self, values: Floats) -> Floats:
        """[..., key, column] over lines."""
        sums: Floats = np.add.reduceat(values[:, self.order], self.start, axis=1)
        return sums


def _limit(likes: Floats, count: Floats) -> Floats:
    """However many they are, they are not the job itself."""
    limited: Floats = likes * np.minimum(1.0, KIND_WEIGHT_MAX / np.maximum(count, 1.0))[:, None]
    return limited / SD_KIND**2


def _posterior(shown: Floats, columns: Floats, guess: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """[line, parameter] the likeliest shapes, none negative, and their precisions."""
    lines, parameters = shown.shape[1], columns.shape[1]
    squares = (columns[:, :, None] * columns[:, None, :]).reshape(-1, parameters**2)
    precision = (shown[0] @ squares).reshape(lines, parameters, parameters)
    weight = np.broadcast_to(1.0 / sd**2, (lines, parameters))
    diagonal = np.arange(parameters)
    precision[:, diagonal, diagonal] += weight
    right = shown[1] @ columns + weight * guess
    shape = np.maximum(np.linalg.solve(precision, right[..., None])[..., 0], 0.0)
    shape[:, 0] = np.maximum(shape[:, 0], FIRST_LEAST)
    return shape, precision


def _unit(shape: Floats) -> Floats:
    return shape / shape[:, :1]
