"""The GPUs of one type that are not yet assigned, node by node: which are free now, which soon, and
on which nodes a given number of them is best taken. Pure. Used by placement.py and relocation.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.core.memory import fewest_nodes
from scheduler.core.model import Gpu, GpuKey

Holds = Callable[[Gpu], bool]  # whether a GPU has enough memory


@dataclass(slots=True, eq=False)
class FreeNode:
    """The free GPUs of one node."""

    number: int  # among the nodes of its type: of equal nodes, the first is taken
    node: str
    gpus: Mapping[GpuKey, Gpu]  # all GPUs of the node, the smallest first
    alike: bool = field(init=False)
    idle: list[GpuKey] = field(default_factory=list)  # no pod holds anything on them
    leaving: list[GpuKey] = field(default_factory=list)  # held by runs that stop

    def __post_init__(self) -> None:
        self.alike = len({(gpu.capacity_mib, gpu.whole) for gpu in self.gpus.values()}) == 1

    def free(self, soon: bool) -> int:
        return len(self.idle) + (len(self.leaving) if soon else 0)

    def room(self, soon: bool, holds: Holds) -> int:
        """How many of the free GPUs are large enough."""
        if self.alike:
            return self.free(soon) if holds(self._any) else 0
        keys = [*self.idle, *self.leaving] if soon else self.idle
        return sum(holds(self.gpus[key]) for key in keys)

    def size(self, holds: Holds) -> int:
        """How many of all GPUs are large enough."""
        if self.alike:
            return len(self.gpus) if holds(self._any) else 0
        return sum(map(holds, self.gpus.values()))

    @property
    def _any(self) -> Gpu:
        return next(iter(self.gpus.values()))


Part = tuple[FreeNode, int]  # a number of GPUs of a node


class Pool:
    """Finds a node by the number of GPUs that are free there, without scanning all nodes."""

    def __init__(self, sites: Sequence[FreeNode], held: Collection[GpuKey]) -> None:
        """`held`: GPUs that are free only when a run has stopped."""
        self.sites, self._held = sites, held
        self._most = max(len(site.gpus) for site in sites)
        self._alike = all(site.alike for site in sites)
        self._by_free = tuple([list[FreeNode]() for _ in range(self._most + 1)] for _ in range(2))
        for site in sites:
            self._enter(site)

    def fewest_nodes(self, count: int, holds: Holds) -> int:
        """The fewest nodes that together have `count` such GPUs; 0 if all nodes together have too
        few."""
        return fewest_nodes((site.size(holds) for site in self.sites), count)

    def spread(self, count: int, soon: bool, holds: Holds) -> list[Part] | None:
        """Takes as few nodes as possible: those where the least is left over; if no node has
        enough, first the emptiest nodes whole, and then the rest where the least is left over."""
        if count < self._most and (one := self.fit(count, soon, holds)):
            return [(one, count)]
        parts: list[Part] = []
        for site in self.emptiest_first(soon, holds):
            room = site.room(soon, holds)
            if room > count or not count:
                break
            parts.append((site, room))
            count -= room
        if count:
            last = self.fit(count, soon, holds, [site for site, _ in parts])
            if last is None:
                return None
            parts.append((last, count))
        return parts

    def fit(
        self, count: int, soon: bool, holds: Holds, used: Collection[FreeNode] = ()
    ) -> FreeNode | None:
        """The node with the fewest free GPUs that has enough of them."""
        for site in self.fullest_first(count, soon):
            if site not in used and site.room(soon, holds) >= count:
                return site
        return None

    def fullest_first(self, least: int, soon: bool) -> Iterator[FreeNode]:
        """Nodes with at least this number of free GPUs."""
        for free in range(least, self._most + 1):
            yield from self._by_free[soon][free]

    def emptiest_first(self, soon: bool, holds: Holds) -> Iterator[FreeNode]:
        """Nodes with room, the most first."""
        if self._alike:
            for free in range(self._most, 0, -1):
                yield from (site for site in self._by_free[soon][free] if site.room(soon, holds))
        else:
            rooms = [(-site.room(soon, holds), site.number, site) for site in self.sites]
            yield from (site for room, _, site in sorted(rooms, key=lambda r: r[:2]) if room)

    def take(
        self, part: Part, at_once: bool, holds: Holds, own: Collection[GpuKey] = ()
    ) -> list[GpuKey]:
        """The unit's own GPUs before others; then those that are free now, if the unit can start on
        them."""
        site, count = part
        keys = [*site.idle, *site.leaving] if at_once else [*site.leaving, *site.idle]
        large = (key for key in keys if site.alike or holds(site.gpus[key]))
        taken = sorted(large, key=lambda key: key not in own)[:count]
        self.remove(site, taken)
        return taken

    def remove(self, site: FreeNode, keys: Collection[GpuKey]) -> None:
        self._leave(site)
        site.idle = [key for key in site.idle if key not in keys]
        site.leaving = [key for key in site.leaving if key not in keys]
        self._enter(site)

    def add(self, site: FreeNode, keys: Iterable[GpuKey]) -> None:
        """Returns these GPUs to the free ones."""
        self._leave(site)
        for key in keys:
            (site.leaving if key in self._held else site.idle).append(key)
        self._enter(site)

    def _enter(self, site: FreeNode) -> None:
        for soon in (False, True):
            insort(self._by_free[soon][site.free(soon)], site, key=_number)

    def _leave(self, site: FreeNode) -> None:
        for soon in (False, True):
            sites = self._by_free[soon][site.free(soon)]
            del sites[bisect_left(sites, site.number, key=_number)]


def _number(site: FreeNode) -> int:
    return site.number
