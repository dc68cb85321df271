"""What the policies that give whole GPUs have in common: which jobs may hold GPUs, how many, of
which type, and why the others wait. Each policy decides only the order of the jobs.

A job gets as many GPUs as it can use (`gpus_max`), or all there are of one type if these are enough
for it (`gpus_min`), and keeps that number while it runs; only elastic.py decides otherwise. A
policy that does not know how fast a type is takes the smallest GPUs that hold the job, and leaves
larger ones to jobs that need them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from scheduler.core.fast_replace import replace
from scheduler.core.images import has
from scheduler.core.memory import count_makes, node_sizes, nodes_needed, usable_gpus
from scheduler.core.model import (
    Gpu,
    GpuKey,
    Job,
    JobId,
    Plan,
    Reason,
    Rules,
    Time,
    View,
    Waiting,
    WholeGpus,
)
from scheduler.core.reason_text import first_named
from scheduler.core.runs import is_running, may_stop
from scheduler.planning.leftovers import assign_leftovers
from scheduler.planning.placement import PlacedUnits, Unit, place_units
from scheduler.planning.reasons import blocked_reason, explain_by_image, explained

Makes = Sequence[tuple[Gpu, int]]  # see `count_makes`


@dataclass
class Round:
    """One plan in the making: GPUs are given to one job after the other, until there are none
    left."""

    view: View
    now: Time
    rules: Rules
    preempts: bool = False  # whether runs may be asked to stop,
    elastic: bool = False  # or to continue with another number of GPUs
    in_turn: bool = False  # whether no job gets what is left over by those before it
    units: list[Unit] = field(default_factory=list)
    why: dict[JobId, Reason] = field(default_factory=dict)
    refused: list[Job] = field(default_factory=list)  # in the order of refusal

    def __post_init__(self) -> None:
        self.gpus = usable_gpus(self.view.nodes)
        self.node_sizes = node_sizes(self.gpus)
        self.left = Counter(gpu.type for gpu in self.gpus.values())  # not assigned
        unheld = [gpu for key, gpu in self.gpus.items() if not self.view.held.get(key)]
        self.idle = Counter(gpu.type for gpu in unheld)  # of these, those that no run holds
        self._makes = count_makes(self.gpus.values())
        self._fitting: dict[tuple[int, str], dict[str, int]] = {}
        self.candidates: list[Job] = []
        kept = set[GpuKey]()
        for job in self.view.jobs.values():
            if job.outcome or job.cancelled:
                continue
            reason = blocked_reason(job, self.view, self.now)
            if is_running(job) and not (may_stop(job.run) and (reason or self.preempts)):
                self._keep(job, kept)
            elif reason:
                self.why[job.id] = reason
            else:
                self.candidates.append(job)

    def _keep(self, job: Job, kept: set[GpuKey]) -> None:
        """Keeps the job where it runs, even if it was found there beside others."""
        keys = {share.key for share in job.run.shares} if job.run else set()
        for key in keys - kept:
            if key in self.gpus:
                self.left[self.gpus[key].type] -= 1
        kept |= keys
        self.units.append(Unit((job,), self.type_of(job) or "", len(keys), stays=True))

    def type_of(self, job: Job) -> str | None:
        """The type on which it runs; None: nowhere, or on GPUs that are not visible now."""
        found = [self.gpus.get(share.key) for share in job.run.shares] if job.run else []
        return found[0].type if found and found[0] else None

    def count_fitting(self, job: Job) -> dict[str, int]:
        """How many GPUs of each type could hold the job if no other were there; the type with the
        smallest GPUs first."""
        needs = job.memory_mib, job.spec.image
        found = self._fitting.get(needs)
        if found is None:
            found = self._fitting[needs] = _counted(self._makes, *needs)
        return found

    def gpus_wanted(self, job: Job) -> int | None:
        """The number of GPUs that the job should get; None: the cluster lacks even the fewest."""
        if is_running(job) and job.run:
            return len(job.run.shares)
        least, most = job.spec.gpus_min, job.spec.gpus_max
        count = min(
            least if self.elastic else most, max(self.count_fitting(job).values(), default=0)
        )
        return count if count >= least else None

    def give(self, job: Job) -> bool:
        """Assigns GPUs to the job if those before it have left enough."""
        count = self.gpus_wanted(job)
        type = "" if count == 0 else self._type_for(job, count) if count else None
        if count is None or type is None:
            return False
        self.assign(job, type, count)
        return True

    def assign(self, job: Job, type: str, count: int) -> None:
        self.left[type] -= count
        if job.waiting:
            self.idle[type] -= count
        self.units.append(Unit((job,), type, count))

    def _type_for(self, job: Job, count: int) -> str | None:
        """The type on which the job runs; otherwise the type with the smallest GPUs, preferring
        types with enough idle GPUs."""
        if is_running(job):
            type = self.type_of(job)
            return type if type is not None and self.left[type] >= count else None
        fitting = self.count_fitting(job).items()
        enough = [type for type, fit in fitting if min(fit, self.left[type]) >= count]
        return min(enough, key=lambda type: self.idle[type] < count, default=None)

    # --- the plan ---------------------------------------------------------------------------

    def plan(self, replan_at: Time | None = None, moves_max: int = 0) -> Plan:
        made = place_units(self.units, self.view, self.rules, moves_max)
        waits = {job.id: job for job in self.refused if job.waiting}
        waits |= {unit.jobs[0].id: unit.jobs[0] for unit in made.left_out if unit.jobs[0].waiting}
        if over := self._left_over(made):
            made = place_units([*self.units, *over], self.view, self.rules, moves_max)
            waits = {id: job for id, job in waits.items() if id not in made.placements}
        others = [job for job in self.candidates if job.id not in waits]
        why = {**self.why, **explained(others, made, self.view, self.rules)}
        self._explain(list(waits.values()), made, why)
        moments = [j.eligible_at for j in self.view.jobs.values() if j.eligible_at > self.now]
        moments += [] if replan_at is None else [replan_at]
        # Jobs that may not start now come first: they hold up no other job.
        queue = dict.fromkeys((*self.why, *waits, *(job.id for job in others)))
        at = min(moments, default=None)
        return Plan(made.placements, why, replan_at=at, queue=tuple(queue))

    def _left_over(self, made: PlacedUnits) -> list[Unit]:
        """Of GPUs of one type, not all may have the image of a job for which some were kept."""
        images = any(gpu.images is not None for gpu in self.gpus.values())
        if self.in_turn or not images or not made.left_out:
            return []
        return assign_leftovers(self.refused, made, self.gpus, self.view, self.rules, self._count)

    def _count(self, job: Job) -> int:
        return self.gpus_wanted(job) or len(self.gpus) + 1

    def _explain(self, waits: list[Job], made: PlacedUnits, why: dict[JobId, Reason]) -> None:
        taken = {share.key for shares in made.placements.values() for share in shares}
        free = [key for key in self.gpus if not self.view.held.get(key) and key not in taken]
        heirs = {key: self.view.jobs[id] for id, keys in made.claims.items() for key in keys}
        makes = count_makes(self.gpus[key] for key in free)
        first = [heirs[key] for key in free if key in heirs]
        first += [job for job in self.refused if self.gpus_wanted(job)][:1]
        alike: dict[tuple[int, int, int, str], Reason] = {}
        for job in waits:
            needs = job.memory_mib, job.spec.gpus_min, job.spec.gpus_max, job.spec.image
            if needs not in alike:
                lacking = partial(self._lacking, job, makes, first)
                alike[needs] = explain_by_image(job, self.view, lacking)
            why[job.id] = alike[needs]

    def _lacking(self, job: Job, free: Makes, first: Sequence[Job], view: View) -> Reason:
        count, least = self.gpus_wanted(job), job.spec.gpus_min
        lacks = Reason(Waiting.GPUS, whole=WholeGpus.POLICY, memory_mib=job.memory_mib)
        if count is None:
            there = max(self.count_fitting(job).values(), default=0)
            return replace(lacks, gpus=least, there=(("", there),))
        now = max(_counted(free, job.memory_mib, job.spec.image).values(), default=0)
        if now < count:
            everywhere = view is self.view
            sizes = self.node_sizes if everywhere else node_sizes(usable_gpus(view.nodes))
            nodes = nodes_needed(count, sizes.values())
            most = count > least
            return replace(lacks, gpus=count, most=most, nodes=nodes, free=(("", now),))
        names, more = first_named(other.spec.name for other in first if other is not job)
        return Reason(Waiting.TURN, whole=WholeGpus.POLICY, jobs=names, jobs_more=more)


def _counted(makes: Makes, memory_mib: int, image: str) -> dict[str, int]:
    """Of each type, the number of GPUs with enough memory and the image."""
    found: dict[str, int] = {}
    for gpu, count in sorted(makes, key=lambda make: (make[0].memory_mib, make[0].type)):
        if memory_mib <= gpu.memory_mib and has(gpu.images, image):
            found[gpu.type] = found.get(gpu.type, 0) + count
    return found
