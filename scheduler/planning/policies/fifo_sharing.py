"""The baseline: by priority, then first come first served; shares GPUs by memory alone.

Order. A waiting job's rank is the time of its submission, moved back by `ageing_seconds` for each
step of priority and forward by the time it has run. Two waiting jobs never change places, so no job
starves: a job can only be overtaken by jobs submitted within (difference in priority) x
`ageing_seconds`, and the time it has run, after it.

Which jobs run. Running jobs stay. Waiting jobs are placed in order of rank, best fit: on the GPU
that keeps the least free memory, a gang on as few nodes as have room for it now, of one type. The
first job that does not fit gets a *claim* on the GPUs where the fewest runs must end first; later
jobs may use what no claim covers (backfilling), so none of them can delay it. A job of higher
priority claims GPUs of jobs of lower priority, which are asked to stop at the end of their epoch if
they report to the daemon; a run that does not would only lose its work.

Growth. Where a measured need no longer fits beside its neighbours, the lowest-ranked of them are
stopped.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from scheduler.core.memory import (
    best_fit,
    explain_lack,
    free_mib,
    keys_by_type,
    need_mib,
    takes_mib,
    usable_gpus,
)
from scheduler.core.model import (
    Gpu,
    GpuKey,
    Job,
    JobId,
    Plan,
    Reason,
    Rules,
    RunKey,
    RunPhase,
    Share,
    Time,
    View,
    Waiting,
)
from scheduler.core.ports import Policy
from scheduler.core.runs import current_job, may_stop
from scheduler.planning.reasons import blocked_reason, explain_by_image

_Key = TypeVar("_Key", JobId, RunKey)


def fifo_sharing(rules: Rules) -> Policy:
    def plan(view: View, now: Time) -> Plan:
        return _FifoPlanner(view, now, rules).plan()

    return plan


def rank(job: Job, now: Time, rules: Rules) -> tuple[float, JobId]:
    ran = job.ran_seconds + (now - job.run.started_at if job.run else 0.0)
    return job.submitted_at + ran - job.priority * rules.ageing_seconds, job.id


@dataclass(frozen=True, slots=True)
class _Exits:
    """The runs that must be gone for a job to have what it needs."""

    ends: tuple[JobId, ...]  # end by themselves, at an unknown time
    asked: tuple[JobId, ...]  # to stop at the end of an epoch
    leaving: tuple[RunKey, ...]  # asked to stop already, or over except for their pods

    @property
    def cost(self) -> tuple[int, int, int]:
        return len(self.ends), len(self.asked), len(self.leaving)

    @property
    def vacated(self) -> bool:
        """Whether runs are asked to stop for it. None is asked as long as that would be in vain."""
        return bool(self.leaving or (self.asked and not self.ends))


@dataclass(frozen=True, slots=True)
class _Claim(_Exits):
    """GPUs that a waiting job will have."""

    keys: tuple[GpuKey, ...]

    @property
    def nodes(self) -> int:
        return len({node for node, _ in self.keys})


@dataclass
class _FifoPlanner:
    view: View
    now: Time
    rules: Rules
    placements: dict[JobId, tuple[Share, ...]] = field(default_factory=dict)
    why: dict[JobId, Reason] = field(default_factory=dict)
    given: dict[GpuKey, list[tuple[Job, int]]] = field(default_factory=dict)
    claimants: dict[GpuKey, Job] = field(default_factory=dict)
    first_waiting: Job | None = None

    def __post_init__(self) -> None:
        self.gpus = usable_gpus(self.view.nodes)
        self.free = free_mib(self.view)  # decreases as this plan gives away and claims
        self.unclaimed = dict(self.free)  # the same without the claims
        # What similar jobs lack: valid until something more is given away or claimed.
        self.lacks: dict[tuple[int, int, bool, int, int, str], Reason] = {}
        runs = (job.priority for job in self.view.jobs.values() if job.run)
        self.lowest = min(runs, default=0)

    def plan(self) -> Plan:
        for job in self.view.jobs.values():
            if job.run and job.run.phase is not RunPhase.STOPPING:
                self.placements[job.id] = job.run.shares
                if job.held and self._can_leave(job):
                    self._stop(job, Reason(Waiting.HELD))
        self._stop_for_growth()
        waiting = [job for job in self.view.jobs.values() if job.waiting]
        waiting.sort(key=lambda job: rank(job, self.now, self.rules))
        for job in waiting:
            if reason := self._place(job):
                self.why[job.id] = reason
        eligible = [job.eligible_at for job in waiting if job.eligible_at > self.now]
        return Plan(
            self.placements,
            self.why,
            replan_at=min(eligible, default=None),
            queue=tuple([job.id for job in waiting]),
        )

    # --- growth -----------------------------------------------------------------------------

    def _stop_for_growth(self) -> None:
        for key, gpu in self.gpus.items():
            holders = self.view.held.get(key, {})
            needs = {run: self._grown(run, key, gpu, mib) for run, mib in holders.items()}
            missing = sum(needs[run] for run in needs if self._runner(run)) - gpu.capacity_mib
            growth = sum(needs.values()) - sum(holders.values())
            if growth:
                self._take(key, growth)
            for job in self._least_first(holders, key):
                if missing <= 0:
                    break
                run = (job.id, job.attempts)
                missing -= needs[run]
                if not self._leaving(job):
                    grown = needs[run] > holders[run]
                    self._stop(job, Reason(Waiting.MADE_ROOM, gpu=gpu.index, grown=grown))

    def _grown(self, run: RunKey, key: GpuKey, gpu: Gpu, mib: int) -> int:
        job = self._runner(run)
        if job is None:
            return mib
        return min(max(mib, takes_mib(job, gpu, self.rules)), gpu.capacity_mib)

    def _least_first(self, holders: Mapping[RunKey, int], key: GpuKey) -> list[Job]:
        """The order in which runs are stopped: those stopping anyway, low priority, not grown, late
        rank."""
        jobs = [job for run in holders if (job := self._runner(run))]

        def keep(job: Job) -> tuple[bool, int, bool, float]:
            grown = self._grown((job.id, job.attempts), key, self.gpus[key], 0)
            return (
                not self._leaving(job),
                job.priority,
                grown > holders[job.id, job.attempts],
                -rank(job, self.now, self.rules)[0],
            )

        return [job for job in sorted(jobs, key=keep) if self._leaving(job) or self._can_leave(job)]

    # --- waiting jobs -----------------------------------------------------------------------

    def _place(self, job: Job) -> Reason | None:
        """Places the job, or claims GPUs for it; if it must wait, returns the reason."""
        if reason := blocked_reason(job, self.view, self.now):
            return reason
        spec = job.spec
        least, most = spec.gpus_min, spec.gpus_max
        alike = least, most, spec.shareable, job.memory_mib, job.priority, spec.image
        if alike in self.lacks:
            return self.lacks[alike]
        keys = best_fit(job, spec.gpus_max, self.gpus, self.free, self.rules)
        if keys is not None:
            self._give(job, keys)
            return None
        lacks = self._lacks(job)
        may_claim = self.first_waiting is None or job.priority > self.lowest
        claim = self._claim(job) if may_claim else None
        if claim and (claim.vacated or self.first_waiting is None):
            self.first_waiting = self.first_waiting or job
            self._keep_for(job, claim)
            return self._waits_for(claim) if claim.vacated else lacks
        self.lacks[alike] = lacks
        return lacks

    def _keep_for(self, job: Job, claim: _Claim) -> None:
        """Keeps the claimed GPUs for the job, and asks the runs that yield to stop."""
        for key in claim.keys:
            self.free[key] -= need_mib(job, self.gpus[key], self.rules)
            self.claimants[key] = job
        for job_id in claim.asked if not claim.ends else ():
            reason = Reason(Waiting.PREEMPTED, jobs=(job.spec.name,))
            self._stop(self.view.jobs[job_id], reason)
        self.lacks.clear()

    def _lacks(self, job: Job) -> Reason:
        """What the job lacks now: GPUs, memory on them, or only its turn."""
        kept = best_fit(job, job.spec.gpus_min, self.gpus, self.unclaimed, self.rules)
        if kept is None:
            return explain_by_image(job, self.view, partial(self._lacking, job))
        names = sorted({self.claimants[k].spec.name for k in kept if k in self.claimants})
        return Reason(Waiting.TURN, jobs=tuple(names))

    def _lacking(self, job: Job, view: View) -> Reason:
        return explain_lack(job, usable_gpus(view.nodes), self.unclaimed, self.rules)

    def _waits_for(self, claim: _Claim) -> Reason:
        stop, gone = list(claim.asked), list[JobId]()
        for run in claim.leaving:
            job = self._runner(run)
            (stop if job and not job.cancelled else gone).append(run[0])
        return Reason(
            Waiting.STOPPING,
            asked=self._names(stop),
            gone=self._names(gone),
            ends=self._names(claim.ends),
        )

    def _names(self, ids: Iterable[JobId]) -> tuple[str, ...]:
        jobs = self.view.jobs
        return tuple(sorted({jobs[i].spec.name if i in jobs else i for i in ids}))

    def _give(self, job: Job, keys: tuple[GpuKey, ...]) -> None:
        given = []
        for key in keys:
            need = need_mib(job, self.gpus[key], self.rules)
            self._take(key, need)
            self.given.setdefault(key, []).append((job, need))
            given.append(Share(*key, need))
        self.placements[job.id] = tuple(sorted(given))

    def _take(self, key: GpuKey, mib: int) -> None:
        self.free[key] -= mib
        self.unclaimed[key] -= mib
        self.lacks.clear()

    def _stop(self, job: Job, reason: Reason) -> None:
        self.placements.pop(job.id, None)
        self.why[job.id] = reason

    # --- claims -----------------------------------------------------------------------------

    def _claim(self, job: Job) -> _Claim | None:
        """The GPUs of one type where the fewest runs must end by themselves, and then the fewest
        must be asked to stop; on one node before several. None: not even empty nodes could hold the
        job, or all are claimed."""
        count, claims = job.spec.gpus_min, list[_Claim]()
        for nodes in keys_by_type(self.gpus).values():
            exits = [[(k, found) for k in keys if (found := self._exits(job, k))] for keys in nodes]
            together = [list(itertools.chain(*exits))] if count > 1 < len(nodes) else []
            claims += [
                _cheapest(vacated, count) for vacated in exits + together if len(vacated) >= count
            ]
        return min(claims, key=lambda claim: (claim.cost, claim.nodes, claim.keys), default=None)

    def _exits(self, job: Job, key: GpuKey) -> _Exits | None:
        """The runs that must be gone from this GPU for the job; None: the GPU is too small, or
        claimed."""
        missing = need_mib(job, self.gpus[key], self.rules) - self.free[key]
        held = self.view.held.get(key, {})
        holders = [(run, self._runner(run), mib) for run, mib in held.items()]
        holders += [((new.id, new.attempts), new, mib) for new, mib in self.given.get(key, ())]
        ends, asked, leaving = [], [], []
        for run, holder, mib in sorted(holders, key=lambda h: self._order_of_exit(job, h[1])):
            if missing <= 0:
                break
            missing -= mib
            if holder is None or self._leaving(holder):
                leaving.append(run)
            elif self._yields(holder, job):
                asked.append((holder.id, mib))
            else:
                ends.append(holder.id)
        if missing > 0:
            return None
        for spared in reversed(asked):  # runs made superfluous by a later, larger one
            if spared[1] <= -missing:
                asked.remove(spared)
                missing += spared[1]
        return _Exits(tuple(ends), tuple(job_id for job_id, _ in asked), tuple(leaving))

    def _order_of_exit(self, job: Job, holder: Job | None) -> tuple[int, float]:
        """Pods without a current run and runs that stop already come first, then the runs that
        yield, then the rest, which must end by themselves."""
        if holder is None or self._leaving(holder):
            return 0, 0.0
        return 1 if self._yields(holder, job) else 2, -rank(holder, self.now, self.rules)[0]

    def _runner(self, run: RunKey) -> Job | None:
        """The job whose run this is. None: the run is over, and its pods will soon be gone."""
        return current_job(run, self.view.jobs)

    def _leaving(self, job: Job) -> bool:
        return job.id not in self.placements

    def _yields(self, holder: Job, job: Job) -> bool:
        """Whether a run is stopped for the job: only for a job of higher priority that also comes
        first in the queue; otherwise the two would take turns in stopping each other."""
        return (
            job.priority > holder.priority
            and rank(job, self.now, self.rules) < rank(holder, self.now, self.rules)
            and self._can_leave(holder)
        )

    def _can_leave(self, job: Job) -> bool:
        return job.id in self.placements and may_stop(job.run)


def _together(parts: Iterable[tuple[_Key, ...]]) -> tuple[_Key, ...]:
    return tuple(dict.fromkeys(key for part in parts for key in part))


def _cheapest(vacated: Sequence[tuple[GpuKey, _Exits]], count: int) -> _Claim:
    """`count` GPUs. Of those with equal cost, first those that are vacated by the same runs."""
    alike = Counter(exits for _, exits in vacated)

    def order(gpu_exits: tuple[GpuKey, _Exits]) -> tuple[object, ...]:
        key, exits = gpu_exits
        return exits.cost, -alike[exits], exits.ends, exits.asked, exits.leaving, key

    keys, chosen = zip(*sorted(vacated, key=order)[:count], strict=True)
    return _Claim(
        keys=keys,
        ends=_together(exits.ends for exits in chosen),
        asked=_together(exits.asked for exits in chosen),
        leaving=_together(exits.leaving for exits in chosen),
    )
