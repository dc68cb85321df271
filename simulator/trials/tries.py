"""What the tries of gpu_sharing cost in a trial, and the same policy without tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, JobFamily, Placement, Plan, Rules, RunKey, Time, View
from scheduler.core.ports import Policy, Step
from scheduler.estimates.arrays import Floats, Ints
from scheduler.estimates.measurements import Memo
from scheduler.estimates.speed import Speeds
from scheduler.planning.optimizer.inventory import Stock
from scheduler.planning.optimizer.offer import LearnedSpeeds, Offer
from scheduler.planning.policies.gpu_sharing import gpu_sharing, offers
from simulator.trials.outcome import HOUR, GanttBar


def without_tries(rules: Rules) -> Policy:
    """gpu_sharing that doubts nothing that it has learned, and so has nothing to find out."""
    return gpu_sharing(rules, partial(_LearnedWithoutDoubt, memo=Memo()))


class _WithoutDoubt(Speeds):
    def doubts(self, owners: Ints, configs: Sequence[Placement]) -> Floats:
        return 0.0 * super().doubts(owners, configs)


class _LearnedWithoutDoubt(LearnedSpeeds):
    def __init__(
        self,
        jobs: Sequence[Job],
        kinds: Mapping[str, JobFamily],
        stocks: Sequence[Stock],
        memo: Memo,
    ) -> None:
        super().__init__(jobs, kinds, stocks, memo, _WithoutDoubt(jobs, kinds, memo))


@dataclass(frozen=True, slots=True)
class _MadeTry:
    """A run that has its GPUs only because they may be tried."""

    on: str  # the key of a placement
    best: float  # seconds per epoch where the job was measured to be fastest before


class TryRecorder:
    """A policy and a listener of a trial that notice tries. It decides nothing."""

    def __init__(self, policy: Policy, rules: Rules) -> None:
        self._policy, self._offers = policy, offers(rules)
        self._granted: dict[RunKey, _MadeTry] = {}
        self._faster: set[RunKey] = set()

    def plan(self, view: View, now: Time) -> Plan:
        made = self._policy(view, now)
        starts = {
            job.id: shares
            for job_id, shares in made.placements.items()
            if shares and (job := view.jobs[job_id]).run is None and job.measured
        }
        known = usable_gpus(view.nodes)
        for offer in self._offers(view, now) if starts else ():
            for row, job in enumerate(offer.jobs):
                if shares := starts.get(job.id):
                    type = known[shares[0].key].type
                    column = _column(offer, type, len(shares))
                    self._granted.pop((job.id, job.attempts + 1), None)
                    if column is None:
                        continue  # on slow GPUs, where nothing is tried
                    if offer.tries and offer.is_only_tried(row, column):
                        best = float(offer.tries.known.best[row])
                        on = str(offer.configs[column])
                        self._granted[job.id, job.attempts + 1] = _MadeTry(on, best)
        return made

    def on_step(self, step: Step) -> None:
        for job_id in step.touched:
            before, after = step.before.jobs.get(job_id), step.after.jobs[job_id]
            run = before.run if before else None
            if run is None or (after.run and after.run.attempt == run.attempt):
                continue
            tried = self._granted.get((job_id, run.attempt))
            there = [m for m in after.measured if tried and m.placement == tried.on]
            if tried and any(m.epochs and not m.beside and m.seconds < tried.best for m in there):
                self._faster.add((job_id, run.attempt))

    def figures(self, bars: Sequence[GanttBar], restart_seconds: float) -> dict[str, float]:
        """How many runs were tries, how many of these were faster, and the GPU-hours that others
        took, and the restarts of all, there and back."""
        held: dict[RunKey, float] = {}
        restarts: dict[RunKey, float] = {}
        for bar in bars:
            run = bar.job, bar.attempt
            held[run] = held.get(run, 0.0) + bar.to_at - bar.from_at
            restarts[run] = restarts.get(run, 0.0) + min(restart_seconds, bar.to_at - bar.from_at)
        tries = [run for run in self._granted if run in held]
        faster = [run for run in tries if run in self._faster]
        back = [(job, attempt + 1) for job, attempt in tries if (job, attempt) not in faster]
        spent = sum(restarts[run] if run in faster else held[run] for run in tries)
        spent += sum(restarts.get(run, 0.0) for run in back)
        return {"tries": len(tries), "tries_faster": len(faster), "tried_gpu_hours": spent / HOUR}


def _column(offer: Offer, type: str, gpus: int) -> int | None:
    wanted = (type, gpus)
    return next((at for at, on in enumerate(offer.configs) if (on.type, on.gpus) == wanted), None)
