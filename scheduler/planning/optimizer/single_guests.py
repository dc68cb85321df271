"""Single jobs beside gangs: a job for one GPU that would have nothing may be a guest on one GPU of
a gang.

Units share all of their GPUs, so these guests are in no unit: they take no part in the choice of
GPUs, nor in where the units are placed. A gang is as slow as on its slowest GPU. So guests on
several of its GPUs cost it little more than one, and each of its GPUs has at most one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.core.model import Gpu, GpuKey, Job
from scheduler.core.runs import gpu_keys, is_running, may_move
from scheduler.estimates.arrays import Floats, Ints
from scheduler.planning.optimizer.offer import GAIN_MIN, NEVER, Offer

BLOCK = 64  # gangs that are matched at once
FEW = 16  # jobs


def guests_of_gangs(jobs: Sequence[Job]) -> list[int]:
    """The jobs that run on one GPU, on which a gang runs as well."""
    running = [(row, gpu_keys(job)) for row, job in enumerate(jobs) if is_running(job)]
    of_gangs = {key for _, keys in running if len(keys) > 1 for key in keys}
    return [row for row, keys in running if len(keys) == 1 and keys[0] in of_gangs]


@dataclass
class GangHost:
    """A gang, or gangs that share all of their GPUs, and the single jobs beside it."""

    members: Ints  # rows of the offer
    column: int  # their configuration
    room: dict[GpuKey, int]  # MiB for a guest, on each GPU that may have one and has none
    apart: Floats = field(init=False)  # [members] beside each other
    speed: Floats = field(init=False)  # [members] beside each other and the guests

    def widest(self) -> GpuKey:
        """Where there is the most room."""
        return max(self.room, key=lambda key: (self.room[key], key))


class SingleGuests:
    """Which single jobs are beside which gangs. `need`: MiB of a job, by its row, on a GPU."""

    def __init__(
        self,
        offer: Offer,
        hosts: Sequence[GangHost],
        known: Mapping[GpuKey, Gpu],
        need: Callable[[int, GpuKey], int],
    ) -> None:
        self._offer, self._hosts, self._need, self._gpus = offer, hosts, need, known
        self._types = [stock.type for stock in offer.stocks]
        self._known = offer.learned.rows(offer.jobs)
        self.found: dict[int, GpuKey] = {}
        self.leaving: dict[int, GpuKey] = {}  # guests, and the GPUs that they get for themselves
        for host in hosts:
            host.apart = host.speed = self._together(host)

    def keep(
        self, present: Mapping[int, GpuKey], bound: Collection[int], spare: Sequence[GpuKey]
    ) -> None:
        """Leaves the guests that are there where they are, as long as that pays and no GPU of the
        same type is `spare` on which they would end sooner; those that are bound in any case.
        Nothing more can be where one leaves, for now."""
        spare = list(spare)
        for row in sorted(present, key=lambda row: (row not in bound, -self._offer.weight[row])):
            key = present[row]
            host = next((host for host in self._hosts if key in host.room), None)
            if host is None:
                continue
            own = None if row in bound else self._own_gpu(row, host, spare)
            if own is not None:
                self.leaving[row] = own
                spare.remove(own)
            elif row in bound or self._pays(row, key, host):
                self._admit(row, key, host)
        for host in self._hosts:
            for key in host.room.keys() & set(present.values()):
                del host.room[key]

    def _own_gpu(self, row: int, host: GangHost, spare: Sequence[GpuKey]) -> GpuKey | None:
        """A GPU to which a guest should move, as runs move elsewhere (offer.py)."""
        offer, type = self._offer, self._type(host)
        alone = offer.left[row] * offer.seconds[row, offer.single(self._types[type])]
        beside = alone / self._speeds(np.array([row]), host.members, type).prod()
        if not may_move(offer.jobs[row]) or alone + offer.restart[row] > beside * (1 - GAIN_MIN):
            return None
        same_type = (key for key in spare if self._gpus[key].type == self._types[type])
        fits = (key for key in same_type if self._need(row, key) <= self._gpus[key].capacity_mib)
        return next(fits, None)

    def _pays(self, row: int, key: GpuKey, host: GangHost) -> bool:
        fits = self._need(row, key) <= host.room[key]
        return fits and bool(self._gain(host, np.array([row]))[0] > 0)

    def add(self, idle: Ints) -> None:
        """Finds GPUs of gangs for jobs that have nothing: in each round at most one for a gang."""
        found = -1
        while len(idle) and len(self.found) > found:
            found = len(self.found)
            for type in range(len(self._types)):
                hosts = [host for host in self._hosts if host.room and self._type(host) == type]
                idle = idle[~np.isin(idle, list(self.found))]
                rows = self._candidates(hosts, idle)
                blocks = -(-len(hosts) // BLOCK)
                for first in range(blocks):
                    self._add_round(hosts[first::blocks], rows[first::blocks])

    def _candidates(self, hosts: Sequence[GangHost], idle: Ints) -> Ints:
        """The jobs with the most weight that fit somewhere; more would be of little use."""
        rooms = {(key := host.widest()): host.room[key] for host in hosts}.items()
        fits = [any(self._need(row, key) <= mib for key, mib in rooms) for row in idle.tolist()]
        fit = idle[np.array(fits, bool)]
        best = np.argsort(-self._offer.weight[fit], kind="stable")
        rows: Ints = fit[best][: max(FEW, 2 * len(hosts))]
        return rows

    def _add_round(self, hosts: Sequence[GangHost], rows: Ints) -> None:
        keys = [host.widest() for host in hosts]
        gain = np.zeros((len(hosts), len(rows)))
        for number, (host, key) in enumerate(zip(hosts, keys, strict=True)):
            fits = [self._need(row, key) <= host.room[key] for row in rows.tolist()]
            gain[number] = self._gain(host, rows) * np.array(fits, float)
        for number, at in zip(*linear_sum_assignment(gain, maximize=True), strict=True):
            if gain[number, at] > 0:
                self._admit(int(rows[at]), keys[number], hosts[number])

    def _admit(self, row: int, key: GpuKey, host: GangHost) -> None:
        host.speed = self._beside(host, np.array([row]))[:, 0]
        del host.room[key]
        self.found[row] = key

    def _gain(self, host: GangHost, rows: Ints) -> Floats:
        """[rows] how much more all are worth with this guest than without; 0: not more, or not
        possible."""
        offer, type = self._offer, self._type(host)
        single = offer.single(self._types[type])
        if single < 0:
            return np.zeros(len(rows))
        now = offer.worth(host.members, host.column, host.speed).sum()
        after = offer.worth(host.members[:, None], host.column, self._beside(host, rows)).sum(
            axis=0
        )
        own = offer.worth(rows, single, self._speeds(rows, host.members, type).prod(axis=1))
        possible = offer.possible[rows, single]
        return np.where(possible, np.maximum(own + after - now, 0.0), 0.0)

    def _beside(self, host: GangHost, rows: Ints) -> Floats:
        """[members, rows] the speed of each member with one of these as the next guest."""
        there = host.apart[:, None] * self._speeds(host.members, rows, self._type(host))
        return np.minimum(host.speed[:, None], there)

    def _together(self, host: GangHost) -> Floats:
        """[members] the speed of each beside the others."""
        speed = self._speeds(host.members, host.members, self._type(host))
        np.fill_diagonal(speed, 1.0)
        product: Floats = speed.prod(axis=1)
        return product

    def _speeds(self, a: Ints, b: Ints, type: int) -> Floats:
        """[a, b] the speed of each beside each. It is not worth anything if one must be measured
        alone before."""
        offer = self._offer
        speeds = offer.learned.slowed[type].speeds(self._known[a], self._known[b])
        if blind := offer.blind.get(self._types[type]):
            speeds = np.where(blind.kept_apart(a[:, None], b), NEVER, speeds)
        return speeds

    def _type(self, host: GangHost) -> int:
        return self._types.index(self._offer.configs[host.column].type)
