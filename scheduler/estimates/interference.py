"""How much jobs slow each other down on one GPU: expected from their utilisation, then learned.

The speed of i beside k, relative to i alone on that GPU, is modelled as

    1/(1 + 0.38·u_i·u_k) + mean + a_i + b_k + c_ik

where u is utilisation, a how sensitive i is to others, b how much k presses on them, and c what
these leave unexplained for a pair that was measured (spec/optimizer.md, section 5). All but the
first term are learned, for each type of GPU, and tend to 0 where little was measured. Each of a, b
and c is the sum of a term of the kind (job family), learned from all its jobs, and a term of the
job. For a pair that was itself measured, the model therefore gives the measured speed to within a
few per cent.

With three jobs on a GPU, the speed of one is the product of its speeds beside each of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from scheduler.core.model import Job, JobFamily
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.grid import expected_speed
from scheduler.estimates.measurements import Measurements
from scheduler.estimates.speed import Speeds

SPEED_LEAST = 0.05

# Standard deviations of a relative speed.
SD_LAW = 0.09  # of the expected speed
SD_KIND = 0.04  # of a pair of jobs, if others of their kinds were measured together
SD_MEASURED = 0.016  # of one measured epoch
SD_WARM_UP = 0.15  # of a first epoch
SD_ALONE_MAX = 0.5  # a job whose own speed is less certain teaches nothing about neighbours

RIDGE_MEAN = 4.0
RIDGE = 2.0  # of each kind, and of each job: together as strong as section 5's ridge of 1
FEW = 1_000  # kinds: a table of all pairs of them is small
SWEEPS = 4  # of Gauss-Seidel; more change only the fourth digit


class Interference:
    """The speeds on one type of GPU. `known`: the speeds of the same jobs and kinds, if they are
    known."""

    def __init__(
        self,
        jobs: Sequence[Job],
        kinds: Mapping[str, JobFamily],
        type: str,
        known: Speeds | None = None,
    ) -> None:
        known = known or Speeds(jobs, kinds)
        measured = known.measured
        self._doubt_alone = partial(known.doubt_alone, type)
        pairs = _pairs(known, type)
        self._taught = len(pairs.speed) > 0  # otherwise the expected speed is all there is
        self._util, self._kind = measured.util, measured.kind
        self._sensitivity, self._pressure, left = _effects(pairs, measured)
        present = pairs.neighbour < len(measured.kind)  # otherwise its kind is unknown
        self._of_kinds, place = _gathered(
            measured.kind[pairs.owner[present]],
            measured.kind[pairs.neighbour[present]],
            left[present],
            pairs.variance[present] + SD_KIND**2,
        )
        left[present] -= self._of_kinds.value[place]
        self._kinds = measured.kinds
        self._of_jobs, _ = _gathered(pairs.owner, pairs.neighbour, left, pairs.variance)

    @cached_property
    def _by_kind(self) -> Floats | None:
        return self._of_kinds.whole(self._kinds) if self._kinds <= FEW else None

    @cached_property
    def unseen(self) -> Bools:
        """[owner] whether its time alone, and so the effect of a neighbour on it, is unknown."""
        unseen: Bools = self._doubt_alone() > SD_ALONE_MAX
        return unseen

    def speeds(self, a: Ints, b: Ints) -> Floats:
        """[a, b] how fast the jobs `a` (their indices, each once) are beside the jobs `b`."""
        speeds = expected_speed(self._util[a][:, None], self._util[b])
        if not self._taught:
            return speeds
        speeds += self._sensitivity[a][:, None]
        speeds += self._pressure[b]
        if self._by_kind is not None:
            speeds += self._by_kind[self._kind[a][:, None], self._kind[b]]
        elif len(self._of_kinds.value):
            kinds, place = np.unique(self._kind[b], return_inverse=True)
            of_kinds = np.zeros((len(a), len(kinds)))
            self._of_kinds.add_to(of_kinds, self._kind[a], kinds)
            speeds += of_kinds[:, place]
        self._of_jobs.add_to(speeds, a, b)
        return np.clip(speeds, SPEED_LEAST, 1.0, out=speeds)

    def each(self, a: Ints, b: Ints) -> Floats:
        """How fast each job of `a` is beside the job of `b` at the same position."""
        speeds = expected_speed(self._util[a], self._util[b])
        if not self._taught:
            return speeds
        speeds += self._sensitivity[a]
        speeds += self._pressure[b]
        kinds = self._kind[a], self._kind[b]
        speeds += self._of_kinds.at(*kinds) if self._by_kind is None else self._by_kind[kinds]
        speeds += self._of_jobs.at(a, b)
        return np.clip(speeds, SPEED_LEAST, 1.0, out=speeds)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Measurements of two jobs on one GPU."""

    owner: Ints
    neighbour: Ints
    speed: Floats  # of the owner
    variance: Floats  # of the measured speed

    @property
    def weight(self) -> Floats:
        """From 0 to 1. More epochs add little, because the variance that no effect explains
        remains."""
        weight: Floats = SD_LAW**2 / (SD_LAW**2 + self.variance)
        return weight


