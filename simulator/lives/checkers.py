"""Checkers of what must always hold, by the truth of the world: one class for each property.

scheduler/core/invariants.py checks what rows alone can show, in production too. These checkers know
more. The requirements on a policy are in fairness.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler.core import time_limit
from scheduler.core.model import (
    Failure,
    GpuKey,
    Job,
    JobId,
    Launch,
    Outcome,
    Pod,
    Remove,
    Rules,
    Run,
    RunKey,
    Share,
    Time,
    View,
)
from scheduler.core.reason_text import line
from scheduler.core.runs import current_run
from scheduler.core.sweeps import PRUNED
from simulator.lives.owners import Owner
from simulator.lives.training import Training
from simulator.lives.world import Witness, World

SLACK_SECONDS = 10.0  # the daemon finishes its current step before it meets a deadline
SLACK_AFTER_RESTART_SECONDS = 600.0


class Violation(Exception):
    """A property was violated."""


def describe(word: object) -> str:
    """Describes a job without its constant fields, so that a violation is readable."""
    if isinstance(word, Launch):
        return f"launch of {word.job_id} {word.attempt} with {word.shares}"
    if not isinstance(word, Job):
        return str(word)
    parts = [f"{word.id} {word.epochs_done}/{word.max_epochs}"]
    names = ("priority", "memory_mib", "attempts", "failures", "eligible_at", "run", "reason")
    parts += [f"{name}={value}" for name in names if (value := getattr(word, name))]
    parts += [name for name in ("held", "cancelled") if getattr(word, name)]
    return f"[{', '.join(parts)}, {word.outcome or 'live'}]"


class Checker(Witness):
    def __init__(self, world: World) -> None:
        self.world = world

    def require(self, holds: bool, *words: object) -> None:
        if not holds:
            raise Violation(f"{type(self).__name__}: {' '.join(map(describe, words))}")


class RuleChecker(Checker):
    """A checker that needs the rules of the scheduler."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world)
        self.rules = rules


class Capacity(Checker):
    """The shares on a GPU never exceed its capacity, neither in the world nor in the view."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.capacity = {(n.name, g.uuid): g.capacity_mib for n in world.nodes for g in n.gpus}
        self.promised: dict[RunKey, dict[GpuKey, int]] = {}  # of each run: its last shares

    def on_launch(self, launch: Launch) -> None:
        keys = [share.key for share in launch.shares]
        self.require(len(set(keys)) == len(keys), launch, "has a GPU twice")
        spec = launch.spec
        self.require(spec.gpus_min <= len(keys) <= spec.gpus_max, launch, "has too many or too few")
        for share in launch.shares:
            self.require(share.key in self.capacity and share.memory_mib > 0, "no such", share)
            taken = sum(
                held.memory_mib
                for run in self.world.runs.values()
                if run.key != (launch.job_id, launch.attempt)
                for held in self._promised_shares(run)
                if held.key == share.key
            )
            free = self.capacity[share.key] - taken
            self.require(share.memory_mib <= free, launch, "given", share, "free", free)

    def _promised_shares(self, run: Training) -> Iterator[Share]:
        """What the run may take as long as it lives; a measurement may have changed it."""
        if current := current_run(run.key, self.world.stored):
            yield from current.shares if run.alive else ()
        elif run.left:
            yield from (share for pod in run.observed_pods(self.world.agents) for share in pod.used)
        else:
            pods = (pod for pod in run.pods if pod.alive)
            for share in (share for pod in pods for share in pod.shares):
                yield replace(
                    share, memory_mib=self._last_promise(run.key, share.key, share.memory_mib)
                )

    def _last_promise(self, run: RunKey, key: GpuKey, launched_mib: int) -> int:
        """The last share of a run. Pods that outlive their gang show what they were launched with,
        but take no more than the gang was measured to need."""
        return min(launched_mib, self.promised.get(run, {}).get(key, launched_mib))

    def on_step(self, before: View, after: View) -> None:
        if before.jobs is after.jobs and before.pods is after.pods:
            return
        for job in after.jobs.values():
            if job.run:
                shares = {share.key: share.memory_mib for share in job.run.shares}
                self.promised[job.id, job.run.attempt] = shares
        held = _ledger(after)
        self.require(held == after.held, "ledger", after.held, "should be", held)
        for key, holders in held.items():
            most = self.capacity.get(key, 0)
            taken = sum(self._last_promise(run, key, mib) for run, mib in holders.items())
            self.require(taken <= most, key, holders, "of", most)


def _ledger(view: View) -> dict[GpuKey, dict[RunKey, int]]:
    """The ledger, recomputed from believed runs and from other pods that live."""
    held: dict[GpuKey, dict[RunKey, int]] = {}
    claims = [((j.id, j.run.attempt), j.run.shares) for j in view.jobs.values() if j.run]
    believed = {key for key, _ in claims}
    for key, pods in view.pods.items():
        if key not in believed:
            claims.append((key, tuple(s for pod in pods if pod.alive for s in pod.shares)))
            claims.append((key, tuple(_excess_use(pods))))
    for key, shares in claims:
        for share in shares:
            holders = held.setdefault(share.key, {})
            holders[key] = holders.get(key, 0) + share.memory_mib
    return held


def _excess_use(pods: Sequence[Pod]) -> Iterator[Share]:
    """The observed use of processes beyond the shares of their living pods."""
    for pod in pods:
        holds = {share.key: share.memory_mib for share in pod.shares if pod.alive}
        for share in pod.used:
            beyond = share.memory_mib - holds.get(share.key, 0)
            if beyond > 0:
                yield replace(share, memory_mib=beyond)


class Attempts(Checker):
    """A job has one live run; an attempt is committed before its launch and never used again."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.removed_runs: set[RunKey] = set()

    def on_launch(self, launch: Launch) -> None:
        job, key = self.world.stored.get(launch.job_id), (launch.job_id, launch.attempt)
        run = job.run if job else None
        recorded = run and (run.attempt, run.shares) == (launch.attempt, launch.shares)
        self.require(bool(recorded), launch, "was not committed before, but", run)
        self.require(key not in self.removed_runs, launch, "was removed before")
        for other in self.world.runs.values():
            same = other.launch.job_id == launch.job_id and other.key != key
            self.require(not (same and other.alive), launch, "while attempt", other.key, "lives")

    def on_remove(self, remove: Remove) -> None:
        self.removed_runs.add((remove.job_id, remove.attempt))

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            self.require(job.attempts >= old.attempts, job, "had more attempts before")
            self.require(job.run is None or job.run.attempt == job.attempts, job)


