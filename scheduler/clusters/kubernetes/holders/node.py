"""The nodes with held GPUs, each with all that is known of it at one moment. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.clusters.kubernetes.holders.holder import HeldNodeSpec, Holder
from scheduler.clusters.kubernetes.pods import SLOT
from scheduler.core.model import PodState
from scheduler.gpus.usage import GpuReading


@dataclass(frozen=True, slots=True)
class HolderWorld:
    """Nodes, holders and demand at one moment."""

    sites: Mapping[str, HeldNodeSpec] = field(default_factory=dict)
    holders: Mapping[str, Holder] = field(default_factory=dict)  # by name
    told: Mapping[str, tuple[GpuReading, ...]] = field(default_factory=dict)  # by the agent in each
    # By node: the GPUs that live pods of jobs have; and those that runs wait for, by the names that
    # the core has for them.
    taken: Mapping[str, Collection[str]] = field(default_factory=dict)
    wanted: Mapping[str, Collection[str]] = field(default_factory=dict)


class HeldNode:
    """A node with held GPUs, and what is known of it."""

    def __init__(self, site: HeldNodeSpec, holders: Sequence[Holder], world: HolderWorld) -> None:
        self.site, self._told = site, world.told
        self.holders = {holder.hold.number: holder for holder in holders if not holder.over}
        self.wanted = frozenset(world.wanted.get(site.name, ()))
        taken = world.taken.get(site.name, ())
        self.taken = frozenset(gpu for gpu in taken if not gpu.startswith(SLOT))
        self.exposed = self.taken - self._held_uuids(self.holders)
        normal = {number for number in self.holders if number < site.count}
        # Whether there is a job for which the number it was started on is not known.
        self.doubtful = bool(self.taken - self._held_uuids(normal))

    @property
    def left(self) -> int:
        """The number of GPUs that neither holders nor foreign pods have."""
        own = sum(holder.hold.count for holder in self.holders.values())
        return self.site.count - self.site.foreign - own

    @property
    def mute(self) -> bool:
        """Whether it is not known what some running holder holds."""
        running = (h for h in self.holders.values() if h.state is PodState.RUNNING)
        return not all(map(self.readings_of, running))

    @property
    def unsettled(self) -> bool:
        running = all(h.state is PodState.RUNNING for h in self.holders.values())
        return self.mute or not running

    def readings_of(self, holder: Holder | None) -> tuple[GpuReading, ...]:
        """What the agent in the holder reports, or else what the node declares; () if None."""
        if holder is None:
            return ()
        return self._told.get(holder.name) or tuple(map(GpuReading, self.site.gpus))

    def uuids(self, holder: Holder) -> frozenset[str]:
        """The GPUs that it holds."""
        if holder.state is not PodState.RUNNING:
            return frozenset()
        return frozenset(reading.gpu.uuid for reading in self.readings_of(holder))

    def _held_uuids(self, numbers: Iterable[int]) -> frozenset[str]:
        return frozenset[str]().union(*(self.uuids(self.holders[number]) for number in numbers))


def build_nodes(world: HolderWorld) -> dict[str, HeldNode]:
    on: dict[str, list[Holder]] = {}
    for holder in world.holders.values():
        on.setdefault(holder.hold.node, []).append(holder)
    return {name: HeldNode(site, on.get(name, ()), world) for name, site in world.sites.items()}
