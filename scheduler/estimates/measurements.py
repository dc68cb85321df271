"""The measurements of jobs and job families, read into arrays: alone, and beside others. It
contains no model. The code calls a family a *kind*.

An *owner* has measurements: first the jobs, in their order, then the kinds, in theirs. Jobs are
read once: a `Memo` keeps what was read of each for as long as it is the same object.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.learning import kind_of
from scheduler.core.model import GpuKey, Job, JobFamily, Placement
from scheduler.estimates.arrays import Bools, Floats, Ints, numbered

# A duration of an epoch or of a sample outside of these comes from a broken clock.
SECONDS_MIN, SECONDS_MAX = 1e-9, 1e9
UTIL_UNKNOWN = 0.75  # spec/optimizer.md, section 5
SMALL_MIB = 3_000  # jobs that use less are expected to keep a GPU less busy, as in Lucid's table
# What was read of an owner: numbers of its name, kind and script, size, utilisation as measured and
# as expected, and the number of rows of either sort.
HEAD = 8
# Of each row read: type, count, nodes, seconds, epochs, number of neighbours, place, when it ended.
COLUMNS = 8
GONE_MAX = 1_000  # a memo keeps up to this many gone owners, plus twice the present ones


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry per measurement. `seconds` are an epoch's for a job, a sample's for a kind."""

    owner: Ints
    type: Ints  # index into `Measurements.types`
    count: Ints
    nodes: Ints
    seconds: Floats
    epochs: Floats
    place: Ints  # index into `Measurements.places`; 0: unknown
    ended: Floats  # when the newest of its epochs ended

    def at(self, chosen: Bools, seconds: Floats) -> Rows:
        """The rows at these indices, with other seconds."""
        return Rows(
            self.owner[chosen],
            self.type[chosen],
            self.count[chosen],
            self.nodes[chosen],
            seconds[chosen],
            self.epochs[chosen],
            self.place[chosen],
            self.ended[chosen],
        )

    def with_rows(self, more: Rows) -> Rows:
        return Rows(
            np.append(self.owner, more.owner),
            np.append(self.type, more.type),
            np.append(self.count, more.count),
            np.append(self.nodes, more.nodes),
            np.append(self.seconds, more.seconds),
            np.append(self.epochs, more.epochs),
            np.append(self.place, more.place),
            np.append(self.ended, more.ended),
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Sets of GPUs, numbered from 1. Place 0, of which nothing is known, has none."""

    count: int  # with place 0
    gpus: tuple[GpuKey, ...]  # of all places; of a large gang each node, as ("node", "")
    place: Ints  # [member] in order
    gpu: Ints  # [member] index into `gpus`


@dataclass(frozen=True, slots=True)
class Measurements:
    jobs: int  # owners below this index are jobs, the others kinds
    types: tuple[str, ...]  # of GPUs, sorted
    places: Places
    kinds: int  # their number, including those of live jobs
    kind: Ints  # of each owner
    script: Ints  # of each owner; kinds of one script differ by their batch size
    size: Floats  # of each owner's training set; 1 for a kind
    alone: Rows
    beside: Rows
    neighbour_row: Ints  # for each neighbour, the row of `beside` that it belongs to,
    neighbour: Ints  # and its owner; a neighbour that is gone has a number past all owners
    util: Floats  # [neighbour] 0 to 1: its own, else its kind's, else expected from its memory


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of one owner, as the bytes of floats, which are the fastest to join."""

    source: Job | JobFamily
    head: bytes  # see HEAD
    alone: bytes
    beside: bytes
    neighbours: bytes  # the numbers of their names, in the order of `beside`


@dataclass(slots=True)
class Memo:
    """A cache of what was read before. Losing it costs time and changes nothing else."""

    jobs: dict[str, _Read] = field(default_factory=dict)
    kinds: dict[str, _Read] = field(default_factory=dict)
    # Numbers of names in the order of their appearance: of jobs, of kinds, of scripts, of
    # types of GPU, of places, from 1, and of GPUs.
    job_names: dict[str, int] = field(default_factory=dict)
    kind_names: dict[str, int] = field(default_factory=dict)
    scripts: dict[str, int] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    places: dict[tuple[GpuKey, ...], int] = field(default_factory=dict)
    gpus: dict[GpuKey, int] = field(default_factory=dict)
    members: list[bytes] = field(default_factory=lambda: [b""])  # of each place: its GPUs' numbers


def read(
    jobs: Sequence[Job], kinds: Mapping[str, JobFamily], memo: Memo | None = None
) -> Measurements:
    memo = memo or Memo()
    if len(memo.jobs) + len(memo.kinds) > 2 * (len(jobs) + len(kinds)) + GONE_MAX:
        memo.jobs, memo.kinds, memo.job_names, memo.kind_names = {}, {}, {}, {}
        memo.scripts = {}
        memo.places, memo.gpus, memo.members = {}, {}, [b""]
    known, kept = memo.jobs, memo.kinds
    of_jobs = [
        one if (one := known.get(job.id)) and one.source is job else _of_job(job, memo)
        for job in jobs
    ]
    of_kinds = [
        one if (one := kept.get(name)) and one.source is kind else _of_kind(name, kind, memo)
        for name, kind in kinds.items()
    ]
    owners = of_jobs + of_kinds
    heads = _table([one.head for one in owners], HEAD)
    name, kind_name, script, size, util, expected, alones, besides = heads.T
    kind = _by_appearance(kind_name)
    alone = _table([one.alone for one in owners], COLUMNS)
    beside = _table([one.beside for one in owners], COLUMNS)
    types, rank = _types(memo.types, np.concatenate([alone[:, 0], beside[:, 0]]))
    places, place = _places(memo, np.concatenate([alone[:, 6], beside[:, 6]]))
    neighbour, everyone = _neighbours(of_jobs, of_kinds, name.astype(np.int64), memo)
    return Measurements(
        jobs=len(jobs),
        types=types,
        places=places,
        kinds=int(kind.max(initial=-1)) + 1,
        kind=kind,
        script=_by_appearance(script),
        size=size,
        alone=_rows(alone, alones, rank, place[: len(alone)]),
        beside=_rows(beside, besides, rank, place[len(alone) :]),
        neighbour_row=np.repeat(np.arange(len(beside)), beside[:, 5].astype(np.int64)),
        neighbour=neighbour,
        util=_utils(util, expected, kind, everyone),
    )


def _of_job(job: Job, memo: Memo) -> _Read:
    name = _number(job.id, memo.job_names)
    kind = kind_of(job.spec)
    size = max(1, job.spec.training_set_size)
    numbers = name, _number(kind, memo.kind_names), _script(kind, memo)
    head = *numbers, size, _util(job.gpu_util), _expected(job.memory_mib)
    found = memo.jobs[job.id] = _bytes(job, head, memo.job_names, memo)
    return found


def _of_kind(name: str, kind: JobFamily, memo: Memo) -> _Read:
    number = _number(name, memo.kind_names)
    head = number, number, _script(name, memo), 1, _util(kind.gpu_util), _expected(kind.memory_mib)
    found = memo.kinds[name] = _bytes(kind, head, memo.kind_names, memo)
    return found


def _script(kind: str, memo: Memo) -> int:
    return _number(kind.rpartition("/")[0], memo.scripts)


def _number(name: str, names: dict[str, int]) -> int:
    return names.setdefault(name, len(names))


def _util(value: float) -> float:
    return min(value, 1.0) if value > 0.0 else 0.0


def _expected(memory_mib: int) -> float:
    return UTIL_UNKNOWN * min(1.0, memory_mib / SMALL_MIB) if memory_mib else UTIL_UNKNOWN


def _bytes(
    source: Job | JobFamily,
    head: tuple[float, ...],
    names: dict[str, int],
    memo: Memo,
) -> _Read:
    alone, beside, neighbours = array("d"), array("d"), array("d")
    for one in source.measured:
        where = Placement.parse(one.placement)
        if where is None or not SECONDS_MIN < one.seconds < SECONDS_MAX:
            continue
        epochs, together = max(0, one.epochs), len(one.beside)
        place = _place(one.where, memo) if one.where else 0
        row = _number(where.type, memo.types), where.gpus, where.nodes, one.seconds, epochs
        (beside if together else alone).extend((*row, together, place, one.at))
        neighbours.extend(_number(other, names) for other in one.beside)
    rows = len(alone) // COLUMNS, len(beside) // COLUMNS
    parts = array("d", (*head, *rows)), alone, beside, neighbours
    return _Read(source, *(part.tobytes() for part in parts))


def _place(where: tuple[GpuKey, ...], memo: Memo) -> int:
    number = memo.places.get(where)
    if number is None:
        number = memo.places[where] = len(memo.members)
        gpus = [memo.gpus.setdefault(key, len(memo.gpus)) for key in dict.fromkeys(where)]
        memo.members.append(array("d", gpus).tobytes())
    return number


# --- arrays of what was read --------------------------------------------------------------------


def _table(parts: Sequence[bytes], columns: int) -> Floats:
    return np.frombuffer(b"".join(parts), dtype=np.float64).reshape(-1, columns)


def _rows(table: Floats, lengths: Floats, rank: Ints, place: Ints) -> Rows:
    """`lengths`: the number of rows of each owner. `place`: of each row."""
    owner = np.repeat(np.arange(len(lengths)), lengths.astype(np.int64))
    type, count, nodes = table[:, :3].astype(np.int64).T
    return Rows(owner, rank[type], count, nodes, table[:, 3], table[:, 4], place, table[:, 7])


def _types(known: Iterable[str], met: Floats) -> tuple[tuple[str, ...], Ints]:
    """The types that were met, and for each known type its index among them."""
    names = list(known)
    order = sorted(numbered(met.astype(np.int64))[0].tolist(), key=names.__getitem__)
    rank = np.full(len(names), -1)
    rank[order] = np.arange(len(order))
    return tuple(names[number] for number in order), rank


def _places(memo: Memo, met: Floats) -> tuple[Places, Ints]:
    """The places that were met, and of each row its index among them."""
    met = np.append(0.0, met)  # place 0 is the first
    at = _by_appearance(met)
    numbers = np.zeros(int(at.max()) + 1, dtype=np.int64)
    numbers[at] = met
    members = [memo.members[number] for number in numbers.tolist()]
    keys = _table(members, 1)[:, 0].astype(np.int64)
    gpu = _by_appearance(keys)
    key = np.zeros(int(gpu.max(initial=-1)) + 1, dtype=np.int64)
    key[gpu] = keys
    names = list(memo.gpus)
    place = np.repeat(np.arange(len(members)), [len(each) // keys.itemsize for each in members])
    return Places(len(members), tuple(names[each] for each in key.tolist()), place, gpu), at[1:]


def _by_appearance(numbers: Floats | Ints) -> Ints:
    """Renumbers by first appearance, so that what a memo has met before makes no difference."""
    found, place = numbered(numbers.astype(np.int64))
    first = np.empty(len(found), dtype=np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    appeared: Ints = rank[place]
    return appeared


def _neighbours(
    of_jobs: Sequence[_Read], of_kinds: Sequence[_Read], name: Ints, memo: Memo
) -> tuple[Ints, int]:
    """The neighbours as owners, and how many numbers there may be. Jobs name jobs, kinds name
    kinds."""
    found, gone = [], len(name)
    jobs = len(of_jobs)
    for reads, names, own, first in (
        (of_jobs, memo.job_names, name[:jobs], 0),
        (of_kinds, memo.kind_names, name[jobs:], jobs),
    ):
        named = _table([one.neighbours for one in reads], 1)[:, 0].astype(np.int64)
        owner = np.full(len(names), -1)
        owner[own] = np.arange(first, first + len(own))
        missing = owner[named] < 0
        numbers = _by_appearance(named[missing])
        neighbours = owner[named]
        neighbours[missing] = gone + numbers
        gone += int(numbers.max(initial=-1)) + 1
        found.append(neighbours)
    return np.concatenate(found), gone


def _utils(own: Floats, expected: Floats, kind: Ints, everyone: int) -> Floats:
    util = np.full(everyone, UTIL_UNKNOWN)
    sums, known = np.bincount(kind, own), np.bincount(kind, own > 0.0)[kind]
    of_kind = np.divide(sums[kind], known, out=expected.copy(), where=known > 0)
    util[: len(own)] = np.where(own > 0.0, own, of_kind)
    return util
