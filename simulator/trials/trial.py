"""Runs the daemon's own loop in the world of a trace under one policy, to the last job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from scheduler.core import admission
from scheduler.core.errors import Impossible
from scheduler.core.loop import Scheduler
from scheduler.core.memory import fewest_nodes, node_sizes, usable_gpus
from scheduler.core.model import (
    JobId,
    Node,
    Rules,
    View,
)
from scheduler.core.ports import Policy, Step
from simulator.traces.behaviour import TraceJob
from simulator.trials.outcome import Result, Tally
from simulator.trials.trace_world import TraceWorld, trace_job_id

IDLE_STEPS_MAX = 1000  # steps of the scheduler in a world where nothing else happens
GATHER_SECONDS_MAX = 4.0  # scheduler/core/learning.py learns nothing from later reports

Listener = Callable[[Step], None]


class NullStore:
    """Stores nothing, and passes each step to a listener."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def load(self) -> View:
        return View()

    def commit(self, step: Step) -> None:
        self.listener(step)


class Trial:
    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: Sequence[Node],
        policy: Policy,
        rules: Rules,
        *,
        restart_seconds: float = 20.0,
        gather_seconds: float | None = None,
        slowness: Mapping[str, float] | None = None,
        listener: Listener | None = None,
    ) -> None:
        """`gather_seconds`: None: a value so small that it hardly matters. `slowness`: of nodes."""
        self.refused, possible = split_by_possible(jobs, nodes, rules)
        self.jobs, self.nodes, self.restart_seconds = possible, nodes, restart_seconds
        self.gpus = sum(len(node.gpus) for node in nodes)
        self.listener = listener
        self.submitted, self.ended = len(possible), 0
        if gather_seconds is None:
            gather_seconds = min(rules.plan_every_seconds / 10, GATHER_SECONDS_MAX)
        self.tally = Tally()
        self.world = TraceWorld(
            possible, nodes, self.tally, restart_seconds, gather_seconds, slowness
        )
        store = NullStore(self._on_commit)
        self.scheduler = Scheduler(self.world, store, self.world, policy, rules)
        self.world.read = lambda: self.scheduler.view

    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Runs until the last job ends, or until the scheduler makes no more progress.

        `progress` is called at times with the share of the jobs that have ended.
        """
        began, steps, in_vain = time.process_time(), 0, 0
        while self.ended < self.submitted and in_vain < IDLE_STEPS_MAX:
            self.scheduler.step()
            steps += 1
            in_vain = in_vain + 1 if self.world.is_idle else 0
            if progress and steps % 100 == 0:
                progress(self.ended / self.submitted)
        cpu_seconds = time.process_time() - began
        return self.tally.build_result(
            self.gpus, self.refused, steps, cpu_seconds, self._alone_seconds()
        )

    def _alone_seconds(self) -> dict[JobId, float]:
        """From submission to end, if the job had its best placement at once and alone."""
        fitting = _FittingNodes(self.nodes)
        return {
            trace_job_id(number): self.restart_seconds
            + job.spec.max_epochs
            * job.course.mean_factor(0, job.spec.max_epochs)
            * best_epoch_seconds(job, fitting.sizes(job.truth.memory_mib))
            for number, job in enumerate(self.jobs)
        }

    def _on_commit(self, step: Step) -> None:
        for job_id in step.touched:
            outcome = step.after.jobs[job_id].outcome
            if outcome and self.tally.jobs[job_id].outcome is None:
                self.tally.record_outcome(job_id, outcome, step.at)
                self.ended += 1
        if self.listener:
            self.listener(step)


def split_by_possible(
    jobs: Sequence[TraceJob], nodes: Sequence[Node], rules: Rules
) -> tuple[list[str], list[TraceJob]]:
    """The reasons for refusing the jobs that could never run here, and the other jobs."""
    refused, possible = [], []
    fitting = _FittingNodes(nodes)
    for number, job in enumerate(jobs, 1):
        try:
            admission.check_possible(job.spec, nodes, rules)
            _require_possible(job, nodes, fitting.sizes(job.truth.memory_mib))
        except Impossible as why:
            refused.append(f"job {number} ({job.spec.name}): {why}")
        else:
            possible.append(job)
    return refused, possible


class _FittingNodes:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._gpus = usable_gpus(nodes)
        self._sizes: dict[int, dict[str, list[int]]] = {}

    def sizes(self, mib: int) -> dict[str, list[int]]:
        """By type, how many GPUs of at least this memory each node has."""
        if mib not in self._sizes:
            fit = {key: gpu for key, gpu in self._gpus.items() if gpu.memory_mib >= mib}
            self._sizes[mib] = node_sizes(fit)
        return self._sizes[mib]


def _require_possible(
    job: TraceJob, nodes: Sequence[Node], sizes: Mapping[str, Sequence[int]]
) -> None:
    """Raises Impossible if the job's true needs do not fit. `sizes`: by type, how many GPUs with
    enough memory each node has."""
    if job.spec.gpus_max == 0:
        return
    if not sizes:
        largest = max(gpu.memory_mib for node in nodes for gpu in node.gpus)
        takes = f"takes {job.truth.memory_mib:,} MiB of each GPU"
        raise Impossible(f"{takes}; the largest has {largest:,} MiB")
    if all(map(math.isinf, _epoch_times(job, sizes))):
        raise Impossible(f"cannot train on {' or '.join(sorted(sizes))}")


def best_epoch_seconds(job: TraceJob, sizes: Mapping[str, Sequence[int]]) -> float:
    """Alone on its best placement; `sizes`: see `_require_possible`."""
    return min(_epoch_times(job, sizes), default=math.inf)


def _epoch_times(job: TraceJob, sizes: Mapping[str, Sequence[int]]) -> Iterator[float]:
    """Seconds of an epoch for each possible placement."""
    if job.spec.gpus_max == 0:
        yield job.truth.epoch_seconds("", 0, 0)
        return
    for type, on_nodes in sizes.items():
        for count in range(job.spec.gpus_min, min(job.spec.gpus_max, sum(on_nodes)) + 1):
            yield job.truth.epoch_seconds(type, count, fewest_nodes(on_nodes, count))
