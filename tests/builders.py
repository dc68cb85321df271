"""Builders for tests of the core: GPUs, jobs, runs, pods, views, and steps of `decide`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from scheduler.core.decide import Decision, decide
from scheduler.core.draft import Draft
from scheduler.core.evolve import evolve
from scheduler.core.invariants import check
from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    Event,
    Gpu,
    Job,
    JobId,
    JobSpec,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Profile,
    Rules,
    Run,
    RunKey,
    RunPhase,
    Share,
    Submitted,
    Time,
    View,
)
from scheduler.core.ports import Policy
from scheduler.core.reason_text import line
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from simulator.lives.training import pending_pods

RULES = Rules()
CAPACITY = 15872  # of a GPU made by `make_gpu`: 16384 minus the 512 that it reserves
NOW = 1000.0


def make_gpu(index: int = 0, memory_mib: int = 16384) -> Gpu:
    return Gpu(f"gpu{index}", index, "pretended", memory_mib, memory_mib // 32)


def node(gpus: int = 1, name: str = "n1", memory_mib: int = 16384, ready: bool = True) -> Node:
    return Node(name, tuple(make_gpu(i, memory_mib) for i in range(gpus)), ready=ready)


def share(memory_mib: int = CAPACITY, gpu: int = 0, node: str = "n1") -> Share:
    return Share(node, f"gpu{gpu}", memory_mib)


def spec(
    name: str,
    *,
    gpus: int | tuple[int, int] = 1,
    **fields: Any,  # any field of JobSpec
) -> JobSpec:
    least, most = (gpus, gpus) if isinstance(gpus, int) else gpus
    usual = {"user": "ann", "max_epochs": 10, "gpus_min": least, "gpus_max": most}
    return JobSpec(name=name, **{**usual, **fields})


def job(
    name: str,
    memory_mib: int = 0,
    *,
    gpus: int | tuple[int, int] = 1,
    shareable: bool = True,
    retries: int = 0,
    submitted_at: Time = 0.0,
    max_epochs: int = 10,
    **fields: Any,  # any field of Job
) -> Job:
    """A waiting job. Its id is its name."""
    wish = spec(
        name,
        gpus=gpus,
        memory_mib=memory_mib,
        shareable=shareable,
        retries=retries,
        max_epochs=max_epochs,
    )
    fields = {"max_epochs": max_epochs, "memory_mib": memory_mib, **fields}
    return Job(JobId(name), wish, submitted_at, **fields)


def with_run(
    waiting: Job, *shares: Share, phase: RunPhase = RunPhase.RUNNING, **fields: Any
) -> Job:
    """The job with a run on these shares, which has reported unless `fields` says otherwise."""
    attempt = waiting.attempts + 1
    values: dict[str, Any] = {  # of a Run's fields
        "started_at": 0.0,
        "phase_at": 0.0,
        "max_epochs": waiting.max_epochs,
        "epochs_before": waiting.epochs_done,
        "epoch_started": waiting.epochs_done - (phase is RunPhase.STARTING),
        "heard_at": None if phase is RunPhase.STARTING else 0.0,
    }
    if phase is RunPhase.STOPPING:
        values |= {"stop_at_epoch": waiting.epochs_done + 1, "stop_reason": "preempted for it"}
        values |= {"kill_at": NOW + 3600.0}
    run = Run(attempt=attempt, shares=shares, phase=phase, **{**values, **fields})
    return replace(waiting, attempts=attempt, run=run)


def pod(
    of: Job, state: PodState = PodState.RUNNING, *, attempt: int | None = None, **fields: Any
) -> Pod:
    """The pod of the job's run, or of an older attempt, as the cluster shows it."""
    shares = of.run.shares if of.run else ()
    return Pod(of.id, attempt or of.attempts, state, **{"shares": shares, **fields})


