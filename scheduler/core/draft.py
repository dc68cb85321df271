"""A mutable view during one step: copies what the step changes, once, and updates the derived data.

Only evolve.py and adopt.py make drafts. For all other modules a step is a function from one view to
the next; which jobs it touched is part of the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import takewhile

from scheduler.core import learning, sweeps
from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    GpuKey,
    Job,
    JobFamily,
    JobId,
    Node,
    Pod,
    Profile,
    Reason,
    Rules,
    Run,
    RunKey,
    RunPhase,
    Share,
    Time,
    Used,
    View,
)
from scheduler.core.runs import current_run, has_begun


@dataclass(frozen=True, slots=True)
class Change:
    view: View
    touched: tuple[JobId, ...]  # in the order of their first change
    profiles: tuple[Profile, ...] = ()  # measured epochs to be stored


class Draft:
    def __init__(self, view: View, now: Time, rules: Rules) -> None:
        self.now, self.rules = now, rules
        self._before = view
        self.jobs: Mapping[JobId, Job] = view.jobs
        self.pods: Mapping[RunKey, tuple[Pod, ...]] = view.pods
        self.nodes: tuple[Node, ...] = view.nodes
        self.held: Mapping[GpuKey, Mapping[RunKey, int]] = view.held
        self.stopping: Set[JobId] = view.stopping
        self.behind: Mapping[JobId, tuple[JobId, ...]] = view.behind
        self.disturbed: Mapping[GpuKey, Time] = view.disturbed
        self.kinds: Mapping[str, JobFamily] = view.kinds
        self.used: Mapping[str, Used] = view.used
        self.ended: Mapping[JobId, Time] = view.ended
        self.observed_at, self.observed_since = view.observed_at, view.observed_since
        self.planned_at, self.replan_at = view.planned_at, view.replan_at
        self.stale = view.stale
        self.why: Mapping[JobId, Reason] = view.why
        self.stops: Mapping[JobId, Reason] = view.stops
        self.queue = view.queue
        self.scores: Mapping[str, sweeps.Scores] = view.scores
        self._own_jobs: dict[JobId, Job] | None = None
        self._own_stopping: set[JobId] | None = None
        self._own_behind: dict[JobId, tuple[JobId, ...]] | None = None
        self._own_ended: dict[JobId, Time] | None = None
        self._own_held: dict[GpuKey, Mapping[RunKey, int]] | None = None
        self._own_disturbed: dict[GpuKey, Time] | None = None
        self._touched: dict[JobId, None] = {}
        self._profiles: list[Profile] = []

    def put(self, job: Job) -> None:
        """Replaces or adds one job. Does nothing if the job is unchanged."""
        old = self.jobs.get(job.id)
        if old is job or old == job:
            return
        if self._own_jobs is None:
            self.jobs = self._own_jobs = dict(self.jobs)
        self._own_jobs[job.id] = job
        self._touched[job.id] = None
        self._enter_run(job.id, old.run if old else None, job.run)
        stopping = job.run is not None and job.run.phase is RunPhase.STOPPING
        if stopping != (job.id in self.stopping):
            if self._own_stopping is None:
                self.stopping = self._own_stopping = set(self.stopping)
            self._own_stopping ^= {job.id}
        self._await(job.id, _awaited(old), _awaited(job))
        if job.outcome and not (old and old.outcome):
            if self._own_ended is None:
                self.ended = self._own_ended = dict(self.ended)
            self._own_ended[job.id] = self.now
            self.learn(job)
        if not self.stale:
            self.stale = old is None or _matters(old) != _matters(job)

    def observe(self, nodes: tuple[Node, ...], pods: Mapping[RunKey, tuple[Pod, ...]]) -> None:
        """Replaces all that is known of the cluster by a new observation."""
        if nodes != self.nodes:
            self.nodes, self.stale = nodes, True
        if pods == self.pods:
            return
        before, self.pods = self.pods, pods
        for key in dict.fromkeys((*before, *pods)):
            old, new = before.get(key, ()), pods.get(key, ())
            if old == new:
                continue
            if current_run(key, self.jobs) is None:
                self._hold(key, _claims(None, old), _claims(None, new))

    def keep(self, profile: Profile) -> None:
        """Keeps a measured epoch for the store, whatever it teaches; for known jobs only."""
        if profile.job_id in self._before.jobs:
            self._profiles.append(profile)

    def forget(self) -> None:
        """Drops the ended jobs that callers are unlikely to ask about again."""
        due = self.now - self.rules.remember_seconds
        old = list(takewhile(lambda job_id: self.ended[job_id] <= due, self.ended))
        if old:
            jobs, ended = dict(self.jobs), dict(self.ended)
            for job_id in old:
                del jobs[job_id], ended[job_id]
            self.jobs = self._own_jobs = jobs
            self.ended = self._own_ended = ended

    def disturb(self, run: Run) -> None:
        """A job begins or ceases to train on these GPUs."""
        if self._own_disturbed is None:
            self.disturbed = self._own_disturbed = dict(self.disturbed)
        for share in run.shares:
            self._own_disturbed[share.key] = self.now

    def use(self, user: str, gpu_seconds: float) -> None:
        half_life = self.rules.fairness_half_life_seconds
        had = self.used.get(user, Used())
        self.used = {**self.used, user: learning.add_usage(had, gpu_seconds, self.now, half_life)}

    def learn(self, job: Job) -> None:
        """Keeps in the job's family what an ended job has shown."""
        if not job.measured:
            return
        name = learning.kind_of(job.spec)
        others = {other for shown in job.measured for other in shown.beside}
        names = {o: learning.kind_of(self.jobs[o].spec) for o in others if o in self.jobs}
        kind = learning.update_kind(self.kinds.get(name, JobFamily()), job, names)
        self.kinds = {**self.kinds, name: kind}

    def teach(self, job: Job, *, old_library: bool) -> None:
        """Keeps in the family what is known as soon as one of its jobs shows it."""
        kind = self.kind(job)
        if kind.old_library != old_library:
            self._keep_kind(job, replace(kind, old_library=old_library))

    def learn_warm_up(self, job: Job, seconds: float) -> None:
        """The same for how long its runs warm up."""
        kind = self.kind(job)
        if kind.warm_up_seconds < seconds:
            self._keep_kind(job, replace(kind, warm_up_seconds=seconds))

    def kind(self, job: Job) -> JobFamily:
        return self.kinds.get(learning.kind_of(job.spec), JobFamily())

    def _keep_kind(self, job: Job, kind: JobFamily) -> None:
        self.kinds = {**self.kinds, learning.kind_of(job.spec): kind}

    def build(self) -> Change:
        view = replace(
            self._before,
            jobs=self.jobs,
            pods=self.pods,
            nodes=self.nodes,
            held=self.held,
            stopping=frozenset(self.stopping),
            behind=self.behind,
            disturbed=self.disturbed,
            kinds=self.kinds,
            used=self.used,
            ended=self.ended,
            observed_at=self.observed_at,
            observed_since=self.observed_since,
            planned_at=self.planned_at,
            replan_at=self.replan_at,
            stale=self.stale,
            why=self.why,
            stops=self.stops,
            queue=self.queue,
            scores=self.scores,
            at=self.now,
        )
        return Change(view, tuple(self._touched), tuple(self._profiles))

    def _await(self, job_id: JobId, old: Collection[JobId], new: Collection[JobId]) -> None:
        if old == new:
            return
        if self._own_behind is None:
            self.behind = self._own_behind = dict(self.behind)
        for awaited in dict.fromkeys((*old, *new)):
            waiting = [id for id in self._own_behind.get(awaited, ()) if id != job_id]
            if awaited in new:
                waiting.append(job_id)
            if waiting:
                self._own_behind[awaited] = tuple(waiting)
            else:
                del self._own_behind[awaited]

    def _enter_run(self, job_id: JobId, old: Run | None, new: Run | None) -> None:
        if old and not (new and new.attempt == old.attempt and new.shares == old.shares):
            key = (job_id, old.attempt)
            same = new if new and new.attempt == old.attempt else None
            pods = self.pods.get(key, ())
            self._hold(key, _claims(old, pods), _claims(same, pods))
        same_run = old is not None and new is not None and old.attempt == new.attempt
        if old and (not same_run or (new and has_begun(new) and not has_begun(old))):
            self.disturb(old)
        if new and not same_run:
            key = (job_id, new.attempt)
            pods = self.pods.get(key, ())
            self._hold(key, _claims(None, pods), _claims(new, pods))

    def _hold(self, key: RunKey, before: dict[GpuKey, int], after: dict[GpuKey, int]) -> None:
        if before == after:
            return
        self.stale = True
        if self._own_held is None:
            self.held = self._own_held = dict(self.held)
        for gpu in dict.fromkeys((*before, *after)):
            holders = {k: mib for k, mib in self._own_held.get(gpu, {}).items() if k != key}
            if gpu in after:
                holders[key] = after[gpu]
            if holders:
                self._own_held[gpu] = holders
            else:
                self._own_held.pop(gpu, None)