@dataclass(frozen=True, slots=True)
class _Sparse:
    """A matrix that is 0 except in a few places, each listed once, row by row."""

    row: Ints
    column: Ints
    value: Floats

    def whole(self, size: int) -> Floats:
        """The full matrix with this number of rows and columns."""
        matrix = np.zeros((size, size))
        matrix[self.row, self.column] = self.value
        return matrix

    def add_to(self, block: Floats, rows: Ints, columns: Ints) -> None:
        """Adds it to a block of the matrix; no column is in it twice."""
        first, last = (np.searchsorted(self.row, rows, side) for side in ("left", "right"))
        length = last - first
        if not length.any():
            return
        row = np.repeat(np.arange(len(rows)), length)
        # The entries of one row after the other, each from the row's first.
        entry = np.arange(len(row)) + np.repeat(last - np.cumsum(length), length)
        column = _places(self.column[entry], columns)
        inside = column >= 0
        block[row[inside], column[inside]] += self.value[entry[inside]]

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """The value at each of these places."""
        width = max(self.column.max(initial=0), columns.max(initial=0)) + 1
        known, wanted = self.row * width + self.column, rows * width + columns
        place = np.searchsorted(known, wanted)
        found = np.append(known, -1)[place] == wanted
        values: Floats = np.where(found, np.append(self.value, 0.0)[place], 0.0)
        return values


def _places(of: Ints, among: Ints) -> Ints:
    """The index of each among those, -1 if it is not there."""
    places = np.full(max(of.max(initial=-1), among.max(initial=-1)) + 1, -1)
    places[among] = np.arange(len(among))
    found: Ints = places[of]
    return found


def _gathered(row: Ints, column: Ints, value: Floats, variance: Floats) -> tuple[_Sparse, Ints]:
    """The mean of the values of each place, whose prior is 0 with standard deviation SD_LAW, and
    the place of each value."""
    width = int(column.max(initial=0)) + 1
    keys, place = np.unique(row * width + column, return_inverse=True)
    precision = SD_LAW**2 / variance
    total = 1.0 + np.bincount(place, precision, len(keys))
    mean = np.bincount(place, precision * value, len(keys)) / total
    return _Sparse(*np.divmod(keys, width), mean), place


def _pairs(known: Speeds, type: str) -> _Pairs:
    measured, rows = known.measured, known.measured.beside
    two = np.bincount(measured.neighbour_row, minlength=len(rows.owner)) == 1
    here = np.flatnonzero(two & (rows.type == known.number(type)) & (rows.count >= 1))
    alone, sd = known.alone_at(type, rows.owner[here], rows.count[here], rows.nodes[here])
    sure = sd <= SD_ALONE_MAX
    chosen, alone, sd = here[sure], alone[sure], sd[sure]
    owner, epochs = rows.owner[chosen], rows.epochs[chosen]
    speed = np.clip(alone / rows.seconds[chosen], SPEED_LEAST, 1.0)
    variance = (speed * sd) ** 2 + SD_MEASURED**2 / np.maximum(epochs, 1.0)
    variance += np.where(epochs < 1, SD_WARM_UP**2, 0.0)
    return _Pairs(
        owner=owner,
        neighbour=measured.neighbour[np.searchsorted(measured.neighbour_row, chosen)],
        speed=speed,
        variance=variance,
    )


class _Effects:
    """The effects of one sort, for instance of kinds on their neighbours: part of a ridge
    regression."""

    def __init__(self, index: Ints, size: int, weight: Floats, ridge: float) -> None:
        """The index `size` stands for no owner."""
        self.index, self.weight = index, np.where(index < size, weight, 0.0)
        self.total = np.bincount(index, self.weight, size + 1) + ridge
        self.value = np.zeros(size + 1)

    def refit(self, left: Floats) -> Floats:
        """Fits the effects to what the other effects leave of the measurements; returns the
        remainder."""
        left = left + self.value[self.index]
        self.value = np.bincount(self.index, self.weight * left, len(self.value)) / self.total
        return left - self.value[self.index]


def _effects(pairs: _Pairs, measured: Measurements) -> tuple[Floats, Floats, Floats]:
    """[neighbour] how sensitive each is, including the mean, and how much it presses; and what they
    leave of each pair's speed."""
    everyone, owners = len(measured.util), len(measured.kind)
    kind = np.full(everyone, measured.kinds)  # of no kind, like jobs that are gone
    kind[:owners] = measured.kind
    itself = np.arange(everyone)
    itself[measured.jobs : owners] = everyone  # kinds have effects only as kinds
    all_alike = np.zeros(len(pairs.speed), dtype=np.int64)
    effects = [
        _Effects(all_alike, 1, pairs.weight, RIDGE_MEAN),
        *(
            _Effects(of[who], size, pairs.weight, RIDGE)
            for of, size in ((kind, measured.kinds), (itself, everyone))
            for who in (pairs.owner, pairs.neighbour)
        ),
    ]
    left = pairs.speed - expected_speed(measured.util[pairs.owner], measured.util[pairs.neighbour])
    for _ in range(SWEEPS):
        for effect in effects:
            left = effect.refit(left)
    mean, kind_a, kind_b, own_a, own_b = (effect.value for effect in effects)
    return mean[0] + kind_a[kind] + own_a[itself], kind_b[kind] + own_b[itself], left