class EpochProgress(Checker):
    """Epochs done never fall and never exceed what is wanted or was really done. No epoch that was
    acknowledged, or after which a run was stopped, is repeated."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.stopped_at: dict[JobId, int] = {}

    def on_launch(self, launch: Launch) -> None:
        run = self.world.stored[launch.job_id].run
        resumes = run is not None and launch.epochs_done == run.epochs_before
        self.require(resumes, launch, "after", launch.epochs_done, "epochs, but", run)

    def on_answer(self, key: RunKey, epoch: int, stop: bool) -> None:
        if stop:
            self.stopped_at[key[0]] = max(self.stopped_at.get(key[0], 0), epoch)

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            done = self.world.epochs_done.get(job.id, 0)
            self.require(job.epochs_done >= old.epochs_done, job, "had done more:", old.epochs_done)
            self.require(job.epochs_done <= job.max_epochs, job, "has done more than it should")
            self.require(job.epochs_done <= done, job, "has really done", done)
            if job.run and not (old.run and old.run.attempt == job.run.attempt):
                self._check_resume(job, job.run)

    def _check_resume(self, job: Job, run: Run) -> None:
        acknowledged = self.world.epochs_acknowledged.get(job.id, 0)
        known = max(acknowledged, self.stopped_at.get(job.id, 0))
        self.require(run.epochs_before >= min(known, job.max_epochs), job, "had done", known)


class Memory(Checker):
    """An acknowledged measurement of a job's memory is never forgotten."""

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            measured = self.world.memory_acknowledged.get(job.id, 0)
            known = old.outcome or job.memory_mib >= measured
            self.require(bool(known), job, "was measured to need", measured)


class Outcomes(Checker):
    """An outcome is set once and is true; only real failures are counted."""

    def __init__(self, world: World, owners: Mapping[JobId, Owner]) -> None:
        super().__init__(world)
        self.owners = owners

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            self.require(old.outcome in (None, job.outcome), job, "was", old.outcome)
            self.require(not (job.run and job.outcome), job, "has ended and runs")
            for failure in Failure:
                truly = self.world.failures[job.id, failure]
                if failure is Failure.LOST:  # its GPU may be lost before the run begins
                    truly += job.attempts - self.world.begun[job.id]
                    if self.world.has_doubted:  # a GPU to be left takes the blame for errors
                        errors = self.world.failures[job.id, Failure.ERROR]
                        truly += errors - job.failed(Failure.ERROR)
                self.require(job.failed(failure) <= truly, job, failure, "really:", truly)
            if job.outcome and not old.outcome:
                self._check_outcome(job)

    def _check_outcome(self, job: Job) -> None:
        truth = self.world.truths[job.id]
        match job.outcome:
            case Outcome.SUCCEEDED:
                done = self.world.epochs_done.get(job.id, 0) >= job.max_epochs
                self.require(done or job.id in self.world.ended_well, job, "never finished")
            case Outcome.CANCELLED:
                pruned = bool(truth.spec.prune) and job.reason.startswith(PRUNED)
                said = "was not cancelled by its owner"
                self.require(pruned or truth.cancel_at is not None, job, said)
            case Outcome.FAILED:
                # Refusals by the world are not the job's failures, however many there are.
                causes = (failure for failure in Failure if failure is not Failure.REFUSED)
                failed = any(self.world.failures[job.id, cause] for cause in causes)
                late = job.reason.startswith(time_limit.reason(job))  # see time_limits.py
                self.require(failed or late, job, "never failed")
            case Outcome.SKIPPED:
                self.require(bool(job.spec.after), job, "follows no other")  # see graphs.py

    def on_end(self) -> None:
        for job_id, owner in self.owners.items():
            outcome = self.world.stored[job_id].outcome
            done = outcome is not None or not owner.cancelled
            self.require(done, job_id, "was cancelled, and is", outcome)


