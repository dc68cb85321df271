"""Why jobs do not have what they want, as far as a plan can tell: one true reason for each. Pure.

What would change it is found out when somebody asks: remedies.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

from scheduler.core.fast_replace import replace
from scheduler.core.images import has
from scheduler.core.memory import (
    free_mib,
    lacking,
    need_mib,
    node_sizes,
    over_nodes,
    takes_mib,
    takes_whole_gpu,
    usable_gpus,
)
from scheduler.core.model import (
    Gpu,
    GpuKey,
    Job,
    JobId,
    Reason,
    Rules,
    RunKey,
    RunPhase,
    Share,
    View,
)
from scheduler.core.runs import current_job
from scheduler.planning.placement import Placed

NAMES_MAX = 3  # more are counted
DEFAULT_IMAGE = "the image of jobs that name none"

_Make = tuple[str, int, int, frozenset[str] | None]


def explained(
    jobs: Sequence[Job], done: Placed, view: View, rules: Rules
) -> Mapping[JobId, Reason]:
    """For those of the jobs that wait on, and for the runs that are to leave where they are. In the
    order of `jobs`, which is that in which they are served."""
    telling = _Explainer(done, view, rules)
    why = {}
    for job in jobs:
        if reason := telling.of(job):
            why[job.id] = reason
    return why


class _Explainer:
    def __init__(self, done: Placed, view: View, rules: Rules) -> None:
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

    # --- what there is, looked at when somebody has to be told ----------------------------------

    @cached_property
    def known(self) -> dict[GpuKey, Gpu]:
        return usable_gpus(self.view.nodes)

    @cached_property
    def new(self) -> list[Share]:
        """What is given to those who start."""
        placements, jobs = self.done.placements, self.view.jobs
        return [share for id in placements if jobs[id].run is None for share in placements[id]]

    @cached_property
    def free(self) -> list[GpuKey]:
        given = {share.key for share in self.new}
        return [key for key in self.known if not self.view.held.get(key) and key not in given]

    @cached_property
    def room(self) -> dict[GpuKey, int]:
        room = free_mib(self.view)
        for share in self.new:
            if share.key in room:
                room[share.key] -= share.memory_mib
        return room

    @cached_property
    def cards_alike(self) -> list[tuple[Gpu, int]]:
        return self._alike(self.known)

    @cached_property
    def free_alike(self) -> list[tuple[Gpu, int]]:
        return self._alike(self.free)

    @cached_property
    def node_sizes(self) -> dict[str, list[int]]:
        return node_sizes(self.known)

    @cached_property
    def heirs(self) -> dict[GpuKey, list[JobId]]:
        """Who is to have each card, and cannot yet."""
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
            self._lacks[alike] = by_image(job, self.view, partial(self._lacking_in, job))
        return self._lacks[alike]

    def _waits_for(self, keys: Sequence[GpuKey]) -> Reason:
        """Cards are kept for it, and somebody is on them still."""
        runs = dict.fromkeys(run for key in keys for run in self.view.held.get(key, {}))
        stop, gone, stay = list[JobId](), list[JobId](), list[JobId]()
        for run in runs:
            (stay if self._stays(run) else stop if self._lives(run) else gone).append(run[0])
        parts = ((stop, "to stop at the end of an epoch"), (gone, "to be gone"))
        words = [f"{self._names(ids)} {what}" for ids, what in parts if ids]
        if words:
            return Reason("stopping", f"waits for {' and '.join(words)}")
        return Reason("memory", f"is to share with {self._names(stay)}, where there is no room yet")

    def _lives(self, run: RunKey) -> bool:
        job = current_job(run, self.view.jobs)
        return job is not None and not job.cancelled

    def _stays(self, run: RunKey) -> bool:
        job, placed = self.view.jobs.get(run[0]), self.done.placements.get(run[0])
        if job is None or job.run is None or job.run.phase is RunPhase.STOPPING:
            return False
        return self._lives(run) and placed == job.run.shares

    def _lacking_in(self, job: Job, view: View) -> Reason:
        """As if there were no more nodes."""
        if view is self.view:
            return self._lacking(job)
        telling = _Explainer(self.done, view, self.rules)
        return self._parts.setdefault(job.spec.image, telling)._lacking(job)

    def _lacking(self, job: Job) -> Reason:
        if reason := nowhere(job, self.view):
            return reason
        count = job.spec.gpus_min
        able = self._by_type(job, self.cards_alike)
        if max(able.values(), default=0) < count:
            return Reason("gpus", f"needs {_gpus(job, '', self.rules)}; there are {_most(able)}")
        free = self._by_type(job, self.free_alike)
        if max(free.values(), default=0) < count:
            shares = count == 1 and not takes_whole_gpu(job)
            if shares and not self._has_room(job):
                return lacking(job, self.known, self.room, self.rules)
            what = _gpus(job, "free ", self.rules, over_nodes(count, self.node_sizes.values()))
            none = ", and none is better shared with it" if shares else ""
            return Reason("gpus", f"needs {what}; free now: {_most(free)}{none}")
        names = self._heirs(self.free)
        return Reason("turn", f"what is free is kept for {names}" if names else "others come first")

    def _has_room(self, job: Job) -> bool:
        """Whether there is a card, shared or not, with as much memory."""
        return any(need_mib(job, gpu, self.rules) <= most for gpu, most in self._most_room)

    @cached_property
    def _most_room(self) -> list[tuple[Gpu, int]]:
        """Of each make, the card with the most room."""
        makes: dict[_Make, tuple[Gpu, int]] = {}
        for key, room in self.room.items():
            gpu = self.known[key]
            make = _make(gpu)
            if make not in makes or makes[make][1] < room:
                makes[make] = gpu, room
        return list(makes.values())

    def _by_type(self, job: Job, alike: Iterable[tuple[Gpu, int]]) -> dict[str, int]:
        """How many of these cards are large enough."""
        counts: dict[str, int] = {}
        for gpu, count in alike:
            if _holds(job, gpu, self.rules):
                counts[gpu.type] = counts.get(gpu.type, 0) + count
        return counts

    def _alike(self, keys: Iterable[GpuKey]) -> list[tuple[Gpu, int]]:
        """One of each make, and how many there are of it."""
        makes: dict[_Make, list[Gpu]] = {}
        for gpu in map(self.known.__getitem__, keys):
            makes.setdefault(_make(gpu), []).append(gpu)
        return [(gpus[0], len(gpus)) for gpus in makes.values()]

    # --- running ----------------------------------------------------------------------------

    def _preempted(self, job: Job, shares: Sequence[Share]) -> Reason:
        if names := self._heirs(share.key for share in shares):
            return Reason("preempted", f"for {names}")
        beside: dict[JobId, None] = {}
        for share in shares:
            stay = [run[0] for run in self.view.held.get(share.key, {}) if self._stays(run)]
            gpu = self.known.get(share.key)
            if gpu is None or not stay:
                continue
            beside |= dict.fromkeys(stay)
            need = takes_mib(job, gpu, self.rules)
            others = (takes_mib(self.view.jobs[id], gpu, self.rules) for id in stay)
            free = max(0, gpu.capacity_mib - sum(others))
            if free < need:
                room = f"no room beside {self._names(stay)} on gpu{gpu.index}"
                return Reason("preempted", f"{room}: needs {need}, free {free}")
        names = self._names(beside)
        return Reason("preempted", f"for {names}, which it may slow" if names else "for others")

    def _moved(self, old: Sequence[Share], new: Sequence[Share]) -> Reason:
        lost = {share.key for share in old} - {share.key for share in new}
        names = self._heirs(share.key for share in old if share.key in lost)
        before, after = self._types(old), self._types(new)
        if before.keys() != after.keys():
            return Reason("moved", f"from {_each(before)} to {_each(after)}")
        if len(new) != len(old):
            gpus = "GPUs" if len(old) > 1 else "GPU"
            gain = f", for {names}" if names and len(new) < len(old) else ""
            return Reason("moved", f"from {len(old)} {gpus} to {len(new)}{gain}")
        nodes = len({share.node for share in old}), len({share.node for share in new})
        if nodes[0] > nodes[1]:
            return Reason("moved", f"from {nodes[0]} nodes to {nodes[1]}")
        return Reason("moved", f"for {names}" if names else "to other GPUs of the same type")

    def _types(self, shares: Sequence[Share]) -> Counter[str]:
        return Counter(self.known[share.key].type for share in shares if share.key in self.known)

    def _heirs(self, keys: Iterable[GpuKey]) -> str:
        return self._names(heir for key in keys for heir in self.heirs.get(key, ()))

    def _names(self, ids: Iterable[JobId]) -> str:
        jobs = self.view.jobs
        return listed(dict.fromkeys(jobs[id].spec.name if id in jobs else id for id in ids))


def nowhere(job: Job, view: View) -> Reason | None:
    """Why no node could have it, whatever is free there. Whose GPUs are to be found, that of their
    images is told with them (`by_image`)."""
    if not any(node.ready for node in view.nodes):
        return Reason("nodes", "no node is ready")
    image = job.spec.image
    if job.spec.gpus_max or any(node.ready and has(node.images, image) for node in view.nodes):
        return None
    said = image or DEFAULT_IMAGE
    return Reason("image", f"no node that is ready has {said}, and none may be pulled")


def by_image(job: Job, view: View, lacking: Callable[[View], Reason]) -> Reason:
    """What the job lacks: where only some of the nodes have its image, on these."""
    nodes = tuple(node for node in view.nodes if has(node.images, job.spec.image))
    if len(nodes) == len(view.nodes):
        return lacking(view)
    image = job.spec.image or DEFAULT_IMAGE
    names = [node.name for node in nodes if node.gpus]
    if not names:
        return Reason("image", f"no node with GPUs has {image}, and none may be pulled")
    others = f"no node but {listed(names)} has {image}"
    if not any(node.usable for node in nodes):
        return Reason("image", f"{others}, and no GPU can be used there")
    reason = lacking(replace(view, nodes=nodes))
    return Reason(reason.kind, f"{reason.detail}; {others}")


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    named = list(names)
    if len(named) > NAMES_MAX:
        rest = len(named) - NAMES_MAX + 1
        named[NAMES_MAX - 1 :] = [f"{rest} others"]
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


def _gpus(job: Job, state: str, rules: Rules, where: str = "") -> str:
    """`a free GPU with 12,000 MiB`, `16 free GPUs on 2 or more nodes, as it shares with nobody`"""
    count = job.spec.gpus_min
    gpus = f"{count} {state}GPUs" if count > 1 else f"a {state}GPU"
    if not takes_whole_gpu(job):
        return f"{gpus} with {job.memory_mib + rules.memory_margin_mib:,} MiB{where}"
    alone = "shares with nobody" if not job.spec.shareable else "has no known memory need"
    return f"{gpus}{where}, as it {alone}"


def _holds(job: Job, gpu: Gpu, rules: Rules) -> bool:
    return need_mib(job, gpu, rules) <= gpu.capacity_mib


def _make(gpu: Gpu) -> _Make:
    return gpu.type, gpu.memory_mib, gpu.reserved_mib, gpu.images


def _most(counts: Mapping[str, int]) -> str:
    """`2`, or where there are several types, `2 t4, 1 a100`: they are not mixed in one run."""
    return _each(counts) if len(counts) > 1 else str(max(counts.values(), default=0))


def _each(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {type}" for type, count in sorted(counts.items()))
