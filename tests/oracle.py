"""A second implementation of FIFO, SRTF and LAS, event by event, to compare the simulator with. It
shares only the trace with the simulator, and nothing with the policies and their placement. For
clusters of one type of GPU."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from simulator.traces.behaviour import TraceJob

LAS_THRESHOLD, ROUNDING = 18_000.0, 1e-3  # GPU-seconds
RESTART_SECONDS = 20.0  # from a launch to its first epoch


@dataclass(eq=False)
class _Job:
    number: int
    trace: TraceJob
    count: int
    epochs: int
    state: str = "coming"  # waiting, starting, running, leaving, over
    nodes: dict[int, int] = field(default_factory=dict)  # number of GPUs by node
    done: int = 0  # epochs
    ran: float = 0.0  # seconds, in runs that are over
    launched_at: float = 0.0
    measured: dict[int, float] = field(
        default_factory=dict
    )  # seconds per epoch, by number of nodes
    last_known: float = 0.0

    def may_stop(self) -> bool:
        """Not before it has begun, and not in its last epoch, which is never interrupted."""
        return self.state == "running" and self.done + 1 < self.epochs - 1


class Oracle:
    """`policy`: fifo, srtf or las. Plans after each event, but at most once in `every` seconds."""

    def __init__(
        self, jobs: Sequence[TraceJob], nodes: Sequence[int], type: str, policy: str, every: float
    ) -> None:
        self.sizes, self.type, self.policy, self.every = list(nodes), type, policy, every
        self.jobs = [
            _Job(number, job, min(job.spec.gpus_max, sum(nodes)), job.spec.max_epochs)
            for number, job in enumerate(jobs)
        ]
        self.now, self.planned_at, self.plan_at, self.seconds = 0.0, -inf, 0.0, 0.0
        self.heap = [(job.trace.submit_at, job.number, "come") for job in self.jobs]

    def mean_seconds(self) -> float:
        """The mean completion time."""
        while self.heap or self.plan_at < inf:
            self.now = min(self.heap[0][0] if self.heap else inf, self.plan_at)
            while self.heap and self.heap[0][0] <= self.now:
                _, number, what = heapq.heappop(self.heap)
                self._happen(self.jobs[number], what)
            if self.plan_at <= self.now:
                self.planned_at, self.plan_at = self.now, inf
                self._plan()
        assert all(job.state == "over" for job in self.jobs)
        return self.seconds / len(self.jobs)

    def _happen(self, job: _Job, what: str) -> None:
        if what == "epoch":
            job.done += 1
            job.measured[len(job.nodes)] = job.last_known = self._epoch_seconds(job)
            if job.done == job.epochs or job.state == "leaving":
                job.state = "over" if job.done == job.epochs else "waiting"
                job.ran += self.now - job.launched_at
                job.nodes = {}
                self.seconds += self.now - job.trace.submit_at if job.state == "over" else 0.0
        else:
            job.state = "running" if what == "begin" else "waiting"
        if job.state == "running":
            moment = self.now + self._epoch_seconds(job)
            heapq.heappush(self.heap, (moment, job.number, "epoch"))
        if job.state != "running" or what == "begin":
            self._plan_from(self.now)

    def _plan_from(self, moment: float) -> None:
        self.plan_at = min(self.plan_at, max(moment, self.planned_at + self.every))

    def _epoch_seconds(self, job: _Job) -> float:
        return job.trace.truth.epoch_seconds(self.type, job.count, len(job.nodes))

    def _plan(self) -> None:
        preempts = self.policy != "fifo"
        asking, left = list[_Job](), sum(self.sizes)
        for job in self.jobs:
            if job.state in ("waiting", "leaving") or (preempts and job.may_stop()):
                asking.append(job)
            elif job.nodes:
                left -= job.count
        asking.sort(key=self._order)
        coming, refused = list[_Job](), list[_Job]()
        for job in asking:
            if job.count > left or (refused and not preempts):
                refused.append(job)
                job.state = "leaving" if job.nodes else "waiting"
            else:
                left -= job.count
                coming += [job] * (job.state != "running")
        self._place(sorted(coming, key=lambda job: (-job.count, job.state == "leaving")))
        if refused and self.policy == "las":
            runs = [(job, LAS_THRESHOLD - self._served(job)) for job in asking if job.may_stop()]
            moments = [self.now + more / job.count for job, more in runs if more > ROUNDING]
            self._plan_from(min(moments, default=inf))

    def _order(self, job: _Job) -> tuple[float, float, int]:
        guess = job.trace.spec.hours_estimate * 3600.0 / job.epochs
        each = job.measured.get(len(job.nodes), job.last_known) if job.measured else guess
        demoted = self._served(job) >= LAS_THRESHOLD - ROUNDING
        ranks = {"fifo": 0.0, "srtf": (job.epochs - job.done) * each, "las": float(demoted)}
        return ranks[self.policy], job.trace.submit_at, job.number

    def _served(self, job: _Job) -> float:
        return job.count * (job.ran + (self.now - job.launched_at if job.nodes else 0.0))

    def _place(self, coming: Sequence[_Job]) -> None:
        """Waiting jobs start where GPUs are idle; otherwise GPUs that are being vacated are kept
        for them."""
        idle, soon = list(self.sizes), list(self.sizes)
        for job in self.jobs:
            for node, count in job.nodes.items():
                idle[node] -= count
                soon[node] -= count * (job.state != "leaving")
        for job in coming:
            where, now = self._spread(job, soon), self._spread(job, idle)
            if job.state == "waiting" and now and len(now) <= len(where):
                job.state, job.launched_at, job.nodes, where = "starting", self.now, now, now
                heapq.heappush(self.heap, (self.now + RESTART_SECONDS, job.number, "begin"))
            for node, count in where.items():
                # A job that moves between nodes first takes GPUs there that other jobs leave.
                kept = max(0, count - soon[node] + idle[node]) if job.state == "leaving" else count
                idle[node] -= min(kept, idle[node])
                soon[node] -= count

    def _spread(self, job: _Job, free: Sequence[int]) -> dict[int, int]:
        """The node with the least room to spare; otherwise the emptiest ones, and the same for the
        rest."""
        parts, left = dict[int, int](), job.count
        while left:
            others = [node for node, room in enumerate(free) if room and node not in parts]
            if not others:
                return {}
            enough = [node for node in others if free[node] >= left]
            if job.state == "leaving" and not parts:
                enough = [node for node in enough if node in job.nodes] or enough
            node = min(enough or others, key=lambda n: free[n] if enough else -free[n])
            parts[node] = min(left, free[node])
            left -= parts[node]
        return parts
