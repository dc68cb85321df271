"""Lives in which jobs grow and try GPUs: whether what is tried keeps its rules.

In most lives a job has a few epochs and there are at most four GPUs, so nothing is worth a try. In
some there are jobs of two kinds with many long epochs, and room for them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from scheduler.core.learning import kind_of
from scheduler.core.model import (
    Gpu,
    Job,
    JobId,
    JobSpec,
    Measured,
    Node,
    Placement,
    Rules,
    View,
)
from scheduler.core.runs import is_running
from scheduler.estimates.speed import Speeds
from scheduler.estimates.trials import LAST_EPOCHS
from scheduler.planning.optimizer.growth import MUCH_LEFT, STEP
from scheduler.planning.optimizer.offer import Offer
from scheduler.planning.policies.gpu_sharing import offers
from simulator.lives.checkers import RuleChecker, changed_jobs
from simulator.lives.fairness import has_new_plan
from simulator.lives.workload import ClientKind, TrueJob
from simulator.lives.world import World

LIVES = 0.03  # of those under gpu_sharing
MEMORY_MIB = 8192
SCALES = {"resnet": 0.95, "bert": 0.1}  # twice the GPUs are 2 to the power of this as fast
LONGER = 1.0, 1.0, 7.0, 14.0  # factors on the length of the epochs of a life
LONG_MAX = 30  # of these epochs
SOME_EVERY = 4  # of the steps with a plan
ROUNDING = 1e-9


def draw_growing_jobs(rng: random.Random) -> tuple[tuple[Node, ...], tuple[TrueJob, ...]] | None:
    """The nodes and the jobs; None: the life has others."""
    if rng.random() >= LIVES:
        return None
    sizes = rng.choice([[8], [4, 4], [2, 2, 2, 2]])
    nodes = tuple(
        Node(
            f"node{number}",
            tuple(
                Gpu(f"gpu{index}", index, "pretended", MEMORY_MIB, MEMORY_MIB // 32)
                for index in range(size)
            ),
        )
        for number, size in enumerate(sizes)
    )
    span = rng.choice([1.0, 2000.0])
    jobs = tuple(_draw_job(rng, number, span) for number in range(rng.randint(2, 6)))
    longer = rng.choice(LONGER)
    return nodes, tuple(_with_long_epochs(job, longer) for job in jobs)


def _with_long_epochs(job: TrueJob, longer: float) -> TrueJob:
    """Fewer epochs and longer: some longer than the notice, so that a run that is to move ends late
    or is killed, and GPUs that are kept for it are idle meanwhile."""
    if longer == 1.0:
        return job
    spec = replace(job.spec, max_epochs=min(job.spec.max_epochs, LONG_MAX))
    return replace(job, spec=spec, epoch_seconds=longer * job.epoch_seconds)


def _draw_job(rng: random.Random, number: int, span: float) -> TrueJob:
    epochs = rng.choice([6, 12, 30, 60])
    job_id = JobId(f"job-{number}")
    image = rng.choice(["resnet", "resnet", "bert"])
    spec = JobSpec(
        name=job_id,
        user=rng.choice(["ada", "bob"]),
        image=image,
        max_epochs=epochs,
        gpus_min=1,
        gpus_max=rng.choice([4, 8]),
        memory_mib=MEMORY_MIB // 2,
        shareable=False,
        priority=rng.choice([1, 1, 2]),
    )
    return TrueJob(
        job_id=job_id,
        spec=spec,
        submit_at=rng.uniform(0.0, span),
        kind=ClientKind.LIBRARY,
        epoch_seconds=rng.choice([30.0, 45.0]),
        memory_mib=MEMORY_MIB // 2,
        gpu_util=0.7,
        warm_up_seconds=rng.choice([0.0, 5.0]),
        scaling=SCALES[image],
    )


class GrowthByDoubling(RuleChecker):
    """No job starts on more than twice the GPUs on which it, or a job of its script, was measured
    (if none was, that it can use); with much left, on more than four times as many."""

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            started = job.run and not (old.run and old.run.attempt == job.run.attempt)
            place = Placement.parse(job.run.placement) if started and job.run else None
            if place and place.gpus > job.spec.gpus_min:
                steps = 2 if job.max_epochs - job.epochs_done >= MUCH_LEFT else 1
                most = max(_counts(job.spec, after), default=0) or job.spec.gpus_min
                self.require(place.gpus <= STEP**steps * most, job, "was measured on", most)


def _counts(spec: JobSpec, view: View) -> Iterator[int]:
    """The numbers of GPUs on which jobs of the script were measured. (Here all GPUs are of one
    type, and all scripts have one batch size.)"""
    for measured in _alike(kind_of(spec), view):
        for one in measured:
            if place := Placement.parse(one.placement):
                yield place.gpus


def _alike(kind: str, view: View) -> Iterator[Sequence[Measured]]:
    """What each job of the kind has shown, and all that have ended."""
    yield from (job.measured for job in view.jobs.values() if kind_of(job.spec) == kind)
    if family := view.kinds.get(kind):
        yield family.measured


class TriesKeepTheirRules(RuleChecker):
    """At most one job of each kind tries, in all classes together, and none while another is where
    the kind was not measured; none in its last epochs, nor where one of its kind has been."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world, rules)
        self.offers = offers(rules)

    def on_step(self, before: View, after: View) -> None:
        if not has_new_plan(before, after) or not any(
            job.measured and job.max_epochs - job.epochs_done >= LAST_EPOCHS
            for job in after.jobs.values()
            if job.spec.gpus_max > job.spec.gpus_min and job.outcome is None
        ):
            return
        tries: dict[str, JobId] = {}
        for offer in self.offers(after, after.at):
            assert offer.tries
            for row in np.flatnonzero(offer.tries.may.any(axis=1)).tolist():
                job = offer.jobs[row]
                kind = kind_of(job.spec)
                self.require(kind not in tries, job, "tries beside", tries.get(kind))
                tries[kind] = job.id
                self._check(job, kind, offer, row, after)

    def _check(self, job: Job, kind: str, offer: Offer, row: int, view: View) -> None:
        left = job.max_epochs - job.epochs_done
        self.require(left > LAST_EPOCHS, job, "tries in its last epochs")
        shown = {one.placement for one in _alone(kind, view)}
        for other in view.jobs.values():
            if is_running(other) and other.run and kind_of(other.spec) == kind:
                there = other.run.placement in shown or not other.run.placement
                self.require(there, job, "tries while another does:", other)
        been = {one.placement for one in job.measured if not one.beside}
        offered = {str(config) for config in offer.configs}
        best = min(one.seconds for one in _solid(job.measured) if one.placement in offered)
        assert offer.tries
        for column in np.flatnonzero(offer.tries.may[row]).tolist():
            on = str(offer.configs[column])
            self.require(on not in shown | been, job, "tries what is known:", on)
            self.require(offer.seconds[row, column] < best, job, "tries what is slower:", on)


