"""What each policy makes of measured and published traces, in the daemon's own loop.

`python -m benchmarks.policies --json --data DIR`.
Each trace with each policy: mean, median and 99th percentile of the completion times and the
makespan, all in hours; the share of GPUs in use; restarts for each job. Restarts cost 20 s for all.
Philly's jobs have their models drawn from Lucid's tables, so they are run with `--seeds` draws, and
the mean of each figure is printed. `--only TEXT` runs the traces with this in their name,
`--policies A,B` only these. With `--output FILE` the table is written as it gets on.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import options, show
from scheduler.model import Rules
from scheduler.policies import NAMES
from simulator.simulate import cluster
from simulator.study import Task, studied
from simulator.trace import load
from simulator.trial import sorted_out

FIGURES = ("mean_h", "median_h", "p99_h", "makespan_h", "utilisation", "restarts_per_job")
T4 = "16x4x16384:t4"
MIXED = "6x4x16384:t4,3x8x11264:rtx,2x8x40960:a100"
P100 = "8x4x16384:p100"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    trace: str
    cluster: str
    plan_every_seconds: float
    drawn: bool = False  # whether its jobs depend on the seed
    long: bool = False  # left out unless it is asked for by name


CASES = (
    *(Case(f"sia-{n}-t4", f"sia/workload-{n}.csv", T4, 60.0) for n in range(1, 5)),
    *(Case(f"sia-{n}-mixed", f"sia/workload-{n}.csv", MIXED, 60.0) for n in range(1, 5)),
    Case("gavel-fairness", "gavel/max_min_fairness.trace", P100, 60.0),
    Case("gavel-makespan", "gavel/minimize_makespan.trace", P100, 60.0),
    Case("shockwave", "shockwave/120.trace", P100, 60.0),
    Case("philly-vc", "philly/vc-ee9e8c.csv", "16x8x16384:t4", 300.0, drawn=True),
    Case("philly-week", "philly/week-2017-10-09.csv", "56x8x16384:t4", 300.0, True, True),
)


def main() -> None:
    given = options(
        __doc__, data="../shared/data", seeds=1, only="", policies=",".join(NAMES), output=""
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in CASES:
        if given.only in case.name if given.only else not case.long:
            found[case.name] = _of(case, Path(given.data), given.seeds, given.policies.split(","))
            if given.output:
                Path(given.output).write_text(json.dumps(found, indent=1) + "\n")
    show(**{name: json.dumps(table) for name, table in found.items()})


def _of(case: Case, data: Path, seeds: int, policies: Sequence[str]) -> dict[str, dict[str, float]]:
    rules = Rules(plan_every_seconds=case.plan_every_seconds)
    nodes = cluster(case.cluster)
    tasks = []
    for seed in range(1, 1 + (seeds if case.drawn else 1)):
        jobs = load(data / "traces" / case.trace, data=data, seed=seed)
        _, possible = sorted_out(jobs, nodes, rules)
        tasks += [Task(policy, seed, possible, nodes, rules, 20.0) for policy in policies]
    entries = studied(tasks, 2, lambda task, share: None)
    table = {}
    for policy in policies:
        summaries = [e.result.summary() for e in entries if e.policy == policy]
        table[policy] = {
            name: round(statistics.mean(s[name] for s in summaries), 3) for name in FIGURES
        }
        line = " ".join(f"{name} {value}" for name, value in table[policy].items())
        sys.stderr.write(f"{case.name} {policy}: {line}\n")
    return table


if __name__ == "__main__":
    main()
