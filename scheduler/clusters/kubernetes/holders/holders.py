"""Decides which holders should exist, and which of the held GPUs jobs may use. Pure.

On an *owned* node one holder has all GPUs. On a *mixed* node each GPU in use has a holder of its
own, from the time a job is planned for it until no job has used it for a while. The kubelet chooses
which GPU that is, so the core knows it by its holder's number (`held-0`), and the holder's agent
reports its UUID. An *exclusive* node has no holders: each job requests GPUs itself.

A number means the same GPU as long as any job may use it: while a job runs on a GPU that has lost
its holder, no new holders are made for the free numbers of that node. That GPU is held again, if
possible, by holders with numbers that the core does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.clusters.kubernetes.holders.holder import (
    MIXED,
    Hold,
    Holder,
    HolderTemplate,
    spec_hash,
)
from scheduler.clusters.kubernetes.holders.node import HeldNode, HolderWorld, build_nodes
from scheduler.core.fast_replace import replace
from scheduler.core.model import Gpu, GpuKey, Node, PodState, Share, Time
from scheduler.gpus.usage import GpuReading, GpuReport, foreign_mib

HELD = "held-"  # the prefix of the names of a mixed node's GPUs
NOWHERE = "this GPU is not known"


@dataclass(frozen=True, slots=True)
class HolderTimeouts:
    idle_seconds: float = 60.0  # before a GPU of a mixed node is given back
    held_seconds: float = 120.0  # until a run that waits for a GPU is given up
    again_seconds: float = 300.0  # after that, before another run may wait for it


@dataclass(frozen=True, slots=True)
class OfferedGpu:
    """A GPU as it is offered to the core, and its UUID."""

    gpu: Gpu
    uuid: str = ""
    unavailable: str = ""  # why nothing can be started on it now; then `uuid` is empty


class Holders:
    """For one thread at a time."""

    def __init__(self, dress: HolderTemplate, timeouts: HolderTimeouts) -> None:
        self.dress, self._waits = dress, timeouts
        self.missing: Sequence[Hold] = ()  # to be created
        self.over: Sequence[Holder] = ()  # that hold nothing any more: to be deleted
        self._spare: Sequence[Holder] = ()
        self._world = HolderWorld()
        self._nodes: dict[str, HeldNode] = {}
        self._places: dict[str, tuple[OfferedGpu, ...]] = {}  # by node
        self._real: Mapping[str, tuple[Gpu, ...]] = {}  # by node: replaced, never edited
        self._ready: dict[GpuKey, str] = {}  # the UUIDs of GPUs that can be used, by name
        self._known: dict[str, tuple[GpuReading, ...]] = {}  # of owned nodes, as last reported
        self._kinds: dict[str, Gpu] = {}  # an example of a mixed node's GPUs, by node
        self._leaving: set[str] = set()  # holders that are given back, by uid
        self._promised: set[str] = set()  # nodes of runs that were started since the last `look`
        self._idle: dict[str, Time] = {}  # since when, by uid
        self._since: dict[GpuKey, Time] = {}  # since when a run has waited
        self._refused: dict[GpuKey, tuple[Time, str]] = {}  # until when, and why
        self._hopeless: dict[str, Time] = {}  # nodes without a search, until when
        self._hashes: dict[Hold, str] = {}

    def look(self, world: HolderWorld, now: Time) -> None:
        self._world, self._promised = world, set()
        uids = {holder.uid for holder in world.holders.values()}
        self._leaving &= uids
        self._idle = {uid: since for uid, since in self._idle.items() if uid in uids}
        self._refused = {key: told for key, told in self._refused.items() if told[0] > now}
        self._hopeless = {node: until for node, until in self._hopeless.items() if until > now}
        self._nodes = build_nodes(world)
        self._places = {name: tuple(self._offers(node)) for name, node in self._nodes.items()}
        self._ready = {
            (node, place.gpu.uuid): place.uuid
            for node, places in self._places.items()
            for place in places
            if place.uuid
        }
        self._real = {name: tuple(map(_real_gpu, places)) for name, places in self._places.items()}
        self._update_waits(now)
        needed = {
            hold.name: hold
            for node in self._nodes.values()
            for hold in self._needed_holds(node, now)
        }
        self.missing = [
            hold
            for name, hold in needed.items()
            if name not in world.holders and world.sites[hold.node].ready
        ]
        self.over = [holder for holder in world.holders.values() if holder.over]
        self._spare = [h for h in world.holders.values() if self._is_spare(h, needed, now)]

    # -- what may be done ------------------------------------------------------------------------

    def cards(self, shares: Iterable[Share]) -> Mapping[GpuKey, str] | None:
        """The UUIDs of these GPUs, held at least until the next `look`. None: not all are held."""
        keys = [share.key for share in shares if share.node in self._nodes]
        if not all(key in self._ready for key in keys):
            return None
        self._promised |= {node for node, _ in keys}
        return {key: self._ready[key] for key in keys}

    def given_up(self, shares: Iterable[Share]) -> str:
        """Why a run should not wait for these GPUs any longer; empty if it should."""
        keys = [share.key for share in shares if share.key not in self._ready]
        return next((self._refused[key][1] for key in keys if key in self._refused), "")

    def give_back(self) -> Sequence[Holder]:
        """Returns holders that are not needed. Nothing is started on their GPUs from now on. The
        caller still has to ask the server itself whether pods use them."""
        spare = [h for h in self._spare if h.hold.node not in self._promised]
        self._leaving |= {holder.uid for holder in spare}
        return spare

    def is_beside(self, holder: Holder, live: Collection[str]) -> bool:
        """Whether one of these GPUs of its node, which live pods have, is or may be its own."""
        own = {reading.gpu.uuid for reading in self._world.told.get(holder.name, ())}
        if holder.hold.count == 1 and own:
            return not own.isdisjoint(live)
        return holder.state is not PodState.PENDING and bool(live)

    def keep(self, holder: Holder) -> None:
        """Keeps a holder that was to be given back."""
        self._leaving.discard(holder.uid)

    # -- what others get -------------------------------------------------------------------------

    def gpus(self, node: str) -> tuple[Gpu, ...] | None:
        """The GPUs of a node as the core gets them. None: they are not held."""
        places = self._places.get(node)
        return None if places is None else tuple(place.gpu for place in places)

    def by_uuid(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """The nodes, with the UUIDs of their held GPUs. For any thread."""
        real = self._real
        return [
            replace(node, gpus=real[node.name]) if node.name in real else node for node in nodes
        ]

    def names(self) -> Mapping[GpuKey, str]:
        """The core's names of the held GPUs, by UUID."""
        return {(node, uuid): name for (node, name), uuid in self._ready.items()}

    def suspects(self) -> Iterator[GpuKey]:
        """GPUs that a job runs on, but that the kubelet may give to a foreign pod."""
        for name, node in self._nodes.items():
            if not node.mute:
                yield from ((name, uuid) for uuid in sorted(node.exposed))

    def reports(self, reports: Iterable[GpuReport]) -> Sequence[GpuReport]:
        """The reports of all agents, also those in holders, with the core's names of GPUs."""
        names, holders, found = self.names(), self._world.holders, dict[str, GpuReport]()
        # A node's own agent sees more than one in a holder, so its report comes last and wins.
        for report in sorted(reports, key=lambda report: report.node not in holders):
            holder = holders.get(report.node)
            node = holder.hold.node if holder else report.node
            readings = {each.gpu.uuid: each for each in found[node].cards} if node in found else {}
            for reading in report.cards:
                name = names.get((node, reading.gpu.uuid), reading.gpu.uuid)
                readings[name] = replace(reading, gpu=replace(reading.gpu, uuid=name))
            found[node] = replace(report, node=node, cards=tuple(readings.values()))
        return list(found.values())

    # -- what of a node is offered ---------------------------------------------------------------

    def _offers(self, node: HeldNode) -> Iterator[OfferedGpu]:
        return self._mixed_offers(node) if node.site.mode == MIXED else self._owned_offers(node)

    def _owned_offers(self, node: HeldNode) -> Iterator[OfferedGpu]:
        holder = node.holders.get(0)
        told = node.readings_of(holder)
        lack = self._unavailable_reason(holder, told)
        if not lack:
            self._known[node.site.name] = told
        for reading in sorted(self._known.get(node.site.name, ()), key=lambda each: each.gpu.index):
            gpu = replace(reading.gpu, fault=lack or reading.gpu.fault)
            yield OfferedGpu(gpu, "" if lack else gpu.uuid, lack)

    def _mixed_offers(self, node: HeldNode) -> Iterator[OfferedGpu]:
        left, seen, kind = node.left, set[str](), self._sample_gpu(node)
        for number in range(node.site.count):
            name, holder = f"{HELD}{number}", node.holders.get(number)
            told = node.readings_of(holder)
            lack = self._unavailable_reason(holder, told)
            if lack:
                gpu, (_, fault) = kind, self._refused.get((node.site.name, name), (0, ""))
                if holder is None and not fault:
                    fault = _not_free_reason(node, left)
                    left -= 1
            elif told[0].gpu.uuid in seen:
                gpu, fault = kind, "its device plugin gives one GPU to several pods"
                lack = fault
            else:
                gpu, fault = told[0].gpu, told[0].gpu.fault
                seen.add(gpu.uuid)
            uuid = "" if lack else gpu.uuid
            gpu = replace(gpu, uuid=name, index=number, type=kind.type, fault=fault)
            yield OfferedGpu(gpu, uuid, lack)

    def _sample_gpu(self, node: HeldNode) -> Gpu:
        """An example for GPUs of the node without a holder. Its memory is that of the node's other
        GPUs, its type is from the labels, because jobs use that before an agent has reported."""
        kind = node.site.kind
        told = (
            reading.gpu for holder in node.holders.values() for reading in node.readings_of(holder)
        )
        like = next(told, None) or self._kinds.get(node.site.name, kind)
        self._kinds[node.site.name] = like
        return replace(kind, memory_mib=like.memory_mib, reserved_mib=like.reserved_mib)

    def _unavailable_reason(self, holder: Holder | None, told: Sequence[GpuReading]) -> str:
        if holder is None:
            return "no holder has it"
        if holder.state is PodState.PENDING:
            return f"its holder waits: {holder.words}" if holder.words else "its holder waits"
        if holder.state is not PodState.RUNNING:
            return "its holder is gone"
        if holder.uid in self._leaving:
            return "its holder gives it back"
        if not told:
            return "the agent in its holder does not report"
        if len(told) > holder.hold.count:
            return f"its holder was given {holder.hold.count} GPUs, but sees {len(told)}"
        return ""

    def _update_waits(self, now: Time) -> None:
        """Gives up GPUs that runs have waited for too long."""
        waiting: dict[GpuKey, Time] = {}
        for node, names in self._world.wanted.items():
            lacks = {place.gpu.uuid: place.unavailable for place in self._places.get(node, ())}
            for key in ((node, name) for name in names):
                if key in self._ready or key in self._refused:
                    continue
                since = waiting[key] = self._since.get(key, now)
                if now - since >= self._waits.held_seconds:
                    words = f"no GPU could be reserved: {lacks.get(key[1], NOWHERE)}"
                    self._refused[key] = now + self._waits.again_seconds, words
        self._since = waiting

    # -- which holders are needed ----------------------------------------------------------------

    def _needed_holds(self, node: HeldNode, now: Time) -> Iterator[Hold]:
        site = node.site
        if site.closing:
            return
        if site.mode != MIXED:
            if site.count:
                yield Hold(site.name, 0, site.count)
            return
        for number in range(site.count):
            holder, wanted = node.holders.get(number), self._is_wanted(node, number)
            taken = bool(holder and node.uuids(holder) & node.taken)
            if taken or (wanted and (holder or not node.doubtful)):
                yield Hold(site.name, number, 1)
        yield from self._recovery_holds(node, now)

    def _recovery_holds(self, node: HeldNode, now: Time) -> Iterator[Hold]:
        """The holders that search for a GPU that has lost its holder. The kubelet may assign other
        GPUs first: these are kept until it is found."""
        site, exposed = node.site, node.exposed
        others = {n: h for n, h in node.holders.items() if n >= site.count}
        searched = bool(exposed) and site.name not in self._hopeless
        for number, holder in others.items():
            if searched or node.uuids(holder) & node.taken:
                yield Hold(site.name, number, 1)
        if not searched or node.unsettled:
            return
        if node.left > 0:
            yield Hold(site.name, max([site.count - 1, *others]) + 1, 1)
        else:  # a foreign pod was faster
            self._hopeless[site.name] = now + self._waits.again_seconds

    def _is_wanted(self, node: HeldNode, number: int) -> bool:
        name = f"{HELD}{number}"
        return name in node.wanted and (node.site.name, name) not in self._refused

    def _is_spare(self, holder: Holder, needed: Mapping[str, Hold], now: Time) -> bool:
        if holder.over or holder.state is PodState.TERMINATING:
            return False
        if holder.uid in self._leaving:  # its deletion may have been requested
            return True
        node = self._nodes.get(holder.hold.node)
        fits = self._hash(holder.hold) == holder.spec_hash
        if self._is_used(holder, node) or (fits and needed.get(holder.name) == holder.hold):
            self._idle.pop(holder.uid, None)
            return False
        if node and not (node.site.ready or node.site.closing):  # its state is not known
            return False
        lasts = node and node.site.mode == MIXED and not node.site.closing
        if lasts and fits and holder.hold.count == 1 and holder.state is PodState.RUNNING:
            since = self._idle.setdefault(holder.uid, now)
            return now - since >= self._waits.idle_seconds
        return True

    def _is_used(self, holder: Holder, node: HeldNode | None) -> bool:
        """Whether a process uses a GPU of it, or a job may use one now or soon."""
        name, world = holder.hold.node, self._world
        if holder.state is PodState.PENDING:  # it was never given a GPU
            return False
        if not all(map(_is_unused, world.told.get(holder.name, ()))):
            return True
        if node is None or node.site.mode != MIXED or holder.hold.count != 1:
            return bool(world.taken.get(name) or world.wanted.get(name))
        own = node.uuids(holder)
        taken = own & node.taken if own else node.exposed
        return bool(taken) or self._is_wanted(node, holder.hold.number)

    def _hash(self, hold: Hold) -> str:
        if hold not in self._hashes:
            self._hashes[hold] = spec_hash(hold, self.dress)
        return self._hashes[hold]


def _real_gpu(place: OfferedGpu) -> Gpu:
    return replace(place.gpu, uuid=place.uuid or place.gpu.uuid)


def _not_free_reason(node: HeldNode, left: int) -> str:
    if node.doubtful:
        return "a job on this node has lost its holder"
    return "" if left > 0 else "a foreign pod has it"


def _is_unused(reading: GpuReading) -> bool:
    """Whether no process is observed on it."""
    return not reading.processes and not foreign_mib(reading, ())
