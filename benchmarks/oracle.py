"""How far the simulator is from an independent one: FIFO, SRTF and LAS on every trace, against
tests/oracle.py, which goes from event to event without the loop, the policies and their placing.

Both plan when something has happened, but once in `--every` seconds at most, and hear of everything
at once. On one type of GPU. Traces are cut after `--jobs` jobs (0: not at all).

  TRACE.POLICY   mean completion time of the simulator by that of the oracle, less 1
  worst          the largest of these, without its sign: to be at most 0.005
  cpu_seconds    of all of it
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import figures
from scheduler.model import Gpu, Node, Rules
from scheduler.policies import POLICIES
from simulator.trace import load
from simulator.trial import Trial, sorted_out
from tests.oracle import Oracle

CARD_MIB = 16_384


@dataclass(frozen=True, slots=True)
class Case:
    trace: str
    type: str
    nodes: int
    gpus: int  # of a node

    def cluster(self) -> list[Node]:
        cards = tuple(Gpu(f"gpu{i}", i, self.type, CARD_MIB) for i in range(self.gpus))
        return [Node(f"n{number:02}", cards) for number in range(self.nodes)]


CASES = (
    *(Case(f"sia/workload-{number}.csv", "t4", 16, 4) for number in (1, 2, 3, 4)),
    Case("philly/vc-103959.csv", "t4", 12, 8),
    Case("philly/vc-ee9e8c.csv", "t4", 12, 8),
    Case("philly/week-2017-10-09.csv", "t4", 56, 8),
    Case("gavel/max_min_fairness.trace", "p100", 4, 8),
    Case("gavel/minimize_makespan.trace", "p100", 4, 8),
    Case("shockwave/120.trace", "p100", 4, 8),
    Case("alibaba/openb_pod_list_gpushare40.csv", "p100", 100, 8),
)


def main() -> None:
    options = figures.options(
        __doc__,
        data=os.environ.get("EPOCH_SCHEDULER_DATA") or "../shared/data",
        jobs=0,
        every=300.0,
    )
    began = time.process_time()
    found = {}
    for case in CASES:
        jobs = load(Path(options.data, "traces", case.trace), data=Path(options.data), seed=0)
        rules = Rules(plan_every_seconds=options.every)
        _, possible = sorted_out(jobs[: options.jobs or None], case.cluster(), rules)
        for policy in ("fifo", "srtf", "las"):
            plan = POLICIES[policy](rules)
            trial = Trial(possible, case.cluster(), plan, rules, gather_seconds=0.0)
            completions = trial.run().completions()
            mean = sum(completions) / len(completions)
            sizes = [case.gpus] * case.nodes
            oracle = Oracle(possible, sizes, case.type, policy, options.every).mean_seconds()
            found[f"{Path(case.trace).stem}.{policy}"] = round(mean / oracle - 1.0, 6)
    worst = max(map(abs, found.values()))
    seconds = round(time.process_time() - began, 1)
    figures.show(**found, worst=worst, cpu_seconds=seconds)


if __name__ == "__main__":
    main()
