"""The loss from not knowing how jobs slow each other down, and how quickly it is learned.

`python -m benchmarks.interference --json [--data DIR]`.
The truth is a matrix that the scheduler does not know. Jobs, each of its own kind, run in the
daemon's own loop, first alone and then beside `--partners` others, an epoch or two with each. Then
pairing.py, with what was learned, and an oracle (tests/milp.py), which knows the matrix, assign the
jobs to half as many GPUs. The result is the sum of the true speeds, where 1 is the speed of a job
alone; *regret* is the gap to the oracle's result, relative to that.

Means over `--draws` draws of each truth: `drawn`, of 40 jobs that neither utilisation nor anything
else explains, and with data (`--data`; the default is EPOCH_SCHEDULER_DATA or ../shared/data) the
measurements of 40 of Lucid's models and of the about 26 of Gavel's.

    regret_TRUTH           after all partners
    regret_TRUTH_worst     the largest in one draw
    regret_TRUTH_K         after K partners; 0 is by utilisation alone
    regret_TRUTH_random    for random pairs
    regret_TRUTH_policy    for the plan that `gpu_sharing` makes after all partners. It weighs jobs
                           by what they have left to do, so its goal differs
    error_TRUTH            mean absolute error of the speeds of pairs that never met
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.figures import options, show
from scheduler.core.memory import usable_gpus
from scheduler.core.model import Gpu, Job, JobId, JobSpec, Node, Plan, Rules, Share, Time, View
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.interference import Interference
from scheduler.planning.optimizer.menu import Menu
from scheduler.planning.optimizer.pairing import Neighbours, shared
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from simulator.traces import measured_tables
from simulator.traces.behaviour import Pairs, TraceJob, Truth, speed_by_utilisation
from simulator.traces.published_formats import gavel_util
from simulator.trials.trial import Trial
from tests import milp

EPOCH_SECONDS = 100.0
EPOCHS_MAX = 10_000  # more than any job reaches
MEMORY_MIB = 2_000
LOOK_EVERY_SECONDS = EPOCH_SECONDS / 2
JOBS = 40
EFFECT, OWN = (
    1.0,
    0.5,
)  # deviations of logarithms: a job's effect on all others, and the effect in one pair
RULES = Rules(plan_every_seconds=1.0)

Matrix = tuple[Floats, Floats]  # utilisations, and [job, beside] the speeds


@dataclass(frozen=True)
class Slowed:
    """One row of the matrix."""

    number: int
    gpu_util: float
    speeds: Floats
    memory_mib: int = MEMORY_MIB

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return EPOCH_SECONDS / count

    def speed_beside(self, other: Truth, type: str) -> float:
        assert isinstance(other, Slowed), "all are rows of one matrix"
        return float(self.speeds[self.number, other.number])


def drawn(seed: int) -> Matrix:
    """Similar to the law by utilisation, but stronger. Jobs differ from the law in how sensitive
    they are and how much they slow others down, and some pairs fit better than others."""
    draw = np.random.default_rng(seed)
    util = draw.uniform(0.2, 1.0, JOBS)
    sensitivity, pressure = util * draw.lognormal(0.0, EFFECT, (2, JOBS))
    own = draw.lognormal(0.0, OWN, (JOBS, JOBS))
    return util, 1.0 / (1.0 + np.outer(sensitivity, pressure) * own)


def measured(pairs: Pairs, type: str, utils: Mapping[str, float], seed: int) -> Matrix:
    """A random, even number (at most JOBS) of models that were measured on this type."""
    models = sorted({model for on, model, _ in pairs.speeds if on == (pairs.type or type)})
    count = min(JOBS, len(models) // 2 * 2)
    order = np.random.default_rng(seed).permutation(len(models))[:count]
    chosen = [models[number] for number in order.tolist()]
    util = [utils[model] for model in chosen]

    def speed(a: int, b: int) -> float:
        said = pairs.speed(chosen[a], chosen[b], type)
        # For a pair that did not fit, the law by utilisation applies.
        return speed_by_utilisation(util[a], util[b]) if said is None else said

    return np.array(util), np.array([[speed(a, b) for b in range(count)] for a in range(count)])


def truths(data: Path) -> dict[str, Callable[[int], Matrix]]:
    """The functions that draw a matrix from a seed, by name."""
    found: dict[str, Callable[[int], Matrix]] = {"drawn": drawn}
    if (data / "colocation").is_dir():
        utils = {
            profile.model: profile.gpu_util for profile in measured_tables.lucid_profiles(data)
        }
        found["lucid"] = partial(measured, measured_tables.lucid_pairs(data), "", utils)
        pairs = measured_tables.gavel_pairs(data)
        utils = {model: gavel_util(model, pairs) for _, model, _ in pairs.speeds}
        for type in ("v100", "p100", "k80"):
            found[type] = partial(measured, pairs, type, utils)
    return found


class Tour:
    """A policy that runs each job alone first, and then beside one partner after another."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.round = jobs, 0
        self.ids = [JobId(f"job-{number:05}") for number in range(jobs)]

    def partner(self, number: int) -> int:
        """The job's partner in a round-robin tournament, in which every pair meets once."""
        last = self.jobs - 1
        if number == last:
            return next(n for n in range(last) if 2 * n % last == self.round % last)
        other = (self.round - number) % last
        return last if other == number else other

    def __call__(self, view: View, now: Time) -> Plan:
        if len(view.jobs) == self.jobs and all(self._has_met(n, view) for n in range(self.jobs)):
            self.round += 1
        known = list(usable_gpus(view.nodes))
        where = [
            min(number, self.partner(number)) if self.round else number
            for number in range(self.jobs)
        ]
        placements = {
            job_id: (Share(*known[at], MEMORY_MIB),)
            for job_id, at in zip(self.ids, where, strict=True)
        }
        return Plan(placements, replan_at=now + LOOK_EVERY_SECONDS)

    def _has_met(self, number: int, view: View) -> bool:
        beside = (self.ids[self.partner(number)],) if self.round else ()
        measured = view.jobs[self.ids[number]].measured
        return any(one.beside == beside and one.epochs >= 1 for one in measured)


