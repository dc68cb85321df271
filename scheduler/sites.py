"""The cards of one type that nobody is to have, node by node: which are free now, which soon, and
on which nodes so many of them are best taken. Pure. Used by placing.py."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.model import Gpu, GpuKey


@dataclass(slots=True, eq=False)
class Site:
    """Those of one node."""

    number: int  # among those of its type: of equals, the first is taken
    node: str
    smallest: Gpu
    idle: list[GpuKey] = field(default_factory=list)  # nobody holds anything of them
    leaving: list[GpuKey] = field(default_factory=list)  # held by what goes away

    def free(self, soon: bool) -> int:
        return len(self.idle) + (len(self.leaving) if soon else 0)


Part = tuple[Site, int]  # so many cards of a site


class Pool:
    """Finds a site by how many cards are free there, without a look at all the others."""

    def __init__(self, size: int, sites: Sequence[Site]) -> None:
        self.size = size  # cards on the largest node
        self._by_free = tuple([list[Site]() for _ in range(size + 1)] for _ in range(2))
        for site in sites:
            self._enter(site)

    def spread(self, count: int, soon: bool, holds: Callable[[Site], bool]) -> list[Part] | None:
        """On as few nodes as can be: where the least is left over; if no node has enough, the
        emptiest ones whole, and then what is missing where the least is left over."""
        parts: list[Part] = []
        if count >= self.size or self.fit(count, soon, holds) is None:
            for site in self.emptiest_first(soon):
                free = site.free(soon)
                if not holds(site):
                    continue
                if free == 0 or free > count:
                    break
                parts.append((site, free))
                count -= free
        if count:
            last = self.fit(count, soon, holds, [site for site, _ in parts])
            if last is None:
                return None
            parts.append((last, count))
        return parts

    def fit(
        self,
        count: int,
        soon: bool,
        holds: Callable[[Site], bool],
        used: Collection[Site] = (),
    ) -> Site | None:
        """The one with the fewest free cards that has so many."""
        for site in self.fullest_first(count, soon):
            if site not in used and holds(site):
                return site
        return None

    def fullest_first(self, least: int, soon: bool) -> Iterator[Site]:
        """Those with so many free cards or more."""
        for free in range(least, self.size + 1):
            yield from self._by_free[soon][free]

    def emptiest_first(self, soon: bool) -> Iterator[Site]:
        for free in range(self.size, -1, -1):
            yield from self._by_free[soon][free]

    def take(self, part: Part, at_once: bool, own: Collection[GpuKey] = ()) -> list[GpuKey]:
        """Its own cards before others; then those that are free now, if that is of use to it."""
        site, count = part
        self._leave(site)
        keys = [*site.idle, *site.leaving] if at_once else [*site.leaving, *site.idle]
        taken = sorted(keys, key=lambda key: key not in own)[:count]
        site.idle = [key for key in site.idle if key not in taken]
        site.leaving = [key for key in site.leaving if key not in taken]
        self._enter(site)
        return taken

    def vacate(self, site: Site, keys: Sequence[GpuKey]) -> None:
        self._leave(site)
        site.leaving.extend(keys)
        self._enter(site)

    def _enter(self, site: Site) -> None:
        for soon in (False, True):
            insort(self._by_free[soon][site.free(soon)], site, key=_number)

    def _leave(self, site: Site) -> None:
        for soon in (False, True):
            sites = self._by_free[soon][site.free(soon)]
            del sites[bisect_left(sites, site.number, key=_number)]


def _number(site: Site) -> int:
    return site.number
