"""Slow GPUs as estimates/slow_gpus.py finds them, but in plain loops, and of all GPUs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.learning import WARM_UP_SECONDS_MAX
from scheduler.core.model import GpuKey
from scheduler.estimates import slow_gpus as rules
from scheduler.estimates.measurements import Measurements
from scheduler.estimates.slow_gpus import SlowGpu

ROUNDING = 1e-9


@dataclass(frozen=True)
class Row:
    owner: int
    line: tuple[int, int]  # owner, type
    family: tuple[int, int]  # kind, type
    count: int
    nodes: int
    seconds: float
    shown: float  # the logarithm of a sample's
    epochs: float
    ended: float
    items: frozenset[GpuKey]  # its GPUs and nodes

    @property
    def cell(self) -> tuple[object, ...]:
        return self.line, self.count, self.nodes

    @property
    def alike(self) -> tuple[object, ...]:
        return self.family, self.count, self.nodes


@dataclass(frozen=True)
class Vote:
    row: Row
    excess: float
    weight: float

    @property
    def slow(self) -> bool:
        return self.excess > rules.LEAST

    def members(self, item: GpuKey) -> list[GpuKey]:
        """Those that are, like this one, GPUs, or nodes."""
        return [other for other in self.row.items if bool(other[1]) == bool(item[1])]


Entry = tuple[Vote, GpuKey]


def find_plainly(measured: Measurements) -> dict[GpuKey, SlowGpu]:
    votes = list(_votes(measured, _rows(measured)))
    entries: list[Entry] = [(vote, item) for vote in votes for item in sorted(vote.row.items)]
    decided, counted = _Decided({}, {}, {}, {}), entries
    for _ in range(3):
        decided = _decide(counted)
        counted = [entry for entry in entries if not _explained(entry, votes, decided)]
    return dict(_told({item for _, item in entries}, decided, counted))


def _rows(measured: Measurements) -> list[Row]:
    places, alone = measured.places, measured.alone
    found = []
    for at, (owner, type) in enumerate(zip(alone.owner.tolist(), alone.type.tolist(), strict=True)):
        gpus = [places.gpus[gpu] for gpu in places.gpu[places.place == alone.place[at]].tolist()]
        seconds = float(alone.seconds[at])
        row = Row(
            owner,
            (owner, type),
            (int(measured.kind[owner]), type),
            int(alone.count[at]),
            int(alone.nodes[at]),
            seconds,
            math.log(seconds / float(measured.size[owner])),
            float(alone.epochs[at]),
            float(alone.ended[at]),
            frozenset({key for key in gpus if key[1]} | {(node, "") for node, _ in gpus}),
        )
        found.append(row)
    return [row for row in found if row.epochs >= 1]


def _votes(measured: Measurements, rows: Sequence[Row]) -> Iterator[Vote]:
    off = {row.cell: _unusual(row, rows) for row in rows}
    found = []
    for at, row in enumerate(rows):
        excess, weight = _slowness(at, rows), 1.0
        if not excess and sum(row.cell == other.cell for other in rows) == 1:
            excess, weight = off[row.cell], rules.OF_FAMILY * _is_alike(row, rows, off)
        young = row.owner < measured.jobs and row.seconds * (row.epochs + 1) < WARM_UP_SECONDS_MAX
        if row.items and weight and not (young and excess > rules.LEAST):
            found.append(Vote(row, excess, weight))
    newest = max((vote.row.ended for vote in found), default=0.0)
    for vote in found:
        fade = 2.0 ** ((vote.row.ended - newest) / rules.HALF_LIFE_SECONDS)
        yield Vote(vote.row, vote.excess, vote.weight * fade)


def _slowness(at: int, rows: Sequence[Row]) -> float:
    """By its own measurements."""
    row = rows[at]
    same = [other.shown for other in rows if other.cell == row.cell]
    if len(same) > 1:
        return row.shown - min(same)
    off = max(
        row.shown + math.log(row.count) - other.shown - math.log(other.count)
        for place, other in enumerate(rows)
        if other.line == row.line and (-other.count, place) <= (-row.count, at)
    )
    return off if row.nodes == 1 and off > rules.UNUSUAL else 0.0


def _fastest(row: Row, rows: Sequence[Row]) -> dict[int, float]:
    """Of each owner in the family, in this situation."""
    found: dict[int, float] = {}
    for other in rows:
        if other.alike == row.alike:
            found[other.owner] = min(other.shown, found.get(other.owner, math.inf))
    return found


def _unusual(row: Row, rows: Sequence[Row]) -> float:
    fastest = _fastest(row, rows)
    off = fastest[row.owner] - statistics.median_low(fastest.values())
    return off if off > rules.UNUSUAL else 0.0


def _is_alike(row: Row, rows: Sequence[Row], off: Mapping[tuple[object, ...], float]) -> bool:
    of_family = {other.cell: other for other in rows if other.family == row.family}
    compared = {
        cell
        for cell, other in of_family.items()
        if len(_fastest(other, rows)) >= rules.FAMILY_LEAST
    }
    unlike = sum(off[cell] > 0.0 for cell in compared)
    return row.cell in compared and unlike <= rules.UNLIKE_MAX * len(compared)


@dataclass(frozen=True)
class _Decided:
    """By item, where there is any vote."""

    factor: dict[GpuKey, float]
    suspected: dict[GpuKey, float]
    lead: dict[GpuKey, float]
    against: dict[GpuKey, float]


def _decide(counted: Sequence[Entry]) -> _Decided:
    by_job: dict[GpuKey, dict[int, list[Vote]]] = defaultdict(lambda: defaultdict(list))
    for vote, item in counted:
        by_job[item][vote.row.owner].append(vote)
    decided = _Decided({}, {}, {}, {})
    for item, jobs in by_job.items():
        cast = [
            (
                sum(vote.excess * vote.weight for vote in votes) / sum(v.weight for v in votes),
                max(vote.weight for vote in votes),
            )
            for votes in jobs.values()
        ]
        lead = {
            least: sum(weight if excess >= least else -weight for excess, weight in cast)
            for least, _ in cast
        }
        some = [least for least in lead if lead[least] > rules.SOME + ROUNDING]
        enough = [least for least in lead if lead[least] > rules.ENOUGH + ROUNDING]
        suspected = max([0.0, *some])
        decided.suspected[item] = suspected
        decided.factor[item] = max([0.0, *enough, min(suspected, rules.ALONE_MAX)])
        leads = [lead[least] for least in some if least > rules.LEAST]
        decided.lead[item] = max([0.0, *leads])
        normal = [weight for excess, weight in cast if excess <= rules.LEAST]
        decided.against[item] = sum(normal)
    return decided


def _node(item: GpuKey) -> GpuKey:
    return item[0], ""


def _explained(entry: Entry, votes: Sequence[Vote], decided: _Decided) -> bool:
    vote, item = entry

    def score(of: GpuKey) -> float:
        return max(own_score(of), own_score(_node(of)))

    def own_score(of: GpuKey) -> float:
        gangs = [len(each.members(of)) for each in votes if each.slow and of in each.row.items]
        return decided.lead.get(of, 0.0) + (1.0 / min(gangs) if gangs else 0.0)

    def explains(of: GpuKey) -> bool:
        found = max(decided.suspected.get(each, 0.0) for each in (of, _node(of)))
        return found > max(vote.excess - rules.MEMBER, rules.LEAST)

    scores = [score(other) for other in vote.members(item) if explains(other)]
    if not vote.slow or not scores:
        return False
    return not explains(item) or max(scores) > score(item) + rules.MORE


def _told(
    items: set[GpuKey], decided: _Decided, counted: Sequence[Entry]
) -> Iterator[tuple[GpuKey, SlowGpu]]:
    factor = {item: decided.factor.get(item, 0.0) for item in items}
    for node in [item for item in items if not item[1]]:
        gpus = [item for item in items if item[1] and _node(item) == node]
        normal = [
            gpu
            for gpu in gpus
            if factor[gpu] <= rules.LEAST and decided.against.get(gpu, 0.0) > rules.SOME
        ]
        if normal or len(gpus) == 1:
            factor[node] = 0.0
    for item in sorted(items):
        source = _node(item) if factor[_node(item)] > factor[item] else item
        gpu = _slow_gpu(factor[source], [vote for vote, each in counted if each == source])
        if factor[source] > rules.LEAST and gpu.times > math.exp(rules.SURE * gpu.doubt):
            yield item, gpu


def _slow_gpu(factor: float, votes: Sequence[Vote]) -> SlowGpu:
    off = [vote.excess - factor for vote in votes]
    if factor <= rules.ALONE_MAX:
        off = [min(each, 0.0) for each in off]
    jobs = len({vote.row.owner for vote in votes})
    spread = math.hypot(rules.NOISE, statistics.median(map(abs, off)) if off else 0.0)
    epochs = sum(int(vote.row.epochs) for vote in votes)
    return SlowGpu(math.exp(factor), spread / math.sqrt(max(1, jobs)), epochs, jobs)