def view(
    *jobs: Job, nodes: Sequence[Node] = (), pods: Iterable[Pod] = (), at: Time | None = NOW
) -> View:
    """The cluster as observed at `at` (None: not yet), with its derived data computed, and nothing
    stale."""
    draft = Draft(View(), NOW, RULES)
    for one in jobs:
        draft.put(one)
    by_run: dict[RunKey, tuple[Pod, ...]] = {}
    for shown in pods:
        key = (shown.job_id, shown.attempt)
        by_run[key] = (*by_run.get(key, ()), shown)
    draft.observe(tuple(nodes) or (node(),), by_run)
    draft.observed_at, draft.stale = at, False
    return draft.build().view


def after(before: View, *events: Event, now: Time = NOW, rules: Rules = RULES) -> View:
    return evolve(before, events, now, rules).view


def observation(*pods: Pod, at: Time = NOW, nodes: Sequence[Node] = ()) -> Observed:
    return Observed(at, tuple(nodes) or (node(),), pods)


def epoch_ended(of: Job, epoch: int, memory_mib: int = 0, attempt: int = 0) -> EpochEnded:
    return EpochEnded(Profile(of.id, attempt or of.attempts, epoch, memory_mib=memory_mib))


class ScriptedCluster:
    """Steps of `decide`, one second apart, in a cluster that performs every action at once.

    Trainings in it do what a test lets them do, and nothing by themselves.
    """

    def __init__(self, *nodes: Node, rules: Rules = RULES, policy: Policy | None = None) -> None:
        self.rules, self.nodes = rules, nodes or (node(),)
        self.policy = policy or fifo_sharing(rules)
        self.now = NOW
        self.view = View()
        self.pods: dict[RunKey, list[Pod]] = {}  # one for each node

    def step(self, *events: Event) -> Decision:
        self.now += 1.0
        made = decide(self.view, events, self.now, self.policy, self.rules)
        check(self.view, made.view, made.touched)
        self.view = made.view
        for action in made.actions:
            key = (action.job_id, action.attempt)
            if isinstance(action, Launch):
                shown = [replace(pod, state=PodState.RUNNING) for pod in pending_pods(action)]
                self.pods.setdefault(key, shown)
            else:
                self.pods.pop(key, None)
        return made

    def look(self) -> Decision:
        pods = tuple(pod for run in self.pods.values() for pod in run)
        return self.step(Observed(self.now + 1.0, tuple(self.nodes), pods))

    def submit(self, name: str, memory_mib: int = 0, **fields: Any) -> JobId:  # of JobSpec
        self.step(Submitted(JobId(name), spec(name, memory_mib=memory_mib, **fields)))
        self.settle()
        return JobId(name)

    def settle(self) -> None:
        """Steps until every launched run is seen running and has reported."""
        self.look()
        for job_id, run in self._runs():
            if run.heard_at is None:
                self.step(EpochStarted(job_id, run.attempt, run.epochs_before))
        self.look()

    def end_epoch(self, name: str, memory_mib: int = 0) -> None:
        """One rank ends its epoch and asks to start the next one; it stops if told to."""
        job_id = JobId(name)
        run = self.run(name)
        epoch = self.view.jobs[job_id].epochs_done + 1
        self.step(EpochEnded(Profile(job_id, run.attempt, epoch, memory_mib=memory_mib)))
        self.step(EpochStarted(job_id, run.attempt, epoch))
        if self.run(name).told_to_stop:
            self.exit(name, 0)

    def exit(self, name: str, code: int = 0) -> None:
        key = (JobId(name), self.run(name).attempt)
        self.change(key, state=PodState.FAILED if code else PodState.SUCCEEDED, exit_code=code)
        self.look()
        self.settle()

    def change(self, key: RunKey, **fields: Any) -> None:  # of Pod
        """What the next observation will show of a run's pods."""
        self.pods[key] = [replace(pod, **fields) for pod in self.pods[key]]

    def run(self, name: str) -> Run:
        run = self.view.jobs[JobId(name)].run
        assert run, f"{name} does not run: {self.why(name)}"
        return run

    def running(self) -> set[str]:
        return {str(job_id) for job_id, _ in self._runs()}

    def why(self, name: str) -> str:
        reason = self.view.why.get(JobId(name))
        return line(reason) if reason else ""

    def _runs(self) -> list[tuple[JobId, Run]]:
        return [(job.id, job.run) for job in self.view.jobs.values() if job.run]
