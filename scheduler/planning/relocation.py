"""Chooses small units to relocate (to GPUs of the same type) so that a larger one fits on fewer
nodes: units on one node each, those with the cheapest restart first. Pure. Used by placement.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.model import GpuKey
from scheduler.planning.free_gpus import FreeNode, Holds, Pool

EMPTIED_MAX = 12  # nodes that are considered for being emptied


@dataclass(frozen=True, slots=True)
class MovableRun:
    """A unit that may be moved."""

    number: int
    keys: tuple[GpuKey, ...]  # where it is
    cost: float  # of its restart, in GPU-seconds
    holds: Holds

    @property
    def count(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Move:
    mover: MovableRun
    here: FreeNode
    there: FreeNode
    keys: tuple[GpuKey, ...]  # the GPUs that it gets there


def relocate(
    pool: Pool, count: int, holds: Holds, movers: Mapping[str, Sequence[MovableRun]], moves_max: int
) -> list[Move]:
    """Frees `count` GPUs on as few nodes as possible. `movers`: by their node."""
    making = _Relocation(pool, holds, movers, moves_max)
    used: list[FreeNode] = []
    for each in _parts(pool, count, holds):
        site = pool.fit(each, True, holds, used) or making.empty_node(each, used)
        if site is None:
            break
        used.append(site)
    return making.moves


def undo(pool: Pool, moves: Sequence[Move]) -> None:
    for move in reversed(moves):
        pool.add(move.there, move.keys)
        pool.remove(move.here, move.mover.keys)


def _parts(pool: Pool, count: int, holds: Holds) -> Iterator[int]:
    """How many GPUs of each node a unit would take if all of them were free."""
    for size in sorted((site.size(holds) for site in pool.sites), reverse=True):
        if count > 0:
            yield min(size, count)
        count -= size


class _Relocation:
    def __init__(
        self, pool: Pool, holds: Holds, movers: Mapping[str, Sequence[MovableRun]], moves_max: int
    ) -> None:
        self.pool, self.holds, self.movers, self.moves_max = pool, holds, movers, moves_max
        self.moves: list[Move] = []

    def empty_node(self, count: int, used: Sequence[FreeNode]) -> FreeNode | None:
        """Frees `count` GPUs of one node as cheaply as possible; None: it cannot be done."""
        found = []
        candidates = (s for s in self.pool.emptiest_first(True, self.holds) if s not in used)
        for order, site in zip(range(EMPTIED_MAX), candidates, strict=False):
            movers = self._cheapest(site, count)
            if movers is not None:
                found.append((sum(mover.cost for mover in movers), order, site, movers))
        for _, _, site, movers in sorted(found, key=lambda f: f[:2]):
            refuges = self._refuges(movers, (*used, site))
            if len(self.moves) + len(movers) <= self.moves_max and refuges is not None:
                for mover, refuge in zip(movers, refuges, strict=True):
                    self._move(mover, site, refuge)
                return site
        return None

    def _move(self, mover: MovableRun, here: FreeNode, there: FreeNode) -> None:
        self.pool.add(here, mover.keys)
        keys = self.pool.take((there, mover.count), at_once=False, holds=mover.holds)
        self.moves.append(Move(mover, here, there, tuple(keys)))

    def _cheapest(self, site: FreeNode, count: int) -> list[MovableRun] | None:
        moved = {move.mover.number for move in self.moves}
        there = [mover for mover in self.movers.get(site.node, ()) if mover.number not in moved]
        movers, free = list[MovableRun](), site.room(True, self.holds)
        for mover in sorted(there, key=lambda mover: mover.cost / mover.count):
            if free >= count:
                break
            if mover.count < count:
                movers.append(mover)
                free += self._vacates(mover, site)
        for mover in list(movers):  # units made superfluous by a later, larger one
            if free - self._vacates(mover, site) >= count:
                movers.remove(mover)
                free -= self._vacates(mover, site)
        return movers if free >= count else None

    def _vacates(self, mover: MovableRun, site: FreeNode) -> int:
        """How many of its GPUs are of use."""
        return sum(self.holds(site.gpus[key]) for key in mover.keys)

    def _refuges(
        self, movers: Sequence[MovableRun], used: Collection[FreeNode]
    ) -> list[FreeNode] | None:
        """The other nodes with room for each of them."""
        taken = Counter[str]()
        refuges = []
        for mover in movers:
            for other in self.pool.fullest_first(mover.count, True):
                room = other.room(True, mover.holds) - taken[other.node]
                if other not in used and room >= mover.count:
                    taken[other.node] += mover.count
                    refuges.append(other)
                    break
            else:
                return None
        return refuges
