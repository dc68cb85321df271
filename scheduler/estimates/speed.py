"""Seconds per epoch of a job alone, on a number of GPUs of a type: measured where possible, else
predicted. The effect of neighbours on a GPU is in interference.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from scheduler.core.model import Job, JobFamily, Placement
from scheduler.estimates import baseline, scaling
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.grid import SD_EPOCH, SD_ON_ONE, SITUATION, Grid, grid
from scheduler.estimates.measurements import Measurements, Memo, read

# What no fit of the law explains, from the tables it was tested on: on one node, and on several.
SD_LAW, SD_LAW_NODES = 0.12, 0.25

# If a measured situation deviates from the law, those near it deviate too.
NEARNESS = 1.0  # in doublings of the GPUs, and half that in doublings of the nodes
NEARNESS_RIDGE = 0.3

MARGIN = 0.05  # predictions scale worse than perfectly from measurements by at least this
GAIN_MIN = 0.01  # of the mean relative variance, for a situation to be worth a try


def estimate(
    jobs: Sequence[Job], kinds: Mapping[str, JobFamily], configs: Sequence[Placement]
) -> Floats:
    """[job, config] seconds per epoch, alone. Always positive and finite."""
    return Speeds(jobs, kinds).estimate(configs)


def uncertainty(
    jobs: Sequence[Job], kinds: Mapping[str, JobFamily], configs: Sequence[Placement]
) -> Floats:
    """[job, config] relative standard deviation of the result of `estimate`."""
    return Speeds(jobs, kinds).uncertainty(configs)


def most_informative_config(job: Job, configs: Sequence[Placement]) -> Placement | None:
    """The configuration in which an epoch of the job, alone, would tell most about its epochs in
    all these configurations.

    None: no configuration would tell much more than the job's measurements already do.
    """
    alone = [one.placement for one in job.measured if one.epochs >= 1 and not one.beside]
    best, most = None, GAIN_MIN
    for type, columns, counts, nodes in _by_type(configs):
        places = (place for place in map(Placement.parse, alone) if place and place.type == type)
        known = [(place.gpus, place.nodes) for place in places]
        for column, gain in zip(columns, _gains(counts, nodes, known), strict=True):
            if gain > most:
                best, most = configs[column], gain
    return best


def _gains(counts: Ints, nodes: Ints, known: Sequence[tuple[int, int]]) -> list[float]:
    """[situation] by how much a measurement there would lower the mean relative variance."""
    places = [*zip(counts.tolist(), nodes.tolist(), strict=True), *known]
    terms = scaling.terms(*np.array(places).T)
    relative = terms / (terms @ scaling.GUESS)[:, None]
    scale = baseline.SD_USUAL**2 * np.outer(scaling.GUESS, scaling.GUESS)
    covariance = relative @ (np.diag(scaling.GUESS_SD**2) + scale) @ relative.T
    for one in range(len(counts), len(places)):
        told = covariance[one] / (covariance[one, one] + SD_EPOCH**2)
        covariance = covariance - np.outer(told, covariance[one])
    wanted = covariance[: len(counts), : len(counts)]
    gains = (wanted**2).mean(axis=0) / (wanted.diagonal() + SD_EPOCH**2)
    return [
        0.0 if place in known else float(gain) for place, gain in zip(places, gains, strict=False)
    ]


class Speeds:
    """What all measurements together say. Rebuilt for each plan, which a `Memo` makes cheap."""

    def __init__(
        self, jobs: Sequence[Job], kinds: Mapping[str, JobFamily], memo: Memo | None = None
    ) -> None:
        self._jobs = jobs
        self.measured = measured = read(jobs, kinds, memo)
        self._grid = known = grid(measured)
        self._shapes = shapes = scaling.fit(known, len(measured.types))
        self._shape = _spread_out(measured, known, shapes)
        self._first, self._first_sd = self._baseline(np.ones(len(known.sd), dtype=np.bool_))
        owner, type = known.owner[known.relied], known.type[known.relied]
        self._relied_on: dict[int, tuple[Ints, Bools, Floats, Floats, Floats]] = {}
        self._first[owner, type] = shapes.first[known.relied]
        self._first_sd[owner, type] = known.sd[known.relied]

    def _baseline(self, lines: Bools) -> tuple[Floats, Floats]:
        """The baseline for all types from these lines."""
        known = self._grid
        firsts = baseline.Firsts(
            known.owner[lines], known.type[lines], self._shapes.first[lines], known.sd[lines]
        )
        return baseline.fit(self._jobs, self.measured, firsts)

    def number(self, type: str) -> int:
        """The number of the type among those with measurements; -1 stands for all others."""
        types = self.measured.types
        return types.index(type) if type in types else -1

    def estimate(self, configs: Sequence[Placement]) -> Floats:
        """[job, config] seconds per epoch, alone. Always positive and finite."""
        jobs = self.measured.jobs
        seconds = np.empty((jobs, len(configs)))
        for type, columns, counts, nodes in _by_type(configs):
            seconds[:, columns] = self._seconds(self.number(type), counts, nodes)[:jobs]
        return seconds

    def uncertainty(self, configs: Sequence[Placement]) -> Floats:
        """[job, config] relative standard deviation of the result of `estimate`."""
        jobs = self.measured.jobs
        sd = np.empty((jobs, len(configs)))
        for type, columns, counts, nodes in _by_type(configs):
            sd[:, columns] = self._doubt(self.number(type), counts, nodes)[:jobs]
        return sd

    def alone_at(self, type: str, owner: Ints, count: Ints, nodes: Ints) -> tuple[Floats, Floats]:
        """[row] seconds of owners in situations of their own, and their relative standard
        deviations, without measurements beside others: from the time on one GPU, and the law"""
        number, known = self.number(type), self._grid
        seconds = self._without_neighbours[0][:, number].copy()
        keys, which = np.unique(count * SITUATION + nodes, return_inverse=True)
        law = self._seconds(number, *np.insert(np.divmod(keys, SITUATION), 0, 1, axis=1))
        here = known.relied & (known.type == number)
        relied, one = known.owner[here], np.ones(1, dtype=np.int64)
        seconds[relied] = self._seconds(number, one, one)[relied, 0]
        sd = self.doubt_alone(type)
        return seconds[owner] * law[owner, which + 1] / law[owner, 0], sd[owner]

    def doubt_alone(self, type: str) -> Floats:
        """[owner] the relative standard deviation of the time on one GPU, likewise."""
        number, known = self.number(type), self._grid
        sd: Floats = self._without_neighbours[1][:, number].copy()
        here = known.relied & (known.type == number)
        sd[known.owner[here]] = known.sd[here]
        return sd

    @cached_property
    def _without_neighbours(self) -> tuple[Floats, Floats]:
        return self._baseline(~self._grid.aside)

    def _seconds(self, type: int, counts: Ints, nodes: Ints) -> Floats:
        """[owner, situation] seconds"""
        known, wanted = self._grid, scaling.terms(counts, nodes)
        seconds = self._first[:, type, None] * (self._shape[:, type] @ wanted.T)
        owner, solid, measured, off, work = self._relied(type)
        near = _nearness(known.count, known.nodes, counts, nodes)
        predicted = seconds[owner] * np.exp(off @ near / (solid @ near + NEARNESS_RIDGE))
        for column, (count, over) in enumerate(zip(counts, nodes, strict=True)):
            fewer = (known.count <= count) & (known.nodes <= over)
            least = work[:, fewer].max(axis=1, initial=0.0) / (max(count, 1) * (1.0 + MARGIN))
            predicted[:, column] = np.maximum(predicted[:, column], least)
        seconds[owner] = predicted
        for column, there in known.places(counts, nodes):
            kept = solid[:, there]
            seconds[owner[kept], column] = measured[kept, there]
        return np.clip(seconds, baseline.SECONDS_LEAST, baseline.SECONDS_MOST)

    def _relied(self, type: int) -> tuple[Ints, Bools, Floats, Floats, Floats]:
        """The reliable measurements of the lines on the type: their owners, where each was
        measured, the result, its deviation from the law, and its work (in GPU-seconds)."""
        if type not in self._relied_on:
            known = self._grid
            lines = np.flatnonzero(known.relied & (known.type == type))
            solid, measured = known.solid[lines], known.seconds[lines]
            columns = scaling.terms(known.count, known.nodes)
            law = self._shapes.first[lines, None] * (self._shapes.line[lines] @ columns.T)
            off = np.where(solid, np.log(measured / law), 0.0)
            work = np.where(solid, measured * np.maximum(known.count, 1), 0.0)
            self._relied_on[type] = known.owner[lines], solid, measured, off, work
        return self._relied_on[type]

    def _doubt(self, type: int, counts: Ints, nodes: Ints) -> Floats:
        """[owner, situation] relative standard deviations."""
        known, wanted = self._grid, scaling.terms(counts, nodes)
        law = self._shape[:, type] @ wanted.T
        of_shape = scaling.spread(self._shape[:, type])[:, 1:] ** 2 @ wanted[:, 1:].T ** 2
        sd = np.sqrt(self._first_sd[:, type, None] ** 2 + of_shape / law**2)
        lines = np.flatnonzero(known.relied & (known.type == type))
        owner = known.owner[lines]
        covariance = np.linalg.inv(self._shapes.precision[lines])
        variance = np.einsum("cp,lpq,cq->lc", wanted, covariance, wanted)
        sd[owner] = np.sqrt(variance / law[owner] ** 2)
        unexplained = np.where(counts > 1, np.where(nodes > 1, SD_LAW_NODES, SD_LAW), 0.0)
        sd = np.hypot(sd, unexplained)
        for column, there in known.places(counts, nodes):
            sd[owner[known.solid[lines, there]], column] = SD_ON_ONE
        return sd


def _by_type(
    configs: Sequence[Placement],
) -> Iterator[tuple[str, list[int], Ints, Ints]]:
    for type in dict.fromkeys(config.type for config in configs):
        columns = [column for column, config in enumerate(configs) if config.type == type]
        counts = np.array([configs[column].gpus for column in columns])
        yield type, columns, counts, np.array([configs[column].nodes for column in columns])


def _nearness(count: Ints, nodes: Ints, counts: Ints, others: Ints) -> Floats:
    gpus = np.log2(np.maximum(count, 1))[:, None] - np.log2(np.maximum(counts, 1))
    spans = 2.0 * (np.log2(nodes)[:, None] - np.log2(others))
    near: Floats = np.exp(-(gpus**2 + spans**2) / (2.0 * NEARNESS**2))
    return near


def _spread_out(measured: Measurements, known: Grid, shapes: scaling.Shapes) -> Floats:
    """[owner, type, parameter] the shapes, also those for types without measurements; the last type
    stands for any type that has none at all."""
    owners, types = len(measured.kind), len(measured.types) + 1
    shape = np.empty((owners, types, len(scaling.GUESS)))
    shape[:] = np.vstack([shapes.type, scaling.GUESS])
    number = np.full((measured.kinds, types), -1)
    number[measured.kind[known.owner], known.type] = known.kind
    of_owner = number[measured.kind]
    shown = of_owner >= 0
    shape[shown] = shapes.kind[of_owner[shown]]
    shape[known.owner, known.type] = shapes.line
    return shape
