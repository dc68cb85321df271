"""Why jobs do not have what they want, as far as a plan can tell: one true reason for each. Pure.

What would change it is computed only on request: outlook/remedies.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

from scheduler.core import dependencies
from scheduler.core.fast_replace import replace
from scheduler.core.images import has
from scheduler.core.memory import (
    count_makes,
    explain_lack,
    fits_empty,
    free_mib,
    make_of,
    need_mib,
    node_sizes,
    nodes_needed,
    takes_mib,
    usable_gpus,
    why_whole,
)
from scheduler.core.model import (
    Gpu,
    GpuCounts,
    GpuKey,
    Job,
    JobId,
    Reason,
    Rules,
    RunKey,
    RunPhase,
    Share,
    Time,
    View,
    Waiting,
)
from scheduler.core.reason_text import first_named
from scheduler.core.runs import awaits_old_pods, current_job
from scheduler.planning.placement import PlacedUnits


def explained(
    jobs: Sequence[Job], done: PlacedUnits, view: View, rules: Rules
) -> Mapping[JobId, Reason]:
    """Reasons for the jobs that still wait, and for the runs that must leave their GPUs, in the
    order of `jobs`, in which they are served."""
    telling = _Explainer(done, view, rules)
    why = {}
    for job in jobs:
        if reason := telling.of(job):
            why[job.id] = reason
    return why


class _Explainer:
    def __init__(self, done: PlacedUnits, view: View, rules: Rules) -> None:
        self.done, self.view, self.rules = done, view, rules
        self._lacks: dict[tuple[int, int, bool, str], Reason] = {}
        self._parts: dict[str, _Explainer] = {}  # of the nodes that have an image

    def of(self, job: Job) -> Reason | None:
        placed = self.done.placements.get(job.id)
        if job.waiting:
            return self._waits(job) if placed is None else None
        if job.run is None or job.run.phase is RunPhase.STOPPING:
            return None
        if placed is None:
            return self._preempted(job, job.run.shares)
        if placed == job.run.shares:
            return None
        if {s.key for s in placed} != {s.key for s in job.run.shares}:
            return self._moved(job.run.shares, placed)
        return None

    # --- what the cluster has, computed when a reason needs it ----------------------------------

    @cached_property
    def gpus(self) -> dict[GpuKey, Gpu]:
        return usable_gpus(self.view.nodes)

    @cached_property
    def new(self) -> list[Share]:
        """The memory given to jobs that start."""
        placements, jobs = self.done.placements, self.view.jobs
        return [share for id in placements if jobs[id].run is None for share in placements[id]]

    @cached_property
    def free(self) -> list[GpuKey]:
        given = {share.key for share in self.new}
        return [key for key in self.gpus if not self.view.held.get(key) and key not in given]

    @cached_property
    def room(self) -> dict[GpuKey, int]:
        room = free_mib(self.view)
        for share in self.new:
            if share.key in room:
                room[share.key] -= share.memory_mib
        return room

    @cached_property
    def gpus_alike(self) -> list[tuple[Gpu, int]]:
        return self._alike(self.gpus)

    @cached_property
    def free_alike(self) -> list[tuple[Gpu, int]]:
        return self._alike(self.free)

    @cached_property
    def node_sizes(self) -> dict[str, list[int]]:
        return node_sizes(self.gpus)

    @cached_property
    def heirs(self) -> dict[GpuKey, list[JobId]]:
        """The jobs that are to have each GPU and cannot yet."""
        heirs: dict[GpuKey, list[JobId]] = {}
        for job_id, keys in self.done.claims.items():
            for key in keys:
                heirs.setdefault(key, []).append(job_id)
        return heirs

    # --- waiting ----------------------------------------------------------------------------

    def _waits(self, job: Job) -> Reason:
        if keys := self.done.claims.get(job.id):
            return self._waits_for(keys)
        alike = job.spec.gpus_min, job.memory_mib, job.spec.shareable, job.spec.image
        if alike not in self._lacks:
            self._lacks[alike] = explain_by_image(job, self.view, partial(self._lacking_in, job))
        return self._lacks[alike]

    def _waits_for(self, keys: Sequence[GpuKey]) -> Reason:
        """GPUs are kept for the job, but other runs still hold memory on them."""
        runs = dict.fromkeys(run for key in keys for run in self.view.held.get(key, {}))
        stop, gone, stay = list[JobId](), list[JobId](), list[JobId]()
        for run in runs:
            (stay if self._stays(run) else stop if self._lives(run) else gone).append(run[0])
        if stop or gone:
            return Reason(Waiting.STOPPING, asked=self._names(stop), gone=self._names(gone))
        return Reason(Waiting.MEMORY, jobs=self._names(stay))

    def _lives(self, run: RunKey) -> bool:
        job = current_job(run, self.view.jobs)
        return job is not None and not job.cancelled

    def _stays(self, run: RunKey) -> bool:
        job, placed = self.view.jobs.get(run[0]), self.done.placements.get(run[0])
        if job is None or job.run is None or job.run.phase is RunPhase.STOPPING:
            return False
        return self._lives(run) and placed == job.run.shares

    def _lacking_in(self, job: Job, view: View) -> Reason:
        """What the job lacks if only the nodes of this view existed."""
        if view is self.view:
            return self._lacking(job)
        telling = _Explainer(self.done, view, self.rules)
        return self._parts.setdefault(job.spec.image, telling)._lacking(job)

    def _lacking(self, job: Job) -> Reason:
        if reason := no_node_reason(job, self.view):
            return reason
        count, whole = job.spec.gpus_min, why_whole(job)
        lacks = Reason(
            Waiting.GPUS,
            gpus=count,
            whole=whole,
            memory_mib=0 if whole else job.memory_mib + self.rules.memory_margin_mib,
        )
        able = self._by_type(job, self.gpus_alike)
        if max(able.values(), default=0) < count:
            return replace(lacks, there=_counts(able))
        free = self._by_type(job, self.free_alike)
        if max(free.values(), default=0) < count:
            if count == 1 and not whole and not self._has_room(job):
                return explain_lack(job, self.gpus, self.room, self.rules)
            nodes = nodes_needed(count, self.node_sizes.values())
            lacks = replace(lacks, nodes=nodes, free=_counts(free))
            return self._beside(job, lacks) if count == 1 and not whole else lacks
        names, more = first_named(self._heirs(self.free))
        return Reason(Waiting.TURN, jobs=names, jobs_more=more)

    def _beside(self, job: Job, lacks: Reason) -> Reason:
        """Adds where the memory that the job needs is free beside others, with which it does not
        share: on the GPU with the most of it."""
        given = {share.key for share in self.new}
        found = [
            (self.room[key], key)
            for key, gpu in self.gpus.items()
            if key not in given
            and need_mib(job, gpu, self.rules) <= self.room[key]
            and self._all_stay(key)
        ]
        if not found:
            return lacks
        room, key = max(found, key=lambda each: each[0])  # the first of several
        names, more = first_named(self._names(run[0] for run in self.view.held[key]))
        return replace(
            lacks,
            gpu=self.gpus[key].index,
            node=key[0] if len(self.view.nodes) > 1 else "",
            free_mib=room,
            jobs=names,
            jobs_more=more,
        )

    def _all_stay(self, key: GpuKey) -> bool:
        """Whether there are runs on this GPU, and none of them is about to leave."""
        runs = self.view.held.get(key, {})
        return bool(runs) and all(map(self._stays, runs))

    def _has_room(self, job: Job) -> bool:
        """Whether there is a GPU, shared or not, with this much free memory."""
        return any(need_mib(job, gpu, self.rules) <= most for gpu, most in self._most_room)

    @cached_property
    def _most_room(self) -> list[tuple[Gpu, int]]:
        """For each make of GPU, the one with the most room."""
        makes: dict[object, tuple[Gpu, int]] = {}
        for key, room in self.room.items():
            gpu = self.gpus[key]
            make = make_of(gpu)
            if make not in makes or makes[make][1] < room:
                makes[make] = gpu, room
        return list(makes.values())

    def _by_type(self, job: Job, alike: Iterable[tuple[Gpu, int]]) -> dict[str, int]:
        """How many of these GPUs are large enough."""
        counts: dict[str, int] = {}
        for gpu, count in alike:
            if fits_empty(job, gpu, self.rules):
                counts[gpu.type] = counts.get(gpu.type, 0) + count
        return counts

    def _alike(self, keys: Iterable[GpuKey]) -> list[tuple[Gpu, int]]:
        return count_makes(map(self.gpus.__getitem__, keys))

    # --- running ----------------------------------------------------------------------------

    def _preempted(self, job: Job, shares: Sequence[Share]) -> Reason:
        if names := self._heirs(share.key for share in shares):
            return Reason(Waiting.PREEMPTED, jobs=names)
        beside: dict[JobId, None] = {}
        for share in shares:
            stay = [run[0] for run in self.view.held.get(share.key, {}) if self._stays(run)]
            gpu = self.gpus.get(share.key)
            if gpu is None or not stay:
                continue
            beside |= dict.fromkeys(stay)
            need = takes_mib(job, gpu, self.rules)
            others = (takes_mib(self.view.jobs[id], gpu, self.rules) for id in stay)
            free = max(0, gpu.capacity_mib - sum(others))
            if free < need:
                return Reason(
                    Waiting.PREEMPTED,
                    jobs=self._names(stay),
                    gpu=gpu.index,
                    memory_mib=need,
                    free_mib=free,
                )
        return Reason(Waiting.PREEMPTED, jobs=self._names(beside), slows=True)

    def _moved(self, old: Sequence[Share], new: Sequence[Share]) -> Reason:
        lost = {share.key for share in old} - {share.key for share in new}
        names = self._heirs(share.key for share in old if share.key in lost)
        before, after = self._types(old), self._types(new)
        if before.keys() != after.keys():
            return Reason(Waiting.MOVED, before=_counts(before), after=_counts(after))
        if len(new) != len(old):
            gain = names if len(new) < len(old) else ()
            counts = (("", len(old)),), (("", len(new)),)
            return Reason(Waiting.MOVED, before=counts[0], after=counts[1], jobs=gain)
        moved = Reason(Waiting.MOVED, before=_counts(after), after=_counts(after))
        nodes = len({share.node for share in old}), len({share.node for share in new})
        if nodes[0] > nodes[1]:
            return replace(moved, nodes_before=nodes[0], nodes=nodes[1])
        return replace(moved, jobs=names)

    def _types(self, shares: Sequence[Share]) -> Counter[str]:
        return Counter(self.gpus[share.key].type for share in shares if share.key in self.gpus)

    def _heirs(self, keys: Iterable[GpuKey]) -> tuple[str, ...]:
        return self._names(heir for key in keys for heir in self.heirs.get(key, ()))

    def _names(self, ids: Iterable[JobId]) -> tuple[str, ...]:
        jobs = self.view.jobs
        return tuple(dict.fromkeys(jobs[id].spec.name if id in jobs else id for id in ids))


def blocked_reason(job: Job, view: View, now: Time) -> Reason | None:
    """Why the job may not have GPUs, whatever is free. None: it may."""
    if job.held:
        return Reason(Waiting.HELD)
    if job.awaits:
        return dependencies.reason(job, view)
    if job.run is None and job.eligible_at > now:
        seconds = round(job.eligible_at - now)
        return Reason(Waiting.BACKOFF, seconds=seconds, cause=job.reason)
    if awaits_old_pods(job, view.pods):
        return Reason(Waiting.STOPPING)
    return no_node_reason(job, view) if job.run is None else None


def no_node_reason(job: Job, view: View) -> Reason | None:
    """Why no node could hold the job, whatever is free there. For jobs that need GPUs, a missing
    image is the concern of `explain_by_image`."""
    if not any(node.ready for node in view.nodes):
        return Reason(Waiting.NODES)
    image = job.spec.image
    if job.spec.gpus_max or any(node.ready and has(node.images, image) for node in view.nodes):
        return None
    return Reason(Waiting.IMAGE, image=image)


def explain_by_image(job: Job, view: View, lacking: Callable[[View], Reason]) -> Reason:
    """What the job lacks: if only some of the nodes have its image, on these nodes."""
    nodes = tuple(node for node in view.nodes if has(node.images, job.spec.image))
    if len(nodes) == len(view.nodes):
        return lacking(view)
    image = job.spec.image
    names, more = first_named(node.name for node in nodes if node.gpus)
    if not names:
        return Reason(Waiting.IMAGE, gpus=max(1, job.spec.gpus_max), image=image)
    if any(node.usable for node in nodes):
        reason = lacking(replace(view, nodes=nodes))
    else:
        reason = Reason(Waiting.IMAGE, gpus=max(1, job.spec.gpus_max))
    return replace(reason, image=image, image_nodes=names, image_nodes_more=more)


def _counts(by_type: Mapping[str, int]) -> GpuCounts:
    return tuple(sorted(by_type.items()))
