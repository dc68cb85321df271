"""Compares the simulator with an independent one: FIFO, SRTF and LAS on every trace, and
tests/oracle.py, which goes from event to event without the loop, the policies and their placement.

Both plan when something has happened, but at most once in `--every` seconds, and get all events at
once. There is one type of GPU. Traces are cut after `--jobs` jobs (0: not cut). Two processes run
at a time.

  TRACE.POLICY   mean completion time relative to the oracle's, minus 1
  worst          the largest absolute value of these: must be at most 0.005
  cpu_seconds    in total
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from benchmarks import figures
from scheduler.core.model import Gpu, Node, Rules
from scheduler.planning.policies import POLICIES
from simulator.traces.loader import TraceError, load
from simulator.trials.trial import Trial, split_by_possible
from tests.oracle import Oracle

CARD_MIB = 16_384


@dataclass(frozen=True, slots=True)
class Case:
    trace: str
    type: str
    nodes: int
    gpus: int  # of a node

    def cluster(self) -> list[Node]:
        gpus = tuple(Gpu(f"gpu{i}", i, self.type, CARD_MIB) for i in range(self.gpus))
        return [Node(f"n{number:02}", gpus) for number in range(self.nodes)]


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


@dataclass(frozen=True, slots=True)
class Held:
    """A trace under one policy, in the simulator and in the oracle."""

    case: Case
    policy: str
    data: Path
    jobs: int
    every: float

    @property
    def name(self) -> str:
        return f"{Path(self.case.trace).stem}.{self.policy}"

    def against(self) -> tuple[float, float]:
        """The relative difference, and the CPU seconds of both."""
        began = process_time()
        jobs = load(self.data / "traces" / self.case.trace, data=self.data, seed=0)
        rules = Rules(plan_every_seconds=self.every)
        _, possible = split_by_possible(jobs[: self.jobs or None], self.case.cluster(), rules)
        plan = POLICIES[self.policy](rules)
        trial = Trial(possible, self.case.cluster(), plan, rules, gather_seconds=0.0)
        completions = trial.run().completion_times()
        mean = sum(completions) / len(completions)
        sizes = [self.case.gpus] * self.case.nodes
        oracle = Oracle(possible, sizes, self.case.type, self.policy, self.every)
        return mean / oracle.mean_seconds() - 1.0, process_time() - began


def main() -> int:
    options = figures.options(__doc__, data=figures.measured(), jobs=0, every=300.0)
    all_held = {
        held.name: held
        for case in CASES
        for policy in ("fifo", "srtf", "las")
        for held in [Held(case, policy, Path(options.data), options.jobs, options.every)]
    }
    longest_first = {name: held.against for name, held in reversed(all_held.items())}
    played = figures.in_processes(
        longest_first, dict.fromkeys(all_held), lambda result: f"{result[0]:+.4%}"
    )
    found: dict[str, float] = {}
    seconds = 0.0
    try:
        for name, (off, spent) in played:
            found[name], seconds = round(off, 6), seconds + spent
    except TraceError as error:
        sys.stderr.write(f"oracle: {error}\n")
        return 2
    worst = max(map(abs, found.values()))
    in_order = {name: found[name] for name in all_held}
    figures.show(**in_order, worst=worst, cpu_seconds=round(seconds, 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
