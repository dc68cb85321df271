"""One job after the other on GPUs that become free: the list scheduling of forecast.py. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.memory import node_sizes, takes_whole_gpu, usable_gpus
from scheduler.core.model import Job, JobId, Rules, Time, View
from scheduler.estimates.arrays import Ints


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When a job can start, and on which cards, by their numbers."""

    at: Time
    known: bool  # whether those before it were of known length
    type: str
    places: Ints
    mib: Ints  # that it takes of each


@dataclass(frozen=True, slots=True, order=True)
class _End:
    at: Time
    number: int
    places: Ints = field(compare=False)
    mib: Ints = field(compare=False)
    known: bool = field(compare=False)


class ListSchedule:
    """`now` is moved on as jobs have to wait."""

    def __init__(self, view: View, now: Time, rules: Rules, by_memory: bool) -> None:
        self.view, self.now, self.rules, self.by_memory = view, now, rules, by_memory
        known = sorted(usable_gpus(view.nodes).items(), key=lambda card: (card[1].type, card[0]))
        self.index = {key: at for at, (key, _) in enumerate(known)}
        self.capacity = np.array([gpu.capacity_mib for _, gpu in known], np.int64)
        self.memory = np.array([gpu.memory_mib for _, gpu in known], np.int64)
        self.whole = np.array([gpu.whole for _, gpu in known], np.bool_)
        self.types: dict[str, slice] = {}
        for type, count in Counter(gpu.type for _, gpu in known).items():
            first = max((of.stop for of in self.types.values()), default=0)
            self.types[type] = slice(first, first + count)
        self.node_sizes = node_sizes(dict(known))
        self.free = self.capacity.copy()
        self.known = np.ones(len(known), np.bool_)  # whether we know since when that is free
        self._ends: list[_End] = []  # a heap
        self._number = itertools.count()  # of an end: of several at once the first to be told

    def hold(self, leaves: Mapping[JobId, tuple[Time, bool]]) -> None:
        """What is held now, until those who hold it leave: when, and whether that is known. Of
        others only pods are left, and they go."""
        taken: dict[JobId, list[tuple[int, int]]] = {}
        for key, holders in self.view.held.items():
            if key not in self.index:
                continue
            card = self.index[key]
            idle = int(self.capacity[card]) - sum(holders.values())
            for (job_id, _), mib in holders.items():
                # Where cards are not filled up, whoever is there has what is left over too.
                more = 0 if self.by_memory else idle // len(holders)
                taken.setdefault(job_id, []).append((card, mib + more))
        for job_id, held in taken.items():
            at, known = leaves.get(job_id, (self.now, True))
            places, mib = np.array(held, np.int64).T
            self.take(places, mib, at, known)

    def take(self, places: Ints, mib: Ints, until: Time, known: bool) -> None:
        np.subtract.at(self.free, places, mib)
        heapq.heappush(self._ends, _End(until, next(self._number), places, mib, known))

    def start(self, job: Job, least: int, most: int, types: Iterable[str]) -> PlannedStart | None:
        """The earliest, not before that of those who came first; None: never. With `most` GPUs, if
        so many are free then, else with `least`. `types`: of GPUs, the best for it first."""
        need = self._need(job)
        types = [type for type in types if (need <= self.capacity)[self.types[type]].sum() >= least]
        while types:
            for type in types:
                fitting = np.flatnonzero((need <= self.free)[self.types[type]])
                if len(fitting) >= least:
                    count = most if len(fitting) >= most else least
                    places = self.types[type].start + fitting[:count]
                    mib = (need if self.by_memory else self.free)[places]
                    return PlannedStart(self.now, bool(self.known[places].all()), type, places, mib)
            self._wait()
        return None

    def _wait(self) -> None:
        """For the next who leaves. There is one as long as some card is not free."""
        end = heapq.heappop(self._ends)
        np.add.at(self.free, end.places, end.mib)
        self.known[end.places] = end.known
        self.now = max(self.now, end.at)

    def _need(self, job: Job) -> Ints:
        wanted = np.minimum(job.memory_mib + self.rules.memory_margin_mib, self.capacity)
        if takes_whole_gpu(job) or self.whole.any():
            wanted = np.where(self.whole | takes_whole_gpu(job), self.capacity, wanted)
        return np.where(job.memory_mib <= self.memory, wanted, job.memory_mib)
