"""What learning loses against knowing: `python -m benchmarks.regret --json [--seeds 3]`.

Each world of simulator/traces/worlds.py breaks something that the scheduler expects of jobs. In
each, `gpu_sharing` with the speeds that it learns is compared with itself knowing all true speeds
(simulator/trials/true_speeds.py), with `elastic` and with `srtf`, which learn too. Compared are
mean completion times of the jobs after the first quarter, in the order of submission, when there
is something to have learned from. Jobs that lie count for nothing but `liars`. Every restart costs
20 s.

    worst              the largest regret of a world
    worst_by_elastic   the largest ratio to the mean under `elastic`
    mean, by_elastic   the means of these over all worlds

and for each WORLD, over all seeds,

    regret, regret_seeds    learned / true - 1; and of each seed
    by_elastic, by_srtf     learned / the mean under this policy
    hours, true_hours       the means themselves
    gpu_hours, true_gpu_hours   how long GPUs were held by all jobs together, the first quarter too:
                            the difference is what trying things costs, less what was found by it
    tries, tries_faster     runs on GPUs that a job had only to try them: by what was expected they
                            were not worth a restart; and how many of these were faster
    tried_gpu_hours         of those that were not, and of the restarts of all, there and back
    saved_gpu_hours         gpu_hours without tries, less those with them
    by_untried, by_untried_seeds    learned / the mean if nothing is tried; and of each seed
    restarts_per_job, true_restarts_per_job
    liars, liars_seeds      their mean completion time relative to the one that they have if they
                            report what is so; below 1 it pays to lie
    by_honest               the same for the others: what the lies cost them
    liars_gpu_hours, honest_gpu_hours   how long all liars held GPUs, relative to that if they
                            report what is so; and the others

`--only A,B` runs only worlds with one of these in their names. Two processes run at a time.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.figures import in_processes, options, show
from scheduler.core.model import Rules
from scheduler.core.ports import Policy
from scheduler.planning.policies import POLICIES
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from simulator.traces.behaviour import HONEST
from simulator.traces.worlds import WORLDS, StrangeWorld, build_world
from simulator.trials.outcome import JobTimes, Result
from simulator.trials.trial import Trial
from simulator.trials.tries import TryRecorder, without_tries
from simulator.trials.true_speeds import true_speeds

RULES = Rules(plan_every_seconds=60.0)
RESTART_SECONDS = 20.0
HOUR = 3600.0
LEARNED, TRUE, HONESTLY, UNTRIED = "gpu_sharing", "true", "honestly", "untried"
COMPARED = "elastic", "srtf"
# CPU seconds of one run, to start the longest first.
USUAL = {LEARNED: 8.0, TRUE: 8.0, HONESTLY: 8.0, UNTRIED: 8.0, "elastic": 2.0, "srtf": 0.5}

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Play:
    """One world with one seed, under one policy."""

    world: str
    seed: int
    how: str  # a policy; TRUE; HONESTLY: learned, and no job lies; UNTRIED: nothing is tried
    jobs: int = 0  # at most; 0: all

    @property
    def name(self) -> str:
        return f"{self.world}/{self.how}/{self.seed}"

    def done(self) -> Figures:
        world = build_world(self.world, self.seed)
        jobs = world.jobs[: self.jobs or None]
        if self.how == HONESTLY:
            jobs = tuple(replace(job, lie=HONEST) for job in jobs)
        recorder = TryRecorder(self._policy(world), RULES) if self.how == LEARNED else None
        trial = Trial(
            jobs,
            world.told_nodes if self.how == TRUE else world.nodes,
            recorder.plan if recorder else self._policy(world),
            RULES,
            restart_seconds=RESTART_SECONDS,
            slowness=world.slowness,
            listener=recorder.on_step if recorder else None,
        )
        result = trial.run()
        tried = recorder.figures(result.bars, RESTART_SECONDS) if recorder else {}
        return _figures(world, result) | tried

    def _policy(self, world: StrangeWorld) -> Policy:
        if self.how == TRUE:
            return gpu_sharing(RULES, true_speeds(world.jobs, world.type_slowness))
        if self.how == UNTRIED:
            return without_tries(RULES)
        return POLICIES[LEARNED if self.how == HONESTLY else self.how](RULES)


def _figures(world: StrangeWorld, result: Result) -> Figures:
    late = result.jobs[len(result.jobs) // 4 :]
    lying = [job for job in late if world.is_liar(job.name)]
    honest = [job for job in late if not world.is_liar(job.name)]
    held = math.fsum(bar.to_at - bar.from_at for bar in result.bars)
    liars = {job.id for job in result.jobs if world.is_liar(job.name)}
    lied = math.fsum(bar.to_at - bar.from_at for bar in result.bars if bar.job in liars)
    summary = result.summary()
    return {
        "hours": _mean_hours(honest),
        "lying_hours": _mean_hours(lying),
        "gpu_hours": held / HOUR,
        "lying_gpu_hours": lied / HOUR,
        "honest_gpu_hours": (held - lied) / HOUR,
        "restarts_per_job": summary["restarts_per_job"],
        "unfinished": len(result.jobs) - summary["finished"],
        "cpu_seconds": summary["cpu_seconds"],
    }


def _mean_hours(jobs: Sequence[JobTimes]) -> float:
    return statistics.fmean(job.seconds for job in jobs) / HOUR if jobs else math.nan


def main() -> int:
    given = options(__doc__, seeds=3, only="", jobs=0, processes=2)
    worlds = [name for name in WORLDS if any(part in name for part in given.only.split(","))]
    if not worlds:
        sys.stderr.write(f"regret: no world matches {given.only}; known: {', '.join(WORLDS)}\n")
        return 2
    seeds = range(1, given.seeds + 1)
    plays = [
        Play(world, seed, how, given.jobs)
        for world in worlds
        for seed in seeds
        for how in (
            LEARNED,
            TRUE,
            UNTRIED,
            *COMPARED,
            *((HONESTLY,) if _has_liars(world, seed) else ()),
        )
    ]
    tasks = {play.name: play.done for play in plays}
    expected = {play.name: USUAL[play.how] for play in plays}
    found = dict(in_processes(tasks, expected, _hours, given.processes))
    show(**told(worlds, seeds, found))
    return 0


def _has_liars(world: str, seed: int) -> bool:
    return bool(build_world(world, seed).liars)


def _hours(figures: Figures) -> str:
    return f"{figures['hours']:.2f} h"


def told(
    worlds: Iterable[str], seeds: Iterable[int], found: Mapping[str, Figures]
) -> dict[str, object]:
    """What is printed. `found`: by the names of plays."""
    seeds = list(seeds)
    rows = {world: _row(world, seeds, found) for world in worlds}
    regrets, ratios = ([row[key] for row in rows.values()] for key in ("regret", "by_elastic"))
    return {
        "worst": max(regrets),
        "worst_by_elastic": max(ratios),
        "mean": round(statistics.fmean(regrets), 4),
        "by_elastic": round(statistics.fmean(ratios), 4),
        "cpu_seconds": round(sum(figures["cpu_seconds"] for figures in found.values()), 1),
        "worlds": {world: row | _by_seed(world, seeds, found) for world, row in rows.items()},
    }


def _row(world: str, seeds: Sequence[int], found: Mapping[str, Figures]) -> Figures:
    def mean(how: str, key: str) -> float:
        return statistics.fmean(found[Play(world, seed, how).name][key] for seed in seeds)

    hours, true_hours = mean(LEARNED, "hours"), mean(TRUE, "hours")
    row = {
        "regret": hours / true_hours - 1.0,
        **{f"by_{policy}": hours / mean(policy, "hours") for policy in COMPARED},
        "hours": hours,
        "true_hours": true_hours,
        "gpu_hours": mean(LEARNED, "gpu_hours"),
        "true_gpu_hours": mean(TRUE, "gpu_hours"),
        **{key: mean(LEARNED, key) for key in ("tries", "tries_faster", "tried_gpu_hours")},
        "saved_gpu_hours": mean(UNTRIED, "gpu_hours") - mean(LEARNED, "gpu_hours"),
        "by_untried": hours / mean(UNTRIED, "hours"),
        "restarts_per_job": mean(LEARNED, "restarts_per_job"),
        "true_restarts_per_job": mean(TRUE, "restarts_per_job"),
        "unfinished": sum(mean(how, "unfinished") for how in (LEARNED, TRUE, *COMPARED)),
    }
    if Play(world, seeds[0], HONESTLY).name in found:
        row["liars"] = mean(LEARNED, "lying_hours") / mean(HONESTLY, "lying_hours")
        row["by_honest"] = hours / mean(HONESTLY, "hours")
        for figure, key in (("liars", "lying"), ("honest", "honest")):
            held = f"{key}_gpu_hours"
            row[f"{figure}_gpu_hours"] = mean(LEARNED, held) / mean(HONESTLY, held)
    return {key: round(value, 4) for key, value in row.items()}


def _by_seed(
    world: str, seeds: Sequence[int], found: Mapping[str, Figures]
) -> dict[str, list[float]]:
    def ratios(how: str, key: str) -> list[float]:
        plays = [[found[Play(world, seed, h).name] for h in (LEARNED, how)] for seed in seeds]
        return [round(learned[key] / other[key], 4) for learned, other in plays]

    by_seed = {
        "regret_seeds": [round(ratio - 1.0, 4) for ratio in ratios(TRUE, "hours")],
        "by_untried_seeds": ratios(UNTRIED, "hours"),
    }
    if Play(world, seeds[0], HONESTLY).name in found:
        by_seed["liars_seeds"] = ratios(HONESTLY, "lying_hours")
    return by_seed


if __name__ == "__main__":
    sys.exit(main())
