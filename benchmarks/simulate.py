"""The speed of the simulator: a week of Philly, 12,751 jobs, in the daemon's own loop.

`python -m benchmarks.simulate --json --data DIR`.
There are 56 nodes of 8 GPUs, with a plan every five virtual minutes. CPU seconds do not include the
loading of the trace; `fifo_cpu_seconds` is the same with the policy `fifo`.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import measured, options, show
from scheduler.core.model import Rules
from scheduler.planning.policies import POLICIES
from simulator.flags import parse_cluster
from simulator.traces.loader import load
from simulator.trials.trial import Trial

PLAN_EVERY_SECONDS = 300.0


def main() -> None:
    given = options(__doc__, data=measured(), cluster="56x8x16384:t4", limit=0)
    trace = Path(given.data) / "traces" / "philly" / "week-2017-10-09.csv"
    jobs = load(trace, data=Path(given.data), seed=1)[: given.limit or None]
    rules = Rules(plan_every_seconds=PLAN_EVERY_SECONDS)
    cpu = {}
    for policy in ("gpu_sharing", "fifo"):
        trial = Trial(jobs, parse_cluster(given.cluster), POLICIES[policy](rules), rules)
        cpu[policy] = trial.run().summary()["cpu_seconds"]
    show(
        cpu_seconds=round(cpu["gpu_sharing"], 1),
        fifo_cpu_seconds=round(cpu["fifo"], 1),
        jobs_per_second=round(len(jobs) / cpu["gpu_sharing"]),
        jobs=len(jobs),
    )


if __name__ == "__main__":
    main()
