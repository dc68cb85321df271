"""Places one job after the other on GPUs that become free: list scheduling for forecast.py.
Pure."""

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
    """When a job can start, and on which GPUs, by their indices."""

    at: Time
    known: bool  # whether the durations of the runs before it are known
    type: str
    places: Ints
    mib: Ints  # the memory that it takes of each


@dataclass(frozen=True, slots=True, order=True)
class _End:
    at: Time
    number: int
    places: Ints = field(compare=False)
    mib: Ints = field(compare=False)
    known: bool = field(compare=False)


class ListSchedule:
    """`now` advances as jobs have to wait."""

    def __init__(self, view: View, now: Time, rules: Rules, by_memory: bool) -> None:
        self.view, self.now, self.rules, self.by_memory = view, now, rules, by_memory
        gpus = sorted(usable_gpus(view.nodes).items(), key=lambda item: (item[1].type, item[0]))
        self.index = {key: at for at, (key, _) in enumerate(gpus)}
        self.capacity = np.array([gpu.capacity_mib for _, gpu in gpus], np.int64)
        self.memory = np.array([gpu.memory_mib for _, gpu in gpus], np.int64)
        self.whole = np.array([gpu.whole for _, gpu in gpus], np.bool_)
        self.types: dict[str, slice] = {}
        for type, count in Counter(gpu.type for _, gpu in gpus).items():
            first = max((of.stop for of in self.types.values()), default=0)
            self.types[type] = slice(first, first + count)
        self.node_sizes = node_sizes(dict(gpus))
        self.free = self.capacity.copy()
        self.known = np.ones(len(gpus), np.bool_)  # whether the time from which it is free is known
        self._ends: list[_End] = []  # a heap
        self._number = itertools.count()  # of an end: breaks ties in the order of the calls

    def hold(self, leaves: Mapping[JobId, tuple[Time, bool]]) -> None:
        """Takes the memory that is held now. `leaves`: when each job leaves its GPUs, and whether
        this is known. Other holders are only pods that are about to end."""
        taken: dict[JobId, list[tuple[int, int]]] = {}
        for key, holders in self.view.held.items():
            if key not in self.index:
                continue
            at_gpu = self.index[key]
            idle = int(self.capacity[at_gpu]) - sum(holders.values())
            for (job_id, _), mib in holders.items():
                # If the policy does not fill GPUs up, their jobs also occupy the unused memory.
                more = 0 if self.by_memory else idle // len(holders)
                taken.setdefault(job_id, []).append((at_gpu, mib + more))
        for job_id, held in taken.items():
            at, known = leaves.get(job_id, (self.now, True))
            places, mib = np.array(held, np.int64).T
            self.take(places, mib, at, known)

    def take(self, places: Ints, mib: Ints, until: Time, known: bool) -> None:
        np.subtract.at(self.free, places, mib)
        heapq.heappush(self._ends, _End(until, next(self._number), places, mib, known))

    def start(self, job: Job, least: int, most: int, types: Iterable[str]) -> PlannedStart | None:
        """Returns the earliest start, not before that of earlier jobs; None: never. The job gets
        `most` GPUs if that many are free then, else `least`. `types`: of GPUs, the best first."""
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

    def advance(self, to: Time) -> None:
        """Frees what is free by then."""
        while self._ends and self._ends[0].at <= to:
            self._wait()
        self.now = max(self.now, to)

    def _wait(self) -> None:
        """Advances to the next end. There is one as long as some GPU is not free."""
        end = heapq.heappop(self._ends)
        np.add.at(self.free, end.places, end.mib)
        self.known[end.places] = end.known
        self.now = max(self.now, end.at)

    def _need(self, job: Job) -> Ints:
        wanted = np.minimum(job.memory_mib + self.rules.memory_margin_mib, self.capacity)
        if takes_whole_gpu(job) or self.whole.any():
            wanted = np.where(self.whole | takes_whole_gpu(job), self.capacity, wanted)
        return np.where(job.memory_mib <= self.memory, wanted, job.memory_mib)
