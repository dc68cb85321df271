"""What jobs and kinds have measured, read into arrays: alone, and beside others. Knows no law.

An *owner* is whoever measured: first the jobs, in their order, then the kinds, in theirs. Jobs are
read once: a `Memo` keeps what was read of each, for as long as it is the same object.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from scheduler.learning import kind_of
from scheduler.model import Job, JobId, Kind, Measured

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Outside of these a duration, of an epoch or of a sample, is a broken clock.
SECONDS_MIN, SECONDS_MAX = 1e-9, 1e9
COUNT_MAX = 65536
COLUMNS = 5  # of a row: type, count, nodes, seconds, epochs


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry per measurement. `seconds` are an epoch's for a job, a sample's for a kind."""

    owner: Integers
    type: Integers  # index into `Measurements.types`
    count: Integers
    nodes: Integers
    seconds: Floats
    epochs: Floats

    def at(self, chosen: Bools, seconds: Floats) -> Rows:
        """Some of them, with other seconds."""
        owner, type, count, nodes = self.owner, self.type, self.count, self.nodes
        return Rows(
            owner[chosen],
            type[chosen],
            count[chosen],
            nodes[chosen],
            seconds[chosen],
            self.epochs[chosen],
        )

    def with_rows(self, more: Rows) -> Rows:
        return Rows(
            np.append(self.owner, more.owner),
            np.append(self.type, more.type),
            np.append(self.count, more.count),
            np.append(self.nodes, more.nodes),
            np.append(self.seconds, more.seconds),
            np.append(self.epochs, more.epochs),
        )


@dataclass(frozen=True, slots=True)
class Measurements:
    jobs: int  # owners below this are jobs, the others kinds
    types: tuple[str, ...]  # of GPUs, sorted
    kinds: int  # how many there are, with those of live jobs
    kind: Integers  # of each owner
    size: Floats  # of each owner's training set; 1 for a kind
    alone: Rows
    beside: Rows
    neighbour_row: Integers  # for each neighbour, the row of `beside` that it belongs to,
    neighbour: Integers  # and which owner it is; who is gone has a number past all owners
    util: Floats  # [neighbour] 0 to 1: its own, else its kind's; NaN: not known


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of one owner; the rows as the bytes of floats, which are quickest to join."""

    source: Job | Kind
    kind: str
    size: float
    util: float
    alone: bytes
    beside: bytes
    neighbours: tuple[tuple[str, ...], ...]  # of each row of `beside`


@dataclass(slots=True)
class Memo:
    """What was read of the owners of the last reading. Forgetting it costs time, nothing else."""

    jobs: dict[JobId, _Read] = field(default_factory=dict)
    kinds: dict[str, _Read] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)  # in the order in which they were met


def read(jobs: Sequence[Job], kinds: Mapping[str, Kind], memo: Memo | None = None) -> Measurements:
    memo = memo or Memo()
    memo.jobs = {job.id: _of_job(job, memo) for job in jobs}
    memo.kinds = {name: _of_kind(name, kind, memo) for name, kind in kinds.items()}
    owners = [*map(memo.jobs.__getitem__, (job.id for job in jobs)), *memo.kinds.values()]
    types = tuple(sorted(memo.types))
    rank = {name: number for number, name in enumerate(types)}
    code = np.array([rank[name] for name in memo.types], dtype=np.int64)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(o.kind for o in owners))}
    row, neighbour, total = _neighbours(jobs, kinds, owners)
    kind = np.array([numbers[o.kind] for o in owners], dtype=np.int64)
    return Measurements(
        jobs=len(jobs),
        types=types,
        kinds=len(numbers),
        kind=kind,
        size=np.array([o.size for o in owners], dtype=np.float64),
        alone=_rows([o.alone for o in owners], code),
        beside=_rows([o.beside for o in owners], code),
        neighbour_row=row,
        neighbour=neighbour,
        util=_utils(np.array([o.util for o in owners]), kind, total),
    )


def _of_job(job: Job, memo: Memo) -> _Read:
    known = memo.jobs.get(job.id)
    if known is not None and known.source is job:
        return known
    size = float(max(1, job.spec.training_set_size))
    return _Read(job, kind_of(job.spec), size, _util(job.gpu_util), *_split(job.measured, memo))


def _of_kind(name: str, kind: Kind, memo: Memo) -> _Read:
    known = memo.kinds.get(name)
    if known is not None and known.source is kind:
        return known
    return _Read(kind, name, 1.0, _util(kind.gpu_util), *_split(kind.measured, memo))


def _util(value: float) -> float:
    return min(value, 1.0) if value > 0.0 else 0.0


def _split(
    measured: Iterable[Measured], memo: Memo
) -> tuple[bytes, bytes, tuple[tuple[str, ...], ...]]:
    alone, beside, neighbours = array("d"), array("d"), []
    for one in measured:
        where = parse(one.placement)
        if where is None or not SECONDS_MIN < one.seconds < SECONDS_MAX:
            continue
        type, count, nodes = where
        code = memo.types.setdefault(type, len(memo.types))
        row = (code, count, nodes, one.seconds, max(0, one.epochs))
        if one.beside:
            beside.extend(row)
            neighbours.append(one.beside)
        else:
            alone.extend(row)
    return alone.tobytes(), beside.tobytes(), tuple(neighbours)


@lru_cache(maxsize=4096)
def parse(placement: str) -> tuple[str, int, int] | None:
    """The GPUs' type, their count, the nodes they are on; None for no GPU, or several types."""
    match = re.fullmatch(r"(.+)x(\d{1,5})(?:/(\d{1,5}))?", placement)
    if match is None or re.search(r"x\d+\+", placement):
        return None
    type, count, nodes = match[1], int(match[2]), int(match[3] or 1)
    return (type, count, nodes) if 1 <= nodes <= count <= COUNT_MAX else None


