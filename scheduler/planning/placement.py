"""From numbers to GPUs: which GPUs each unit gets, once its number and type of GPUs are chosen.
Pure.

The answer is a target: the GPUs that each unit is to have in the end. Some of them may still be
held by runs that stop, and a unit that moves must itself stop first. So it may take a few epochs to
reach the target, and meanwhile each plan computes it again. The result stays the same: a unit that
has what it wants stays, and GPUs that are being vacated are kept (`claims`) for the jobs that wait
for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from scheduler.core.images import has
from scheduler.core.memory import need_mib, usable_gpus
from scheduler.core.model import Gpu, GpuKey, Job, JobId, Node, Rules, Share, View
from scheduler.core.runs import gpu_keys, is_running, may_move, may_stop
from scheduler.planning.free_gpus import FreeNode, Holds, Part, Pool
from scheduler.planning.relocation import MovableRun, relocate, undo


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed as one: a job, or jobs that share all of their GPUs."""

    jobs: tuple[Job, ...]
    type: str
    count: int
    stays: bool = False  # its runs are not to be moved, nor asked to stop for others


@dataclass(frozen=True, slots=True)
class PlacedUnits:
    placements: dict[JobId, tuple[Share, ...]]  # those of a plan
    claims: dict[JobId, tuple[GpuKey, ...]]  # GPUs kept for jobs that cannot start there yet
    left_out: tuple[Unit, ...]  # units without room

    def unassigned(self, known: Mapping[GpuKey, Gpu]) -> dict[GpuKey, Gpu]:
        """The GPUs that no job has or waits for."""
        had = {share.key for shares in self.placements.values() for share in shares}
        had.update(*self.claims.values())
        return {key: gpu for key, gpu in known.items() if key not in had}


def place_units(
    units: Sequence[Unit],
    view: View,
    rules: Rules,
    moves_max: int = 0,
    leaving: Collection[JobId] = (),
    guests: Collection[JobId] = (),
) -> PlacedUnits:
    """GPUs for as many of the units as there is room for; among units of equal size the first come
    first.

    Runs that may not be stopped stay where they are, wanted or not; so do runs on GPUs that are out
    of sight, except those in `leaving`. The runs of `guests` take no GPU from the unit beside which
    they stay. At most `moves_max` units are moved elsewhere so that others are on fewer nodes.
    """
    placing = _Placer(units, view, rules, moves_max, leaving, guests)
    placing.settle()
    placing.place_the_rest()
    return placing.dealt()


