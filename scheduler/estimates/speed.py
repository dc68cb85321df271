"""Seconds per epoch of a job alone, on a number of GPUs of a type: measured where possible, else
predicted. The effect of neighbours on a GPU is in interference.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from scheduler.core.model import Job, JobFamily, Placement
from scheduler.estimates import baseline, scaling
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.grid import SD_ON_ONE, SITUATION, Grid, grid
from scheduler.estimates.measurements import Measurements, Memo, read
from scheduler.estimates.slow_gpus import find_slow, split_type

# What no fit of the law explains, from the tables it was tested on: on one node, and on several.
SD_LAW, SD_LAW_NODES = 0.12, 0.25

# If a measured situation deviates from the law, those near it deviate too.
NEARNESS = 1.0  # in doublings of the GPUs, and half that in doublings of the nodes
NEARNESS_RIDGE = 0.3

MARGIN = 0.05  # predictions scale worse than perfectly from measurements by at least this


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


class Speeds:
    """What all measurements together say. Rebuilt for each plan, which a `Memo` makes cheap."""

    def __init__(
        self, jobs: Sequence[Job], kinds: Mapping[str, JobFamily], memo: Memo | None = None
    ) -> None:
        self._jobs = jobs
        measured = read(jobs, kinds, memo)
        self.slow = find_slow(measured)
        self.measured = measured = self.slow.corrected(measured)
        self._grid = known = grid(measured)
        self._shapes = shapes = scaling.fit(known, len(measured.types))
        self._shape = _spread_out(measured, known, shapes)
        self._expected_first = self._baseline(np.ones(len(known.sd), dtype=np.bool_))
        self._first, self._first_sd = (part.copy() for part in self._expected_first)
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
        """The number of the type among those with measurements; -1 stands for all others. Slow GPUs
        of a type share its measurements."""
        types = self.measured.types
        type = type if type in types else split_type(type)[0]
        return types.index(type) if type in types else -1

    def estimate(self, configs: Sequence[Placement]) -> Floats:
        """[job, config] seconds per epoch, alone. Always positive and finite."""
        jobs = self.measured.jobs
        seconds = np.empty((jobs, len(configs)))
        for type, columns, counts, nodes in _by_type(configs):
            times = split_type(type)[1]
            seconds[:, columns] = self._seconds(self.number(type), counts, nodes)[:jobs] * times
        return seconds

    def uncertainty(self, configs: Sequence[Placement]) -> Floats:
        """[job, config] relative standard deviation of the result of `estimate`."""
        return self.doubts(np.arange(self.measured.jobs), configs)

    def doubts(self, owners: Ints, configs: Sequence[Placement]) -> Floats:
        """[owner, config] the same, of these owners only."""
        sd = np.empty((len(owners), len(configs)))
        for type, columns, counts, nodes in _by_type(configs):
            sd[:, columns] = self._doubt(owners, self.number(type), counts, nodes)
        return sd

    def shown(self, configs: Sequence[Placement]) -> Bools:
        """[kind, config] whether a job of the kind was measured alone there, after its warm-up."""
        known, found = self._grid, np.zeros((self.measured.kinds, len(configs)), bool)
        kind = self.measured.kind[known.owner]
        for type, columns, counts, nodes in _by_type(configs):
            here = known.type == self.number(type)
            for column, there in known.places(counts, nodes):
                found[kind[here & known.solid[:, there]], columns[column]] = True
        return found

    def met(self, owners: Ints, configs: Sequence[Placement]) -> Floats:
        """[owner, config] 1 if it was measured alone there, less if only in a run's first epoch, 0
        if never."""
        known, found = self._grid, np.zeros((len(owners), len(configs)))
        row = np.full(len(self.measured.kind), -1)
        row[owners] = np.arange(len(owners))
        for type, columns, counts, nodes in _by_type(configs):
            lines = known.type == self.number(type)
            lines = np.flatnonzero(lines & ~known.aside & (row[known.owner] >= 0))
            for column, there in known.places(counts, nodes):
                found[row[known.owner[lines]], columns[column]] = known.weight[lines, there]
        return found

    def alone_at(self, type: str, owner: Ints, count: Ints, nodes: Ints) -> tuple[Floats, Floats]:
        """[row] seconds of owners in situations of their own, and their relative standard
        deviations, without measurements beside others: from the time on one GPU, and the law"""
        number, known = self.number(type), self._grid
        seconds = self._without_neighbours[0][:, number].copy()
        keys, which = np.unique(count * SITUATION + nodes, return_inverse=True)
        law = self._seconds(number, *np.insert(np.divmod(keys, SITUATION), 0, 1, axis=1))
        relied = known.owner[known.relied & (known.type == number)]
        seconds[relied] = law[relied, 0]
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
        aside = self._grid.aside
        return self._baseline(~aside) if aside.any() else self._expected_first

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

    def _doubt(self, owners: Ints, type: int, counts: Ints, nodes: Ints) -> Floats:
        """[owner, situation] relative standard deviations."""
        known, wanted = self._grid, scaling.terms(counts, nodes)
        law = self._shape[owners, type] @ wanted.T
        of_shape = self._doubt_of_shape(owners, type, wanted)
        sd: Floats = np.sqrt(self._first_sd[owners, type, None] ** 2 + of_shape / law**2)
        row = np.full(len(self.measured.kind), -1)
        row[owners] = np.arange(len(owners))
        lines = np.flatnonzero(known.relied & (known.type == type) & (row[known.owner] >= 0))
        place = row[known.owner[lines]]
        covariance = np.linalg.inv(self._shapes.precision[lines])
        variance = np.einsum("cp,lpq,cq->lc", wanted, covariance, wanted)
        sd[place] = np.sqrt(variance / law[place] ** 2)
        unexplained = np.where(counts > 1, np.where(nodes > 1, SD_LAW_NODES, SD_LAW), 0.0)
        sd = np.hypot(sd, unexplained)
        for column, there in known.places(counts, nodes):
            sd[place[known.solid[lines, there]], column] = SD_ON_ONE
        return sd

    def _doubt_of_shape(self, owners: Ints, type: int, wanted: Floats) -> Floats:
        """[owner, situation] the variances of the laws of owners that have shown nothing there,
        from what their kind has shown, or the other kinds."""
        known, measured, shapes = self._grid, self.measured, self._shapes
        rest = wanted[:, 1:]
        of_shape = np.tile(shapes.type_sd[type, 1:] ** 2 @ rest.T**2, (len(owners), 1))
        lines = np.flatnonzero(known.type == type)
        kinds, first = np.unique(known.kind[lines], return_index=True)
        if not len(kinds):
            return of_shape
        covariance = np.linalg.inv(shapes.kind_precision[kinds, 1:, 1:])
        variance = np.einsum("cp,kpq,cq->kc", rest, covariance, rest)
        variance += (scaling.SD_KIND * (shapes.kind[kinds, 1:] @ rest.T)) ** 2
        number = np.full(measured.kinds, -1)
        number[measured.kind[known.owner[lines[first]]]] = np.arange(len(kinds))
        of_owner = number[measured.kind[owners]]
        of_shape[of_owner >= 0] = variance[of_owner[of_owner >= 0]]
        return of_shape


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
    shape[:] = shapes.type
    number = np.full((measured.kinds, types), -1)
    number[measured.kind[known.owner], known.type] = known.kind
    of_owner = number[measured.kind]
    shown = of_owner >= 0
    shape[shown] = shapes.kind[of_owner[shown]]
    shape[known.owner, known.type] = shapes.line
    return shape