def _utils(own: Floats, kind: Integers, total: int) -> Floats:
    util = np.full(total, np.nan)
    sums, known = np.bincount(kind, own), np.bincount(kind, own > 0.0)
    of_kind = np.divide(sums, known, out=np.full(len(sums), np.nan), where=known > 0)
    util[: len(own)] = np.where(own > 0.0, own, of_kind[kind])
    return util


def _rows(parts: Sequence[bytes], code: Integers) -> Rows:
    table = np.frombuffer(b"".join(parts), dtype=np.float64).reshape(-1, COLUMNS)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts)) // (8 * COLUMNS)
    type, count, nodes = table[:, :3].astype(np.int64).T
    return Rows(
        owner=np.repeat(np.arange(len(parts)), lengths),
        type=code[type],
        count=count,
        nodes=nodes,
        seconds=table[:, 3],
        epochs=table[:, 4],
    )


def _neighbours(
    jobs: Sequence[Job], kinds: Mapping[str, Kind], owners: Sequence[_Read]
) -> tuple[Integers, Integers, int]:
    """Jobs name jobs, kinds name kinds: each is looked up among its like."""
    of_jobs = list(chain.from_iterable(o.neighbours for o in owners[: len(jobs)]))
    of_kinds = list(chain.from_iterable(o.neighbours for o in owners[len(jobs) :]))
    by_id: dict[str, int] = {job.id: number for number, job in enumerate(jobs)}
    by_name = {name: number for number, name in enumerate(kinds, len(jobs))}
    numbers: list[int] = []
    gone = len(owners)
    for names, numbered in ((of_jobs, by_id), (of_kinds, by_name)):
        for name in chain.from_iterable(names):
            number = numbered.get(name)
            if number is None:
                number = numbered[name] = gone
                gone += 1
            numbers.append(number)
    lengths = list(map(len, chain(of_jobs, of_kinds)))
    row = np.repeat(np.arange(len(lengths)), np.array(lengths, dtype=np.int64))
    return row, np.array(numbers, dtype=np.int64), gone
