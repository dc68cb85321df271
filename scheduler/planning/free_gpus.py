"""The cards of one type that nobody is to have, node by node: which are free now, which soon, and
on which nodes so many of them are best taken. Pure. Used by placement.py and relocation.py."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.core.memory import fewest_nodes
from scheduler.core.model import Gpu, GpuKey

Holds = Callable[[Gpu], bool]  # whether the memory of a card is enough


@dataclass(slots=True, eq=False)
class FreeNode:
    """Those of one node."""

    number: int  # among those of its type: of equals, the first is taken
    node: str
    gpus: Mapping[GpuKey, Gpu]  # all there are, the smallest first
    alike: bool = field(init=False)
    idle: list[GpuKey] = field(default_factory=list)  # nobody holds anything of them
    leaving: list[GpuKey] = field(default_factory=list)  # held by what goes away

    def __post_init__(self) -> None:
        self.alike = len({(gpu.capacity_mib, gpu.whole) for gpu in self.gpus.values()}) == 1

    def free(self, soon: bool) -> int:
        return len(self.idle) + (len(self.leaving) if soon else 0)

    def room(self, soon: bool, holds: Holds) -> int:
        """How many of the free ones are large enough."""
        if self.alike:
            return self.free(soon) if holds(self._any) else 0
        cards = [*self.idle, *self.leaving] if soon else self.idle
        return sum(holds(self.gpus[key]) for key in cards)

    def size(self, holds: Holds) -> int:
        """How many of all are."""
        if self.alike:
            return len(self.gpus) if holds(self._any) else 0
        return sum(map(holds, self.gpus.values()))

    @property
    def _any(self) -> Gpu:
        return next(iter(self.gpus.values()))


Part = tuple[FreeNode, int]  # so many cards of a site


class Pool:
    """Finds a site by how many cards are free there, without a look at all the others."""

    def __init__(self, sites: Sequence[FreeNode], held: Collection[GpuKey]) -> None:
        """`held`: cards that are free only when somebody has gone."""
        self.sites, self._held = sites, held
        self._most = max(len(site.gpus) for site in sites)
        self._alike = all(site.alike for site in sites)
        self._by_free = tuple([list[FreeNode]() for _ in range(self._most + 1)] for _ in range(2))
        for site in sites:
            self._enter(site)

    def fewest_nodes(self, count: int, holds: Holds) -> int:
        """That have so many cards, were they all free; 0: not even all of them."""
        return fewest_nodes((site.size(holds) for site in self.sites), count)

    def spread(self, count: int, soon: bool, holds: Holds) -> list[Part] | None:
        """On as few nodes as can be: where the least is left over; if no node has enough, the
        emptiest ones whole, and then what is missing where the least is left over."""
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
        """The one with the fewest free cards that has so many."""
        for site in self.fullest_first(count, soon):
            if site not in used and site.room(soon, holds) >= count:
                return site
        return None

    def fullest_first(self, least: int, soon: bool) -> Iterator[FreeNode]:
        """Those with so many free cards or more."""
        for free in range(least, self._most + 1):
            yield from self._by_free[soon][free]

    def emptiest_first(self, soon: bool, holds: Holds) -> Iterator[FreeNode]:
        """Those with room, the most first."""
        if self._alike:
            for free in range(self._most, 0, -1):
                yield from (site for site in self._by_free[soon][free] if site.room(soon, holds))
        else:
            rooms = [(-site.room(soon, holds), site.number, site) for site in self.sites]
            yield from (site for room, _, site in sorted(rooms, key=lambda r: r[:2]) if room)

    def take(
        self, part: Part, at_once: bool, holds: Holds, own: Collection[GpuKey] = ()
    ) -> list[GpuKey]:
        """Its own cards before others; then those that are free now, if that is of use to it."""
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
        """Nobody is to have these any more."""
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
