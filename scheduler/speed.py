"""Seconds per epoch of a job alone, on so many GPUs of a type: measured where they were, else
predicted. Not: what neighbours on a GPU cost (see interference.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler import scaling
from scheduler.measurements import COUNT_MAX, Floats, Integers, Measurements, Memo, read
from scheduler.model import Job, Kind

Bools = npt.NDArray[np.bool_]

SECONDS_UNKNOWN = 600.0  # an epoch of a job of which nothing at all is known
SECONDS_LEAST, SECONDS_MOST = 1e-9, 1e12  # of what is predicted

# How much a measurement counts that is not to be relied on.
WEIGHT_WARM_UP = (scaling.NOISE / 0.3) ** 2  # a first epoch
WEIGHT_BESIDE = (scaling.NOISE / 0.2) ** 2  # one beside others, less their cost
SITUATION = COUNT_MAX + 1  # a situation is count * SITUATION + nodes, as one number
WEIGHT_WEAK_MAX = 0.25  # all such of one situation together

SLOWDOWN = 0.38  # of two jobs that keep the GPU busy: spec/optimizer.md, section 5
UTIL_UNKNOWN = 0.75

# What a measured situation was off the law, those near it are too.
NEARNESS = 1.0  # in doublings of the GPUs, or half of that of the nodes
NEARNESS_RIDGE = 0.64

# Of the seconds on one GPU, in logarithms: how sure they are by where they come from.
SD_MEASURED = 0.02
SD_OTHER_TYPE = 0.25
SD_KIND = 0.2
SD_HOURS = 0.7
SD_UNKNOWN = 1.2


@dataclass(frozen=True, slots=True, order=True)
class Config:
    """So many GPUs of one type, on so many nodes."""

    type: str
    count: int
    nodes: int = 1

    @property
    def key(self) -> str:
        """As `packing.placement` says it."""
        return f"{self.type}x{self.count}" + (f"/{self.nodes}" if self.nodes > 1 else "")


def estimate(jobs: Sequence[Job], kinds: Mapping[str, Kind], configs: Sequence[Config]) -> Floats:
    """[job, config] seconds per epoch, alone. Always positive and finite."""
    return Speeds(jobs, kinds).estimate(configs)


def uncertainty(
    jobs: Sequence[Job], kinds: Mapping[str, Kind], configs: Sequence[Config]
) -> Floats:
    """[job, config] relative standard deviation of what `estimate` says."""
    return Speeds(jobs, kinds).uncertainty(configs)


class Speeds:
    """What all measurements together say. Made anew for each plan; a `Memo` makes that cheap."""

    def __init__(
        self, jobs: Sequence[Job], kinds: Mapping[str, Kind], memo: Memo | None = None
    ) -> None:
        self.measured = measured = read(jobs, kinds, memo)
        self._known = known = _known(measured)
        self._shapes = shapes = scaling.fit(known.grid, len(measured.types))
        self._first, self._first_sd = _firsts(jobs, measured, known.grid, shapes)
        self._shape, _ = _spread_out(measured, known.grid, shapes)

    def estimate(self, configs: Sequence[Config]) -> Floats:
        """[job, config] seconds per epoch, alone. Always positive and finite."""
        return self.of_owners(configs)[0][: self.measured.jobs]

    def uncertainty(self, configs: Sequence[Config]) -> Floats:
        """[job, config] relative standard deviation of what `estimate` says."""
        return self.of_owners(configs)[1][: self.measured.jobs]

    def of_owners(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """[owner, config] of both: an epoch of a job, a sample of a kind."""
        owners = len(self.measured.kind)
        seconds, sd = np.empty((owners, len(configs))), np.empty((owners, len(configs)))
        number = {name: index for index, name in enumerate(self.measured.types)}
        for name in dict.fromkeys(config.type for config in configs):
            columns = [c for c, config in enumerate(configs) if config.type == name]
            counts = [configs[c].count for c in columns]
            nodes = [configs[c].nodes for c in columns]
            found = self._of_type(number.get(name, -1), np.array(counts), np.array(nodes))
            seconds[:, columns], sd[:, columns] = found
        return seconds, sd

    def _of_type(self, type: int, counts: Integers, nodes: Integers) -> tuple[Floats, Floats]:
        wanted, grid, known = scaling.terms(counts, nodes), self._known.grid, self._known
        relative = self._shape[:, type] @ wanted.T
        seconds = self._first[:, type, None] * relative
        sd = np.sqrt(
            self._first_sd[:, type, None] ** 2
            + scaling.spread(self._shape[:, type])[:, 1:] ** 2 @ wanted[:, 1:].T ** 2 / relative**2
        )
        lines = np.flatnonzero(grid.type == type)
        if len(lines):
            owners = grid.owner[lines]
            solid, measured = known.solid[lines], grid.seconds[lines]
            law = self._shapes.first[lines, None] * (self._shapes.line[lines] @ grid.columns.T)
            off = np.where(solid, np.log(measured / law), 0.0)
            near = _nearness(known.count, known.nodes, counts, nodes)
            seconds[owners] *= np.exp(off @ near / (solid @ near + NEARNESS_RIDGE))
            covariance = np.linalg.inv(self._shapes.precision[lines])
            variance = np.einsum("cp,lpq,cq->lc", wanted, covariance, wanted)
            sd[owners] = np.sqrt(variance) / relative[owners]
            for column in range(len(counts)):
                same = (known.count == counts[column]) & (known.nodes == nodes[column])
                for there in np.flatnonzero(same):
                    kept = solid[:, there]
                    seconds[owners[kept], column] = measured[kept, there]
                    sd[owners[kept], column] = SD_MEASURED
        return np.clip(seconds, SECONDS_LEAST, SECONDS_MOST), sd


def _nearness(count: Integers, nodes: Integers, counts: Integers, other: Integers) -> Floats:
    gpus = np.log2(count)[:, None] - np.log2(counts)
    spans = 2.0 * (np.log2(nodes)[:, None] - np.log2(other))
    near: Floats = np.exp(-(gpus**2 + spans**2) / (2.0 * NEARNESS**2))
    return near


# --- what was measured, as a grid ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    grid: scaling.Grid
    count: Integers  # [column]
    nodes: Integers  # [column]
    solid: Bools  # [line, column]: measured alone, and not only once with a warm-up


def _known(measured: Measurements) -> _Known:
    alone, types = measured.alone, len(measured.types)
    solid = alone.epochs >= 1
    shown = np.unique((alone.owner * types + alone.type)[solid])
    beside = measured.beside
    needed = ~np.isin(beside.owner * types + beside.type, shown)
    expected = beside.seconds * expected_speeds(measured)

    def both(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([getattr(alone, name), getattr(beside, name)[needed]])

    weight = np.concatenate(
        [np.where(solid, 1.0, WEIGHT_WARM_UP), np.full(needed.sum(), WEIGHT_BESIDE)]
    )
    seconds = np.concatenate([alone.seconds, expected[needed]])
    solid = np.concatenate([solid, np.zeros(needed.sum(), dtype=np.bool_)])
    situations, column = np.unique(both("count") * SITUATION + both("nodes"), return_inverse=True)
    keys, line = np.unique(both("owner") * types + both("type"), return_inverse=True)
    shape = len(keys), len(situations)
    cell = line * shape[1] + column

    def summed(values: Floats) -> Floats:
        return np.bincount(cell, values, shape[0] * shape[1]).reshape(shape)

    total, reliable = summed(weight), summed(solid.astype(np.float64)) > 0.0
    some = total > 0.0
    count, nodes = np.divmod(situations, SITUATION)
    owner, type = np.divmod(keys, max(types, 1))
    grid = scaling.Grid(
        owner=owner,
        type=type,
        kind=np.unique(measured.kind[owner] * types + type, return_inverse=True)[1],
        columns=scaling.terms(count, nodes),
        seconds=np.where(some, summed(weight * seconds) / np.where(some, total, 1.0), 1.0),
        weight=np.where(reliable, 1.0, np.minimum(total, WEIGHT_WEAK_MAX)),
    )
    return _Known(grid, count, nodes, reliable)


def expected_speeds(measured: Measurements) -> Floats:
    """[row of `beside`] how fast its owner was, by what is expected before anything is learned."""
    rows = measured.beside
    util = np.where(measured.util > 0.0, measured.util, UTIL_UNKNOWN)
    util = np.append(util, np.full(measured.neighbours - len(util), UTIL_UNKNOWN))
    product = util[rows.owner[measured.neighbour_row]] * util[measured.neighbour]
    lost = np.log1p(SLOWDOWN * product)
    speeds: Floats = np.exp(-np.bincount(measured.neighbour_row, lost, len(rows.owner)))
    return speeds


# --- seconds on one GPU, for whom they were not measured ----------------------------------------


def _firsts(
    jobs: Sequence[Job], measured: Measurements, grid: scaling.Grid, shapes: scaling.Shapes
) -> tuple[Floats, Floats]:
    """[owner, type] seconds on one GPU, and their relative standard deviation. The last type is
    one that nobody was measured on."""
    types, owners = len(measured.types), len(measured.kind)
    size = np.log(measured.size)
    weight = grid.weight.max(axis=1, initial=0.0)
    first = np.log(shapes.first)
    kind = measured.kind[grid.owner]

    # A kind's seconds per sample are x + f(type) + g(kind, type), in logarithms.
    keys, key = np.unique(kind * types + grid.type, return_inverse=True)
    of_kind, of_type = np.divmod(keys, max(types, 1))
    total = np.bincount(key, weight, len(keys))
    mean = np.bincount(key, weight * (first - size[grid.owner]), len(keys)) / total
    f = _ratios(of_kind, of_type, mean, measured.kinds, types)
    count = np.bincount(of_kind, total, measured.kinds)
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.bincount(of_kind, total * (mean - f[of_type]), measured.kinds) / count
    own = np.zeros((measured.kinds, types + 1))
    own[of_kind, of_type] = (mean - x[of_kind] - f[of_type]) * total / (total + 0.5)

    scale = x[measured.kind] + size
    sd = np.full((owners, types + 1), SD_KIND + SD_OTHER_TYPE)
    lines = np.bincount(grid.owner, weight, owners)
    offset = f[grid.type] + own[kind, grid.type]
    shown = lines > 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        mine = np.bincount(grid.owner, weight * (first - offset), owners) / lines
    scale = np.where(shown, mine, scale)
    known = mine[: len(jobs)][shown[: len(jobs)]]
    typical = float(np.median(known)) if len(known) else float(np.log(SECONDS_UNKNOWN))
    sd[shown] = SD_OTHER_TYPE
    for number in np.flatnonzero(np.isnan(scale)).tolist():
        said = _said(jobs[number]) if number < len(jobs) else None
        scale[number] = typical if said is None else said
        sd[number] = SD_UNKNOWN if said is None else SD_HOURS
    seconds = scale[:, None] + f + own[measured.kind]
    seconds[grid.owner, grid.type] = first
    sd[grid.owner, grid.type] = SD_MEASURED
    return np.exp(np.clip(seconds, np.log(SECONDS_LEAST), np.log(SECONDS_MOST))), sd


def _ratios(kind: Integers, type: Integers, mean: Floats, kinds: int, types: int) -> Floats:
    """[type + 1] how much longer it takes on a type, in logarithms, from kinds that were measured
    on several."""
    f = np.zeros(types + 1)
    several = np.bincount(kind, minlength=kinds)[kind] > 1
    kind, type, mean = kind[several], type[several], mean[several]
    if len(kind) == 0:
        return f
    lines = np.maximum(np.bincount(kind, minlength=kinds), 1)
    shown = np.bincount(type, minlength=types) + 0.1
    for _ in range(20):
        x = np.bincount(kind, mean - f[type], kinds) / lines
        f[:types] = np.bincount(type, mean - x[kind], types) / shown
    return f


def _said(job: Job) -> float | None:
    """What its owner said, as the logarithm of an epoch's seconds on one GPU."""
    seconds = job.spec.hours_estimate * 3600.0 / max(1, job.max_epochs)
    if not SECONDS_LEAST < seconds < SECONDS_MOST:
        return None
    gpus = scaling.terms(max(1, job.spec.gpus_min), 1) @ scaling.GUESS
    return float(np.log(seconds / gpus))


def _spread_out(
    measured: Measurements, grid: scaling.Grid, shapes: scaling.Shapes
) -> tuple[Floats, Integers]:
    """[owner, type, parameter] the shapes, also of those not measured on the type; the last type
    is one that nobody was measured on."""
    types, owners = len(measured.types), len(measured.kind)
    shape = np.empty((owners, types + 1, len(scaling.GUESS)))
    shape[:] = np.vstack([shapes.type, scaling.GUESS])
    of_kind = np.full((measured.kinds, types + 1), -1)
    of_kind[measured.kind[grid.owner], grid.type] = grid.kind
    known = of_kind[measured.kind] >= 0
    shape[known] = shapes.kind[of_kind[measured.kind][known]]
    shape[grid.owner, grid.type] = shapes.line
    return shape, of_kind