def toured(util: Floats, speeds: Floats, partners: int) -> Iterator[View]:
    """The learned speeds after 0, 1, … partners."""
    jobs = [_job(number, each, speeds) for number, each in enumerate(util.tolist())]
    nodes = [Node("n0", tuple(Gpu(f"gpu{n}", n, "t4", 16_384) for n in range(len(jobs))))]
    tour = Tour(len(jobs))
    trial = Trial(jobs, nodes, tour, RULES)
    for round in range(partners + 1):
        while tour.round == round:
            trial.scheduler.step()
        yield trial.scheduler.view


def _job(number: int, util: float, speeds: Floats) -> TraceJob:
    spec = JobSpec(
        name=f"j{number}",
        user="ann",
        project=f"j{number}",
        max_epochs=EPOCHS_MAX,
        training_set_size=1000,
        memory_mib=MEMORY_MIB,
    )
    return TraceJob(0.0, spec, Slowed(number, util, speeds))


# --- what is chosen -----------------------------------------------------------------------------


def menu(jobs: int) -> Menu:
    """Each job may have one GPU or none; there are half as many GPUs as jobs."""
    one = np.array([1])
    return Menu(np.ones((jobs, 1)), count=one, type=one - 1, capacity=one * (jobs // 2))


def neighbours(speeds: Floats) -> Neighbours:
    """Neighbours where a job's worth is its speed."""
    jobs = len(speeds)

    def beside(a: Ints, b: Ints, type: int) -> Floats:
        found: Floats = speeds[np.ix_(a, b)]
        return found

    return Neighbours(
        shareable=np.ones(jobs, dtype=np.bool_),
        memory=np.full(jobs, float(MEMORY_MIB)),
        capacity=np.array([15_000.0]),
        speeds=beside,
        each=lambda a, b, type: np.asarray(speeds[a, b]),
        worth=lambda rows, type, speed: np.asarray(speed),
        members_max=2,
    )


def learned(view: View) -> Floats:
    """[job, beside] the speeds as they are expected."""
    jobs = list(view.jobs.values())
    everyone = np.arange(len(jobs))
    return Interference(jobs, view.kinds, "t4").speeds(everyone, everyone)


def total(choice: Ints, groups: Sequence[Sequence[int]], speeds: Floats) -> float:
    """The sum of the true speeds."""
    together = {job for group in groups for job in group}
    alone = sum(1.0 for job in np.flatnonzero(choice >= 0).tolist() if job not in together)
    return alone + sum(_speed(job, group, speeds) for group in groups for job in group)


def _speed(job: int, group: Sequence[int], speeds: Floats) -> float:
    return float(np.prod([speeds[job, other] for other in group if other != job]))


def planned(view: View, speeds: Floats) -> float:
    """The sum of the true speeds in the policy's plan for these jobs, if none of them runs."""
    half = replace(view.nodes[0], gpus=view.nodes[0].gpus[: len(view.jobs) // 2])
    jobs = {job.id: _waiting(job) for job in view.jobs.values()}
    empty = replace(view, jobs=jobs, nodes=(half,), held={}, pods={}, stopping=frozenset())
    plan = gpu_sharing(RULES)(empty, view.at)
    on: dict[str, list[int]] = {}
    for number, job_id in enumerate(jobs):
        for share in plan.placements.get(job_id, ()):
            on.setdefault(share.gpu, []).append(number)
    return sum(_speed(job, tuple(group), speeds) for group in on.values() for job in group)


def _waiting(job: Job) -> Job:
    return replace(job, run=None)


def regrets(matrix: Matrix, partners: int, seed: int) -> dict[str, float]:
    """The regrets by name, and the error."""
    util, speeds = matrix
    jobs = len(util)
    best = milp.solve(menu(jobs), neighbours(speeds))
    order = np.random.default_rng(seed).permutation(jobs).reshape(-1, 2).tolist()
    everyone = np.zeros(jobs, dtype=np.int64)
    found = {"_random": 1.0 - total(everyone, [(a, b) for a, b in order], speeds) / best}
    for met, view in enumerate(toured(util, speeds, partners)):
        expected = learned(view)
        chosen = shared(menu(jobs), neighbours(expected), seed)
        found[f"_{met}" * (met < partners)] = (
            1.0 - total(chosen.choice, chosen.groups, speeds) / best
        )
    found["_policy"] = 1.0 - planned(view, speeds) / best
    found["error"] = float(np.abs(expected - speeds)[strangers(view)].mean())
    return found


def strangers(view: View) -> Bools:
    """[job, other] whether they have not met."""
    number = {job_id: number for number, job_id in enumerate(view.jobs)}
    found = ~np.eye(len(number), dtype=np.bool_)
    for job_id, job in view.jobs.items():
        found[number[job_id], [number[other] for one in job.measured for other in one.beside]] = 0
    return found


def figures(name: str, found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures of all draws of one truth."""
    means = {key: statistics.mean(each[key] for each in found) for key in found[0]}
    error = means.pop("error")
    told = {f"regret_{name}{key}": means[key] for key in sorted(means)}
    told[f"regret_{name}_worst"] = max(each[""] for each in found)
    return {key: round(value, 4) for key, value in {**told, f"error_{name}": error}.items()}


def main() -> None:
    data = os.environ.get("EPOCH_SCHEDULER_DATA", "../shared/data")
    given = options(__doc__, partners=3, draws=5, data=data)
    told: dict[str, float] = {}
    for name, draw in truths(Path(given.data)).items():
        seeds = range(1, given.draws + 1)
        told |= figures(name, [regrets(draw(seed), given.partners, seed) for seed in seeds])
    show(**told)


if __name__ == "__main__":
    main()