def _alone(kind: str, view: View) -> Iterator[Measured]:
    """What jobs of the kind have shown alone, after a run's first epoch."""
    for measured in _alike(kind, view):
        yield from _solid(measured)


def _is_solid(job: Job) -> bool:
    return len(_solid(job.measured)) == len(job.measured)


def _solid(measured: Iterable[Measured]) -> list[Measured]:
    return [one for one in measured if one.epochs and not one.beside]


class OneKindMovesOthersLittle(RuleChecker):
    """What one kind shows moves what is expected of jobs of other kinds by no more than a third of
    the doubt. (Of jobs that have shown something, and nothing else than reliable epochs: of others
    more than the laws of scaling is learned. And not where they cannot be: a job without GPUs on a
    GPU.)"""

    def on_step(self, before: View, after: View) -> None:
        changed = [
            (job, old)
            for job, old in changed_jobs(before, after)
            if job.measured is not old.measured and not job.outcome
        ]
        if len(changed) != 1 or after.number % SOME_EVERY or before.kinds is not after.kinds:
            return
        (job, old), kind = changed[0], kind_of(changed[0][0].spec)
        live = [other for other in after.jobs.values() if other.outcome is None]
        others = [
            row
            for row, other in enumerate(live)
            if other.measured
            and kind_of(other.spec) != kind
            and _is_solid(other)
            and bool(other.spec.gpus_max) == bool(job.spec.gpus_max)
        ]
        place = Placement.parse(job.run.placement) if job.run else None
        if not others or place is None:
            return
        on = [Placement(place.type, count) for count in (1, 2, 4)]
        was = Speeds([old if one is job else one for one in live], before.kinds)
        now = Speeds(live, after.kinds).estimate(on)[others]
        moved = np.abs(np.log(now / was.estimate(on)[others]))
        most = was.uncertainty(on)[others] / 3 + ROUNDING
        self.require(
            bool((moved <= most).all()), job, "moves what others are expected to do by", moved.max()
        )


def growth_checkers(world: World, rules: Rules) -> Sequence[RuleChecker]:
    return [
        GrowthByDoubling(world, rules),
        TriesKeepTheirRules(world, rules),
        OneKindMovesOthersLittle(world, rules),
    ]
