"""Small traces for tests: jobs with a truth in one line, and a policy with fixed placements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.core.memory import need_mib, usable_gpus
from scheduler.core.model import Gpu, GpuKey, JobSpec, Node, Plan, Rules, Share, Time, View
from scheduler.core.ports import Policy
from simulator.traces.behaviour import TraceJob, Truth
from simulator.trials.trial import Trial

RULES = Rules(plan_every_seconds=0.0)


@dataclass(frozen=True)
class Plain:
    """Perfect scaling, and one speed beside any neighbour; it runs only on GPUs of `types`."""

    seconds: float = 100.0
    speed: float = 0.5
    memory_mib: int = 1000
    gpu_util: float = 0.7
    types: tuple[str, ...] = ("t4", "a100")

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.seconds / count if type in self.types else math.inf

    def speed_beside(self, other: Truth, type: str) -> float:
        return self.speed


def job(
    name: str,
    at: float = 0.0,
    epochs: int = 2,
    gpus: int = 1,
    truth: Plain = Plain(),
    **fields: Any,  # of JobSpec
) -> TraceJob:
    wish: dict[str, Any] = {"memory_mib": truth.memory_mib, "gpus_min": gpus, "gpus_max": gpus}
    spec = JobSpec(name, "ann", max_epochs=epochs, training_set_size=1000, **{**wish, **fields})
    return TraceJob(at, spec, truth)


def nodes(*gpus: int, type: str = "t4", memory_mib: int = 16384) -> list[Node]:
    return [
        Node(f"n{n}", tuple(Gpu(f"gpu{i}", i, type, memory_mib) for i in range(count)))
        for n, count in enumerate(gpus)
    ]


def scripted_policy(
    where: Mapping[str, Sequence[GpuKey]], away: Mapping[str, tuple[Time, Time]] | None = None
) -> Policy:
    """Each job runs at the placement given for its name, but not during its span in `away`."""
    spans = away or {}
    moments = sorted(at for span in spans.values() for at in span)

    def plan(view: View, now: Time) -> Plan:
        known = usable_gpus(view.nodes)
        gone = {name for name, (since, until) in spans.items() if since <= now < until}
        placements = {
            job.id: tuple(Share(*key, need_mib(job, known[key], RULES)) for key in keys)
            for job in view.jobs.values()
            if job.spec.name not in gone and (keys := where.get(job.spec.name))
        }
        return Plan(placements, replan_at=next((at for at in moments if at > now), None))

    return plan


def trial(jobs: Sequence[TraceJob], policy: Policy, *gpus: int, **options: Any) -> Trial:
    """A trial with a plan at each step and exact moments, unless `options` (of Trial) change it."""
    options = {"gather_seconds": 0.0, **options}
    return Trial(jobs, nodes(*(gpus or (1,))), policy, options.pop("rules", RULES), **options)