class Durability(Checker):
    """Acknowledged requests survive; a new daemon reads what the previous one wrote."""

    def on_step(self, before: View, after: View) -> None:
        if len(self.world.acknowledged) > len(self.world.stored):
            self._require_all_stored()

    def on_restart(self, loaded: View) -> None:
        stored = {id: job for id, job in self.world.stored.items() if job.outcome is None}
        for job_id in stored | dict(loaded.jobs):
            old, new = stored.get(job_id), loaded.jobs.get(job_id)
            self.require(old == new, "stored", old, "loaded", new)
        learned = loaded.kinds, loaded.used
        self.require(learned == self.world.learned, "stored", self.world.learned, "loaded", learned)
        self._require_all_stored()

    def on_end(self) -> None:
        self._require_all_stored()

    def _require_all_stored(self) -> None:
        lost = self.world.acknowledged - set(self.world.stored)
        self.require(not lost, "submissions lost:", sorted(lost))


class Wishes(Checker):
    """Users' requests are obeyed: a held or cancelled job is not started."""

    def on_launch(self, launch: Launch) -> None:
        job = self.world.stored[launch.job_id]
        self.require(not job.cancelled, launch, "although cancelled")

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            if job.run and not old.run:
                self.require(not (old.held and job.held), job, "was started although held")
                self.require(job.eligible_at <= after.at, job, "was started before its time")


class Notice(Checker):
    """A run may finish its epoch, but no run outlives its notice."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.restarted_at: Time = 0.0

    def on_restart(self, loaded: View) -> None:
        self.restarted_at = self.world.now()

    def on_remove(self, remove: Remove) -> None:
        run = self.world.runs.get((remove.job_id, remove.attempt))
        job = self.world.stored.get(remove.job_id)
        believed = job.run if job else None
        if run is None or not (run.working and run.alive) or run.terminating or believed is None:
            return
        if believed.attempt == remove.attempt:
            kill_at = believed.kill_at
            due = kill_at is not None and self.world.now() >= kill_at
            self.require(due, remove, "before its notice was over:", believed)
            self._require_in_time(believed)

    def on_step(self, before: View, after: View) -> None:
        for job_id in after.stopping:
            job = after.jobs[job_id]
            if job.run is None:
                continue
            run = self.world.runs.get((job_id, job.run.attempt))
            if run is not None and run.working and not run.terminating:
                self._require_in_time(job.run)

    def _require_in_time(self, run: Run) -> None:
        if run.kill_at is None:
            return
        late = self.world.now() - run.kill_at
        # A restarted daemon has to observe the cluster first, and may not see all of it.
        away = self.restarted_at > run.kill_at - SLACK_SECONDS
        most = SLACK_AFTER_RESTART_SECONDS if away else SLACK_SECONDS
        self.require(late <= most, run, "outlives its notice by", late)


class Belief(Checker):
    """A run that lives and is not being ended is never given up."""

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            if old.run is None or (job.run and job.run.attempt == old.run.attempt):
                continue
            run = self.world.runs.get((job.id, old.run.attempt))
            gone = run is None or run.terminating or not (run.working and run.alive)
            self.require(gone, job, "was given up, but still works:", old.run)


class Agreement(Checker):
    """All ranks that ask for an epoch get the same answer; no run is stopped in its last epoch."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.answers: dict[tuple[RunKey, int], bool] = {}

    def on_answer(self, key: RunKey, epoch: int, stop: bool) -> None:
        run = self.world.read().jobs[key[0]].run
        epochs = run.max_epochs if run else 0
        before = self.answers.setdefault((key, epoch), stop)
        self.require(before == stop, key, "epoch", epoch, "answered", before, "and", stop)
        self.require(not stop or epoch < epochs - 1, key, "was stopped in its last epoch", epoch)


def changed_jobs(before: View, after: View) -> Sequence[tuple[Job, Job]]:
    """Each job that a step has changed, after and before."""
    if before.jobs is after.jobs:
        return ()
    return [
        (job, old)
        for id, job in after.jobs.items()
        if (old := before.jobs.get(id)) is not None and old is not job
    ]


def unfinished_jobs(jobs: Collection[JobId], world: World) -> list[str]:
    """The jobs that have not ended, and the state of each."""
    lines = []
    for job_id in jobs:
        job = world.stored.get(job_id)
        if job is None or job.outcome is None:
            reason = world.read().why.get(job_id)
            lines.append(f"{job_id}: {describe(job)}, {line(reason) if reason else 'no reason'}")
    return lines + [f"{key}: its pods are still there" for key in world.runs]


def basic_checkers(world: World, owners: Mapping[JobId, Owner]) -> list[Witness]:
    return [
        Capacity(world),
        Attempts(world),
        EpochProgress(world),
        Memory(world),
        Outcomes(world, owners),
        Durability(world),
        Wishes(world),
        Notice(world),
        Belief(world),
        Agreement(world),
    ]