class _Placer:
    def __init__(
        self,
        units: Sequence[Unit],
        view: View,
        rules: Rules,
        moves_max: int,
        leaving: Collection[JobId],
        guests: Collection[JobId],
    ) -> None:
        self.units, self.view, self.rules = list(units), view, rules
        self.moves_left, self.leaving, self.guests = moves_max, leaving, guests
        self.known = usable_gpus(view.nodes)
        self.where: dict[int, tuple[GpuKey, ...]] = {}  # of each unit, by its number
        self.result = PlacedUnits({}, {}, ())
        self.occupied = Counter[GpuKey]()  # by how many units and runs outside of units
        self.sites: dict[tuple[str, str], FreeNode] = {}  # by type and node
        self.pools: dict[str, Pool] = {}

    # --- units that stay --------------------------------------------------------------------

    def settle(self) -> None:
        """Leaves in place the units that have what they want, and the runs that may not be
        stopped."""
        wished = {job.id: number for number, unit in enumerate(self.units) for job in unit.jobs}
        for job in self._too_many():
            if (number := wished.pop(job.id, None)) is not None:
                self._take_out(job, number)
        for job in self.view.jobs.values():
            if not is_running(job):
                continue
            number = wished.get(job.id)
            if number is None:
                # No other run is stopped because its GPUs are out of sight for a while.
                unseen = any(key not in self.known for key in gpu_keys(job))
                if (unseen and job.id not in self.leaving) or not may_stop(job.run):
                    self._stay(job)
                continue
            stays = self.units[number].stays or not may_move(job)
            if stays and not self._anchor(job, number, self.where.get(number)):
                self._leave_behind(job, number)
        for number, unit in enumerate(self.units):
            if number not in self.where:
                any(self._anchor(job, number, None) for job in unit.jobs if is_running(job))
        for number in list(self.where):
            self._part_from_strangers(number)
            self._part_by_image(number)

    def _too_many(self) -> Iterator[Job]:
        """Where the runs on a GPU were measured to need more than it has, those that make room by
        stopping because they may not move: the least urgent first."""
        there: dict[GpuKey, list[Job]] = {}
        for job in self.view.jobs.values():
            if is_running(job):
                for key in gpu_keys(job):
                    there.setdefault(key, []).append(job)
        stopped = set[JobId]()
        for key, jobs in there.items():
            gpu = self.known.get(key)
            if gpu is None or len(jobs) == 1 or any(map(may_move, jobs)):
                continue
            need = {job.id: need_mib(job, gpu, self.rules) for job in jobs if job.id not in stopped}
            jobs.sort(key=lambda job: (job.priority, -job.submitted_at))
            for job in jobs:
                if sum(need.values()) > gpu.capacity_mib and len(need) > 1 and may_stop(job.run):
                    need.pop(job.id, None)
                    stopped.add(job.id)
                    yield job

    def _stay(self, job: Job) -> None:
        assert job.run is not None, "only a run can stay"
        self.result.placements[job.id] = job.run.shares
        if job.id not in self.guests:
            self._occupy(gpu_keys(job))

    def _occupy(self, keys: Sequence[GpuKey]) -> None:
        for key in keys:
            self.occupied[key] += 1

    def _anchor(self, job: Job, number: int, where: tuple[GpuKey, ...] | None) -> bool:
        """Places the unit where this one of its jobs runs, if that matches what is chosen for it.
        On GPUs of another unit, this is possible only for a job that may not be moved."""
        unit, keys = self.units[number], gpu_keys(job)
        if where is not None and where != keys:
            return False
        if len(keys) != unit.count or (may_move(job) and any(key in self.occupied for key in keys)):
            return False
        for key in keys:
            gpu = self.known.get(key)
            if gpu is None or gpu.type != unit.type:
                return False
        if number not in self.where:
            self._occupy(keys)
        self.where[number] = keys
        return True

    def _leave_behind(self, job: Job, number: int) -> None:
        """The run stays where it is although its unit is placed elsewhere, without it."""
        self._stay(job)
        self._take_out(job, number)

    def _take_out(self, job: Job, number: int) -> None:
        unit = self.units[number]
        others = tuple(other for other in unit.jobs if other is not job)
        self.units[number] = replace(unit, jobs=others)

    def _part_from_strangers(self, number: int) -> None:
        """If other units stay on the same GPUs, the unit's waiting jobs are placed separately:
        there may be empty GPUs."""
        unit = self.units[number]
        if len(unit.jobs) == 1:
            return
        there = tuple(job for job in unit.jobs if is_running(job))
        if all(self.occupied[key] == 1 for key in self.where[number]) or there == unit.jobs:
            return
        self.units[number] = replace(unit, jobs=there)
        self.units += [replace(unit, jobs=(job,)) for job in unit.jobs if not is_running(job)]

    def _part_by_image(self, number: int) -> None:
        """Jobs whose image is not available on the nodes of their unit are placed separately."""
        unit, keys = self.units[number], self.where[number]
        there = tuple(job for job in unit.jobs if self._can_be(job, keys))
        if there != unit.jobs:
            self.units[number] = replace(unit, jobs=there)
            self.units += [replace(unit, jobs=(job,)) for job in unit.jobs if job not in there]

    def _can_be(self, job: Job, keys: tuple[GpuKey, ...]) -> bool:
        if not self._images or keys == gpu_keys(job):
            return True
        return all(has(self.known[key].images, job.spec.image) for key in keys)

    @cached_property
    def _images(self) -> bool:
        """Whether it matters which image a job is made from."""
        return any(gpu.images is not None for gpu in self.known.values())

    # --- units that are placed --------------------------------------------------------------

    def place_the_rest(self) -> None:
        if not self._unplaced():
            return
        self._find_what_is_free()
        if self._images:
            self._part_where_no_card_has_all()
        # The largest first, because they have the most difficulty finding room. Of the same size,
        # units that can start now come before units that must first stop elsewhere, because idle
        # GPUs are for them. Then units whose image is on the fewest GPUs.
        rest = [(self._order(self.units[number]), number) for number in self._unplaced()]
        left_out = []
        for _, number in sorted(rest):
            keys = self._place(self.units[number])
            if keys is None:
                left_out.append(number)
            else:
                self.where[number] = keys
        self.result = replace(
            self.result, left_out=tuple(self.units[number] for number in sorted(left_out))
        )

    def _unplaced(self) -> list[int]:
        units = enumerate(self.units)
        return [number for number, unit in units if number not in self.where and unit.jobs]

    def _order(self, unit: Unit) -> tuple[int, bool, int]:
        return -unit.count, not _startable(unit), self._most(unit) if self._images else 0

    def _most(self, unit: Unit) -> int:
        """How many GPUs could hold all jobs of the unit if the GPUs were free."""
        pool, holds = self.pools.get(unit.type), self._holds(unit)
        return sum(site.size(holds) for site in pool.sites) if pool else 0

    def _part_where_no_card_has_all(self) -> None:
        for number in self._unplaced():
            unit = self.units[number]
            if len(unit.jobs) > 1 and self._most(unit) < unit.count:
                self.units[number] = replace(unit, jobs=unit.jobs[:1])
                self.units += [replace(unit, jobs=(job,)) for job in unit.jobs[1:]]

    def _find_what_is_free(self) -> None:
        by_type: dict[str, list[FreeNode]] = {}
        for node in self.view.nodes:
            for type, gpus in _by_type(node).items():
                sites = by_type.setdefault(type, [])
                self.sites[type, node.name] = self._site(len(sites), node.name, gpus)
                sites.append(self.sites[type, node.name])
        held = {key for key, holders in self.view.held.items() if holders}
        self.pools = {type: Pool(sites, held) for type, sites in by_type.items()}

    def _site(self, number: int, node: str, gpus: Sequence[Gpu]) -> FreeNode:
        smallest_first = sorted(gpus, key=lambda gpu: gpu.capacity_mib)
        site = FreeNode(number, node, {(node, gpu.uuid): gpu for gpu in smallest_first})
        for key in site.gpus:
            if key not in self.occupied:
                (site.leaving if self.view.held.get(key) else site.idle).append(key)
        return site

    def _place(self, unit: Unit) -> tuple[GpuKey, ...] | None:
        if unit.count == 0:
            return ()
        pool = self.pools.get(unit.type)
        if pool is None:
            return None
        parts, holds = self._parts(unit, pool), self._holds(unit)
        on = math.inf if parts is None else len(parts)
        if self.moves_left and on > 1 and 0 < pool.fewest_nodes(unit.count, holds) < on:
            parts = self._with_room_made(unit, pool, parts)
        if parts is None:
            return None
        own = {key for job in unit.jobs for key in gpu_keys(job)}
        at_once = _startable(unit)
        return tuple(key for part in parts for key in pool.take(part, at_once, holds, own))

    def _parts(self, unit: Unit, pool: Pool) -> list[Part] | None:
        """How many GPUs of which nodes: on as few nodes as possible; if that makes no difference,
        GPUs that are free now."""
        holds, startable = self._holds(unit), _startable(unit)
        now = pool.spread(unit.count, False, holds) if startable else None
        if now and len(now) == 1:
            return now
        soon = pool.spread(unit.count, True, holds)
        if startable:
            return now if now and soon and len(now) <= len(soon) else soon
        # GPUs that the unit vacates itself need no waiting.
        for site in self._own(unit):
            if site.room(True, holds) >= unit.count:
                return [(site, unit.count)]
        return soon

    def _own(self, unit: Unit) -> Iterator[FreeNode]:
        """The GPUs that the unit has already."""
        nodes = dict.fromkeys(node for job in unit.jobs for node, _ in gpu_keys(job))
        return (site for node in nodes if (site := self.sites.get((unit.type, node))))

    def _holds(self, unit: Unit) -> Holds:
        """Whether the memory of a GPU is enough for all jobs of the unit."""

        def holds(gpu: Gpu) -> bool:
            return sum(need_mib(job, gpu, self.rules) for job in unit.jobs) <= gpu.capacity_mib

        return holds

    # --- units that move for others ---------------------------------------------------------

    def _with_room_made(
        self, unit: Unit, pool: Pool, parts: list[Part] | None
    ) -> list[Part] | None:
        """Moves other units away, but only if this unit is on fewer nodes as a result."""
        moves = relocate(
            pool, unit.count, self._holds(unit), self._movers(unit.type), self.moves_left
        )
        better = self._parts(unit, pool) if moves else None
        if better is None or (parts is not None and len(better) >= len(parts)):
            undo(pool, moves)
            return parts
        for move in moves:
            self.where[move.mover.number] = move.keys
        self.moves_left -= len(moves)
        return better

    def _movers(self, type: str) -> dict[str, list[MovableRun]]:
        """The units that may move, by node."""
        found: dict[str, list[MovableRun]] = {}
        for number, keys in self.where.items():
            unit = self.units[number]
            if unit.type != type or number not in self._movable:
                continue
            nodes = {node for node, _ in keys}
            if len(nodes) == 1:
                mover = MovableRun(number, keys, self._cost(unit), self._holds(unit))
                found.setdefault(nodes.pop(), []).append(mover)
        return found

    @cached_property
    def _movable(self) -> set[int]:
        """The numbers of the units that may move, once it is settled which ones stay."""
        numbered = enumerate(self.units)
        return {n for n, unit in numbered if not unit.stays and all(map(may_move, unit.jobs))}

    def _cost(self, unit: Unit) -> float:
        """The cost of restarting the unit, in GPU-seconds."""
        each = (job.restart_seconds or self.rules.restart_seconds for job in unit.jobs)
        return sum(each) * unit.count

    # --- the result -------------------------------------------------------------------------

    def dealt(self) -> PlacedUnits:
        placements, claims = self.result.placements, self.result.claims
        for number, keys in self.where.items():
            unit = self.units[number]
            given: dict[GpuKey, int] = {}
            for job in unit.jobs:
                if job.run and gpu_keys(job) == keys and is_running(job):
                    placements[job.id] = job.run.shares
                    continue
                shares = [Share(*key, need_mib(job, self.known[key], self.rules)) for key in keys]
                if is_running(job) or (not job.run and self._free_now(unit, shares, given)):
                    placements[job.id] = tuple(sorted(shares))
                if job.id not in placements or is_running(job):
                    claims[job.id] = keys
        return self.result

    def _free_now(self, unit: Unit, shares: Sequence[Share], given: dict[GpuKey, int]) -> bool:
        """Whether nothing but the unit itself, and the guests beside it, holds memory on these
        GPUs, and there is room."""
        own = {job.id for job in unit.jobs} | {*self.guests}
        for share in shares:
            key, taken = share.key, given.get(share.key, 0)
            if held := self.view.held.get(key):
                if any(job_id not in own for job_id, _ in held):
                    return False
                taken += sum(held.values())
            if taken + share.memory_mib > self.known[key].capacity_mib:
                return False
        for share in shares:
            given[share.key] = given.get(share.key, 0) + share.memory_mib
        return True


def _by_type(node: Node) -> dict[str, list[Gpu]]:
    """The GPUs that may be used now."""
    found: dict[str, list[Gpu]] = {}
    for gpu in node.usable:
        found.setdefault(gpu.type, []).append(gpu)
    return found


def _startable(unit: Unit) -> bool:
    """Whether one of the unit's jobs could start now, given room."""
    return any(job.run is None for job in unit.jobs)