def _matters(job: Job) -> tuple[object, ...]:
    """The fields of a job that a plan depends on, except held memory."""
    # Only a run that has reported may be asked to stop.
    speaks = job.run is not None and job.run.heard_at is not None
    wish = job.priority, job.held, job.max_epochs, job.memory_mib, not job.awaits
    return job.waiting, job.outcome, job.eligible_at, speaks, *wish


def _awaited(job: Job | None) -> tuple[JobId, ...]:
    """The jobs whose ends the job waits for."""
    if job is None or job.outcome or not job.awaits:
        return ()
    return tuple(dict.fromkeys(after.job_id for after in job.awaits))


def _claims(run: Run | None, pods: tuple[Pod, ...]) -> dict[GpuKey, int]:
    """What one run holds on each GPU: its granted shares or, if the run is no longer current, what
    its pods hold until they and their processes are seen gone."""
    if run:
        return sum_by_gpu(run.shares)
    claims = sum_by_gpu(share for pod in pods if pod.alive for share in pod.shares)
    for key, mib in used_by_gpu(pods).items():
        claims[key] = max(mib, claims.get(key, 0))
    return claims


def used_by_gpu(pods: Iterable[Pod]) -> dict[GpuKey, int]:
    """What the processes of a run are seen to use on each GPU that an agent watches."""
    return sum_by_gpu(share for pod in pods for share in pod.used)


def sum_by_gpu(shares: Iterable[Share]) -> dict[GpuKey, int]:
    found: dict[GpuKey, int] = {}
    for share in shares:
        found[share.key] = found.get(share.key, 0) + share.memory_mib
    return found


def held_by_gpu(view: View) -> Mapping[GpuKey, Mapping[RunKey, int]]:
    """The held memory, computed from all jobs and pods: for a store that has loaded rows, and for
    the invariant that the incrementally updated value equals it."""
    draft = Draft(replace(view, jobs={}, pods={}, held={}, stopping=frozenset()), 0.0, Rules())
    for job in view.jobs.values():
        draft.put(job)
    draft.observe(view.nodes, view.pods)
    return draft.held
