"""Which GPUs are slower than others of their type: a factor for each, learned from all jobs. Pure.

A job that was measured alone, on as many GPUs of the same type, at several places shows how much
slower each place is than the fastest one. A job that was not shows how much slower it is than is
usual for its family in that situation, if the family's jobs are alike. Each job has one vote on
each GPU. The factor is the largest slowness that more votes support than oppose, by more than one;
one vote more moves it only to ALONE_MAX, so a single job that lies, or changes, moves it no further
(docs/adr/0039). If one member explains why a gang is slow, it is not held against the others.

Votes fade with their age, and with them the factor: a slow GPU on which nothing was measured for
long is taken for a normal one, and measured again. No GPU is taken for faster than its type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

import numpy as np

from scheduler.core.learning import WARM_UP_SECONDS_MAX
from scheduler.core.model import GpuKey
from scheduler.estimates.arrays import Bools, Floats, Ints, numbered
from scheduler.estimates.grid import SITUATION
from scheduler.estimates.measurements import Measurements, Places, Rows

ALONE_MAX = math.log(1.3)  # how far the vote of one job moves a factor
SOME = 0.5  # votes, more than against it: enough for that
ENOUGH = 1.0  # enough for all that they show
HALF_LIFE_SECONDS = 86_400.0  # a vote that is older than the newest one by this counts half
OF_FAMILY = 0.5  # the vote of a job that is compared with others of its family
UNUSUAL = 0.3  # by how much, as a logarithm, it must be slower than them
UNLIKE_MAX = 0.4  # the part of a family's jobs that may be; if more are, they are not alike
FAMILY_LEAST = 3  # jobs to compare
MEMBER = 0.15  # how much a gang may be slower than the slowest of its members
MORE = 0.2  # votes: a member that is slow by so many more explains a slow gang
NOISE = 0.08  # of a vote, at least
SURE = 2.0  # standard deviations from 1
LEAST = math.log(1.1)  # a factor closer to 1 does not matter
MARK = "~"  # in no label of Kubernetes and no name of a GPU
_ROUNDS = 3
_ROUNDING = 1e-9  # of sums of votes


@dataclass(frozen=True, slots=True)
class SlowGpu:
    times: float  # as long as on other GPUs of its type
    doubt: float  # the relative standard deviation of this
    epochs: int  # on which it is based, as far as they are remembered,
    jobs: int  # of how many jobs


@dataclass(frozen=True, slots=True)
class SlowGpus:
    """The GPUs that are certainly slower than others; a GPU "" is all others of its node."""

    known: Mapping[GpuKey, SlowGpu] = field(default_factory=dict)

    def of(self, key: GpuKey) -> SlowGpu | None:
        return self.known.get(key) or self.known.get((key[0], ""))

    def corrected(self, measured: Measurements) -> Measurements:
        """The measurements as they would be on normal GPUs."""
        if not self.known:
            return measured
        places = measured.places
        factors = np.array([gpu.times if (gpu := self.of(key)) else 1.0 for key in places.gpus])
        times = np.ones(places.count)
        np.maximum.at(times, places.place, factors[places.gpu])
        return replace(
            measured,
            alone=_faster(measured.alone, times),
            beside=_faster(measured.beside, times),
        )


def _faster(rows: Rows, times: Floats) -> Rows:
    return replace(rows, seconds=rows.seconds / times[rows.place])


def slow_type(type: str, times: float) -> str:
    """The name under which a plan has the GPUs of a type that are so many times slower."""
    return f"{type}{MARK}{times:.3g}"


@lru_cache(maxsize=1024)
def split_type(name: str) -> tuple[str, float]:
    """The type of these GPUs, and how many times longer everything takes on them."""
    type, mark, times = name.rpartition(MARK)
    try:
        return (type, float(times)) if mark else (name, 1.0)
    except ValueError:
        return name, 1.0


def find_slow(measured: Measurements) -> SlowGpus:
    """Returns the GPUs, and nodes, of which there is evidence."""
    rows = measured.alone
    if measured.places.count < 3 or not (rows.place > 0).any():  # one place has no others
        return SlowGpus()
    excess, weight = _votes(measured)
    cast = np.flatnonzero(weight > 0.0)
    if not (excess[cast] > LEAST).any():
        return SlowGpus()
    votes = _Votes.cast(measured, cast, excess[cast], weight[cast])
    if not len(votes.item):
        return SlowGpus()
    counted = np.ones(len(votes.item), np.bool_)
    for _ in range(_ROUNDS):
        decision = votes.decided(counted)
        counted = ~votes.explained(decision)
    return votes.told(decision, counted)


def _votes(measured: Measurements) -> tuple[Floats, Floats]:
    """[row of `alone`] the logarithm of its slowness, and the weight of this; 0: it shows none."""
    rows = measured.alone
    solid = np.flatnonzero(rows.epochs >= 1)
    shown = np.log(rows.seconds / measured.size[rows.owner])
    situations, situation = _numbered_pairs(rows.count, rows.nodes)
    situations = max(1, situations)
    types = max(1, len(measured.types))
    line = rows.owner * types + rows.type
    cells, cell = numbered(line[solid] * situations + situation[solid])
    own = np.full(len(cells), np.inf)  # [cell] where it is fastest
    np.minimum.at(own, cell, shown[solid])
    several = np.bincount(cell, minlength=len(cells)) > 1
    owner, type = np.divmod(cells // situations, types)
    kind_line = measured.kind[owner] * types + type
    unusual, alike = _in_family(kind_line, cells % situations, own)
    fewer = _on_fewer(line[solid], rows.count[solid], rows.nodes[solid], shown[solid])
    cases = [several[cell], fewer > 0.0]
    excess, weight = np.zeros(len(shown)), np.zeros(len(shown))
    excess[solid] = np.select(cases, [shown[solid] - own[cell], fewer], unusual[cell])
    weight[solid] = np.select(cases, [1.0, 1.0], OF_FAMILY * alike[cell])
    weight[rows.place == 0] = 0.0
    # What is slow may be a warm-up. Of a family, core/learning.py names GPUs only if it is none.
    young = rows.seconds * (rows.epochs + 1) < WARM_UP_SECONDS_MAX
    weight[young & (rows.owner < measured.jobs) & (excess > LEAST)] = 0.0
    # What has no weight may be newer, by far where a clock was wrong.
    age = np.maximum(rows.ended[weight > 0.0].max(initial=0.0) - rows.ended, 0.0)
    return excess, weight * np.exp2(-age / HALF_LIFE_SECONDS)


def _on_fewer(line: Ints, count: Ints, nodes: Ints, shown: Floats) -> Floats:
    """[row] by how much it is slower than if its job scaled perfectly to more GPUs, where it was
    faster: on fewer GPUs of one node it is at most that much slower. 0: not unusually."""
    order = np.argsort(line * SITUATION - count, kind="stable")
    apart = 1e3 * numbered(line)[1][order]  # more than any two rows differ
    work = shown + np.log(np.maximum(count, 1))
    least = np.empty(len(work))
    least[order] = np.minimum.accumulate(work[order] - apart) + apart
    off = work - least
    return np.where((nodes == 1) & (off > UNUSUAL), off, 0.0)


def _in_family(kind: Ints, situation: Ints, shown: Floats) -> tuple[Floats, Bools]:
    """[cell] by how much it is slower than usual in its family, and whether that says something."""
    _, group = _numbered_pairs(kind, situation)
    order = _ordered(group, shown)
    number = np.bincount(group)
    first = np.cumsum(number) - number
    usual = shown[order[first + (number - 1) // 2]]  # the lower one of two in the middle
    off = shown - usual[group]
    off = np.where(off > UNUSUAL, off, 0.0)
    compared = (number >= FAMILY_LEAST)[group]
    _, family = numbered(kind)
    unlike = np.bincount(family, compared & (off > 0.0)) / np.maximum(
        1, np.bincount(family, compared)
    )
    alike: Bools = compared & (unlike <= UNLIKE_MAX)[family]
    return off, alike


def _numbered_pairs(first: Ints, second: Ints) -> tuple[int, Ints]:
    """Numbers for the pairs, in their order; and how many there are."""
    seconds, column = numbered(second)
    found, place = numbered(numbered(first)[1] * len(seconds) + column)
    return len(found), place


def _ordered(group: Ints, values: Floats) -> Ints:
    """The order by group, and then by value: as np.lexsort has it, several times as fast."""
    order = np.argsort(values, kind="stable")
    found: Ints = order[np.argsort(group[order], kind="stable")]
    return found


@dataclass(frozen=True, slots=True)
class _Decision:
    """[item] what the votes say of each GPU, and of each node."""

    factor: Floats  # the logarithm of its slowness
    suspected: Floats  # the same if a single vote were enough
    lead: Floats  # by how many votes
    against: Floats  # votes for normal


@dataclass(frozen=True, slots=True)
class _Members:
    """The GPUs of places, and the nodes. Both are items; a node has an empty GPU."""

    keys: tuple[GpuKey, ...]  # of the items
    of_node: Ints  # [item] its node; of a node itself
    place: Ints  # [member], in order
    item: Ints  # [member]
    alike: Ints  # [member] the number of GPUs, or of nodes, of the place


def _members(places: Places) -> _Members:
    names = [node for node, _ in places.gpus]
    node = dict(zip(dict.fromkeys(names), count()))
    keys = (*((name, "") for name in node), *places.gpus)
    nodes, items = len(node), len(keys)
    of_gpu = np.array([node[name] for name in names])
    is_gpu = np.array([bool(gpu) for _, gpu in places.gpus])[places.gpu]  # of a large gang: no
    gpus = (places.place * items + nodes + places.gpu)[is_gpu]
    member = np.sort(np.append(gpus, np.unique(places.place * items + of_gpu[places.gpu])))
    place, item = np.divmod(member, items)
    level = 2 * place + (item < nodes)
    of_node = np.append(np.arange(nodes), of_gpu)
    return _Members(keys, of_node, place, item, np.bincount(level)[level])


def _entries(member_place: Ints, place: Ints) -> tuple[Ints, Ints]:
    """All members of the place of each row: the rows, and the members."""
    number = np.bincount(member_place)
    first = np.cumsum(number) - number
    size = number[place]
    row = np.repeat(np.arange(len(place)), size)
    return row, np.arange(len(row)) + (first[place] - np.cumsum(size) + size)[row]


def _may_be_slow(item: Ints, owner: Ints, slow: Bools, weight: Floats) -> Ints:
    """The items that more votes may support than oppose if every vote that is slow counts."""
    some = np.flatnonzero((np.bincount(item, slow) > 0.0)[item])
    item, owner, slow, weight = item[some], owner[some], slow[some], weight[some]
    owners = int(owner.max()) + 1
    pair = item * owners + owner
    order = np.argsort(pair)
    pair = pair[order]
    first = np.flatnonzero(np.append(True, pair[1:] != pair[:-1]))
    most = np.maximum.reduceat(weight[order], first)
    supports = np.logical_or.reduceat(slow[order], first)
    lead = np.bincount(pair[first] // owners, np.where(supports, most, -most))
    return np.flatnonzero(lead > SOME)


@dataclass(frozen=True, slots=True)
class _Votes:
    """One entry for each GPU, and for each node, of each measurement that says something."""

    keys: tuple[GpuKey, ...]  # of the items; a node has an empty GPU
    of_node: Ints  # [item] its node; of a node itself
    item: Ints
    owner: Ints
    row: Ints  # entries of one measurement have the same
    alike: Ints  # the number of GPUs, or of nodes, of the measurement
    excess: Floats
    weight: Floats
    epochs: Floats

    @classmethod
    def cast(cls, measured: Measurements, rows: Ints, excess: Floats, weight: Floats) -> _Votes:
        """Only of nodes where something may be found slow, which are few."""
        owner = measured.alone.owner[rows]
        found = _members(measured.places)
        row, member = _entries(found.place, measured.alone.place[rows])
        items = _may_be_slow(found.item[member], owner[row], (excess > LEAST)[row], weight[row])
        near = np.isin(found.of_node, found.of_node[items])
        kept = np.flatnonzero(near[found.item][member])
        row, member = row[kept], member[kept]
        item, alike = found.item[member], found.alike[member]
        order = sorted(numbered(item)[0].tolist(), key=found.keys.__getitem__)
        number = np.empty(len(found.keys), np.int64)
        number[order] = np.arange(len(order))
        return cls(
            keys=tuple(found.keys[each] for each in order),
            of_node=number[found.of_node[order]],
            item=number[item],
            owner=owner[row],
            row=row,
            alike=alike,
            excess=excess[row],
            weight=weight[row],
            epochs=measured.alone.epochs[rows][row],
        )

    @property
    def is_node(self) -> Bools:
        """[item]"""
        found: Bools = self.of_node == np.arange(len(self.keys))
        return found

    def explained(self, decision: _Decision) -> Bools:
        """[entry] whether another GPU, or node, of the same gang explains what is held against this
        one: it is slow enough, and this is more certain."""
        level = 2 * self.row + self.is_node[self.item]
        slow = self.excess > LEAST
        most = np.zeros(len(self.keys))  # the largest part of a gang that was slow
        np.maximum.at(most, self.item[slow], 1.0 / self.alike[slow])
        score = decision.lead + most
        score = np.maximum(score, score[self.of_node])
        suspected = np.maximum(decision.suspected, decision.suspected[self.of_node])
        explains = slow & (suspected[self.item] > np.maximum(self.excess - MEMBER, LEAST))
        best = np.full(2 * (int(self.row.max()) + 1), -np.inf)
        np.maximum.at(best, level[explains], score[self.item[explains]])
        found: Bools = slow & (best[level] > np.where(explains, score[self.item] + MORE, -np.inf))
        return found

    def decided(self, counted: Bools) -> _Decision:
        item, excess, weight = self._by_job(counted)
        order = _ordered(item, -excess)
        item, excess, weight = item[order], excess[order], weight[order]
        items = len(self.keys)
        total = np.bincount(item, weight, items)
        before = np.append(0.0, np.cumsum(weight))
        sums = before[1:] - before[np.searchsorted(item, np.arange(items))][item]
        lead = 2.0 * sums - total[item]  # votes for at least this, less the others
        some, enough = lead > SOME + _ROUNDING, lead > ENOUGH + _ROUNDING
        factor, suspected, most = np.zeros(items), np.zeros(items), np.zeros(items)
        np.maximum.at(suspected, item[some], excess[some])
        np.maximum.at(most, item[some & (excess > LEAST)], lead[some & (excess > LEAST)])
        np.maximum.at(factor, item[enough], excess[enough])
        factor = np.maximum(factor, np.minimum(suspected, ALONE_MAX))
        normal = excess <= LEAST
        against = np.bincount(item[normal], weight[normal], items).astype(np.float64)
        return _Decision(factor, suspected, most, against)

    def _by_job(self, counted: Bools) -> tuple[Ints, Floats, Floats]:
        """One vote of each job on each item."""
        item, owner = self.item[counted], self.owner[counted]
        excess, weight = self.excess[counted], self.weight[counted]
        owners = int(self.owner.max()) + 1
        pairs, pair = np.unique(item * owners + owner, return_inverse=True)
        sums = np.bincount(pair, weight * excess, len(pairs))
        total = np.bincount(pair, weight, len(pairs))
        most = np.zeros(len(pairs))
        np.maximum.at(most, pair, weight)
        return pairs // owners, sums / total, most

    def told(self, decision: _Decision, counted: Bools) -> SlowGpus:
        """A node counts where its own GPUs do not say otherwise, and more than one of them was
        measured."""
        items, is_node = np.arange(len(self.keys)), self.is_node
        factor = decision.factor.copy()
        normal = ~is_node & (factor <= LEAST) & (decision.against > SOME)
        gpus = np.bincount(self.of_node, ~is_node, len(items))
        spoken = np.bincount(self.of_node, normal, len(items)) > 0
        factor[is_node & (spoken | (gpus == 1))] = 0.0
        source = np.where(factor[self.of_node] > factor, self.of_node, items)
        entry = np.flatnonzero(counted)
        entry = entry[np.argsort(self.item[entry], kind="stable")]
        bounds = np.searchsorted(self.item[entry], np.arange(len(items) + 1))
        found = {}
        for item in np.flatnonzero(factor[source] > LEAST).tolist():
            of = int(source[item])
            mine = entry[bounds[of] : bounds[of + 1]]
            if gpu := self._slow_gpu(mine, float(factor[of])):
                found[self.keys[item]] = gpu
        return SlowGpus(found)

    def _slow_gpu(self, mine: Ints, factor: float) -> SlowGpu | None:
        """`mine`: the entries that count."""
        off = self.excess[mine] - factor
        if factor <= ALONE_MAX:  # it may be slower than it is taken for
            off = np.minimum(off, 0.0)
        jobs = len(np.unique(self.owner[mine]))
        spread = math.hypot(NOISE, float(np.median(np.abs(off)) if len(off) else 0.0))
        doubt = spread / math.sqrt(max(1, jobs))
        if factor <= SURE * doubt:
            return None
        return SlowGpu(math.exp(factor), doubt, int(self.epochs[mine].sum()), jobs)
