"""The results of each policy on measured and published traces, in the daemon's own loop.

`python -m benchmarks.policies --json --data DIR`.
For each trace with each policy: mean, median and 99th percentile of the completion times and the
makespan, all in hours; the share of GPUs in use; restarts per job. Every restart costs 20 s.

The models of Philly's jobs are drawn from those in Lucid's table that fit on a GPU of 16 GiB, so a
figure is the mean over three draws (`seeds`), but of one draw for the long week. `--long` makes
three draws for the week as well, `--seeds N` N draws for both. `cpu_seconds` is the mean of the
trials. `unfinished` and `refused` count jobs that are in no figure. `alone_h` is the mean
completion time if no job waits or shares: no policy can be better.

`--only A,B` runs only traces with one of these in their names, `--policies A,B` only these
policies. With `--output FILE` each finished trial is written there, and trials that FILE already
has from the same programs are not repeated, so an interrupted run continues.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.figures import PUBLISHED, in_processes, measured, options, show, sources, write
from scheduler.core.memory import node_sizes, usable_gpus
from scheduler.core.model import Node, Rules
from scheduler.planning.policies import NAMES, POLICIES
from simulator.flags import parse_cluster
from simulator.traces.behaviour import TraceJob
from simulator.traces.loader import TraceError, load
from simulator.trials.trial import Trial, best_epoch_seconds

FIGURES = ("mean_h", "median_h", "p99_h", "makespan_h", "utilisation", "restarts_per_job")
ASIDE = ("unfinished", "refused", "cpu_seconds", "alone_h")
RESTART_SECONDS = 20.0
HOUR = 3600.0
T4 = "16x4x16384:t4"
MIXED = "6x4x16384:t4,3x8x11264:rtx,2x8x40960:a100"
P100 = "8x4x16384:p100"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    trace: str
    cluster: str
    plan_every_seconds: float = 60.0
    seeds: int = 1  # more if the trace leaves something to draw
    seeds_long: int = 1


CASES = {
    case.name: case
    for case in (
        *(Case(f"sia-{n}-t4", f"sia/workload-{n}.csv", T4) for n in range(1, 5)),
        *(Case(f"sia-{n}-mixed", f"sia/workload-{n}.csv", MIXED) for n in range(1, 5)),
        Case("gavel-fairness", "gavel/max_min_fairness.trace", P100),
        Case("gavel-makespan", "gavel/minimize_makespan.trace", P100),
        Case("shockwave", "shockwave/120.trace", P100),
        Case("philly-vc", "philly/vc-ee9e8c.csv", "16x8x16384:t4", 300.0, 3, 3),
        Case("philly-week", "philly/week-2017-10-09.csv", "56x8x16384:t4", 300.0, 1, 3),
    )
}


@dataclass(frozen=True, slots=True)
class Run:
    """One trace under one policy with one draw."""

    case: Case
    policy: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.case.name}/{self.policy}/{self.seed}"

    def done(self, data: Path) -> Figures:
        rules = Rules(plan_every_seconds=self.case.plan_every_seconds)
        jobs = load(data / "traces" / self.case.trace, data=data, seed=self.seed)
        policy, nodes = POLICIES[self.policy](rules), parse_cluster(self.case.cluster)
        trial = Trial(jobs, nodes, policy, rules, restart_seconds=RESTART_SECONDS)
        summary = trial.run().summary() | {"alone_h": _alone_h(jobs, nodes)}
        return {name: summary[name] for name in (*FIGURES, *ASIDE)}


def _alone_h(jobs: Sequence[TraceJob], nodes: Sequence[Node]) -> float:
    """The mean completion time if each job had its best placement at once and alone."""
    sizes = node_sizes(usable_gpus(nodes))
    return statistics.fmean(
        job.spec.max_epochs / HOUR * best_epoch_seconds(job, sizes) for job in jobs
    )


def main() -> int:
    given = options(
        __doc__,
        data=measured(),
        seeds=0,
        only="",
        policies=",".join(NAMES),
        output="",
        processes=2,
        long=False,
    )
    policies = given.policies.split(",")
    if unknown := sorted(set(policies) - set(NAMES)):
        sys.stderr.write(f"policies: unknown: {', '.join(unknown)}; known: {', '.join(NAMES)}\n")
        return 2
    runs = [
        Run(case, policy, seed)
        for case in CASES.values()
        if any(part in case.name for part in given.only.split(","))
        for policy in policies
        for seed in range(1, 1 + _draws(case, given.seeds, given.long))
    ]
    if not runs:
        sys.stderr.write(f"policies: no trace matches {given.only}; known: {', '.join(CASES)}\n")
        return 2
    digest = sources()
    kept = _kept(Path(given.output), digest) if given.output else {}
    figures = {run.name: kept[run.name] for run in runs if run.name in kept}
    missing = [run for run in runs if run.name not in kept]
    try:
        trials = {run.name: partial(run.done, Path(given.data)) for run in missing}
        for name, found in in_processes(trials, _expected(missing), _hours, given.processes):
            figures[name] = kept[name] = found
            if given.output:
                write(Path(given.output), {"sources": digest, "trials": kept})
    except TraceError as error:
        sys.stderr.write(f"policies: {error}\n")
        return 2
    show(**tabled(runs, figures))
    return 0


def _draws(case: Case, seeds: int, long: bool) -> int:
    if case.seeds_long == 1:
        return 1
    return seeds or (case.seeds_long if long else case.seeds)


def _kept(path: Path, digest: str) -> dict[str, Figures]:
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    kept: dict[str, Figures] = content["trials"]
    return kept if content["sources"] == digest else {}


def _hours(figures: Figures) -> str:
    return f"{figures['mean_h']:.2f} h"


def _expected(runs: Iterable[Run]) -> dict[str, float | None]:
    """The published CPU seconds."""
    published = json.loads(PUBLISHED.read_text()) if PUBLISHED.exists() else {}
    table = published.get("figures", {}).get("policies", {})
    return {
        run.name: table.get(run.case.name, {}).get(run.policy, {}).get("cpu_seconds")
        for run in runs
    }


def tabled(
    runs: Iterable[Run], figures: Mapping[str, Figures]
) -> dict[str, dict[str, dict[str, float]]]:
    """The means over the seeds by trace and policy."""
    rows: dict[str, dict[str, list[Figures]]] = {}
    for run in runs:
        row = rows.setdefault(run.case.name, {})
        row.setdefault(run.policy, []).append(figures[run.name])
    return {
        case: {
            policy: {
                **{
                    name: round(statistics.fmean(found[name] for found in draws), 3)
                    for name in (*FIGURES, *ASIDE)
                },
                "seeds": len(draws),
            }
            for policy, draws in row.items()
        }
        for case, row in rows.items()
    }


if __name__ == "__main__":
    sys.exit(main())
