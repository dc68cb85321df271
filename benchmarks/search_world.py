"""A search in virtual time: cli/search.py itself, on the scheduler's own loop with its own rules.

Simulated are the cluster, whose jobs report what the training would have computed, and the calls
between them: a search hears of the end of a job at once, and not within a second. Each epoch takes
equally long, and so does each start.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from benchmarks.search_tasks import Axes, Curve
from cli.connection import Connection
from cli.search import Search
from cli.search_space import space_of
from scheduler.api import wire
from scheduler.api.status import status
from scheduler.core.fast_replace import replace
from scheduler.core.loop import Scheduler
from scheduler.core.model import (
    Gpu,
    Job,
    JobId,
    JobSpec,
    Launch,
    Node,
    Profile,
    Rules,
    RunKey,
    Submitted,
    Time,
)
from scheduler.core.ports import Step
from scheduler.planning.policies import POLICIES
from scheduler.v1 import scheduler_pb2 as pb
from simulator.traces.behaviour import SerialTruth, TraceJob
from simulator.trials.outcome import Tally
from simulator.trials.trace_world import TraceRun, TraceWorld
from simulator.trials.trial import NullStore

EPOCH_SECONDS = 60.0
MEMORY_MIB = 4000
USER = "ada"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a search is asked for, in the words of `run-scheduler`."""

    axes: Axes
    how: str
    epochs: int
    parallel: int
    rule: str = ""
    trials: int = 1000

    def spec(self, label: str) -> pb.JobSpec:
        return pb.JobSpec(
            name="trial",
            command=["train", *(f"--{key}={{{key}}}" for key, _ in self.axes)],
            labels=[pb.KeyValue(key="sweep", value=label)],
            gpus_min=1,
            gpus_max=1,
            memory_mib=MEMORY_MIB,
            disable_gpu_sharing=True,
            max_epochs=self.epochs,
            parallel=self.parallel,
            metric="val_loss",
            prune=self.rule,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to."""

    best: float
    jobs: int
    epochs: int
    epochs_spent: float  # GPU time, with that of starts


def searched(
    asked: Asked,
    label: str,
    curve: Callable[[Mapping[str, str]], Curve],
    goal: float,
    budget: float,
    start_epochs: float,
) -> Found:
    """Searches until a job has reported the goal, all trials have ended, or this much GPU time was
    spent: in epochs. A start takes as long as `start_epochs`."""
    world = SearchWorld(asked.parallel, curve, start_epochs * EPOCH_SECONDS)
    options = argparse.Namespace(search=asked.how, trials=asked.trials, output="json")
    search = Search(
        cast(Connection, world), asked.spec(label), (), label, space_of(asked.axes), options
    )
    search.advance()
    while world.live and world.best > goal and world.epochs_spent() < budget:
        if world.step():
            search.advance()
    epochs = sum(len(each) for each in world.scores.values())
    return Found(world.best, len(world.jobs), epochs, world.epochs_spent())


class SearchWorld(TraceWorld):
    """The cluster, and the calls of the search."""

    def __init__(
        self, gpus: int, curve: Callable[[Mapping[str, str]], Curve], start_seconds: float
    ) -> None:
        nodes = [Node("n", tuple(Gpu(f"gpu{k}", k, "t4", 16384) for k in range(gpus)))]
        super().__init__([], nodes, Tally(), start_seconds)
        rules = Rules(plan_every_seconds=0.0)
        store = NullStore(self._on_commit)
        self.scheduler = Scheduler(self, store, self, POLICIES["fifo"](rules), rules)
        self.read = lambda: self.scheduler.view
        self.jobs: dict[JobId, Job] = {}  # as last committed
        self.scores: dict[JobId, list[float]] = {}
        self.best = math.inf
        self._curve_of, self._curves = curve, dict[JobId, Curve]()
        self._launched: dict[RunKey, Time] = {}
        self._over_seconds = 0.0
        self._ended = 0

    @property
    def live(self) -> bool:
        return self._ended < len(self.jobs)

    def step(self) -> bool:
        """Returns whether a job has ended."""
        ended = self._ended
        self.scheduler.step()
        return self._ended > ended

    def epochs_spent(self) -> float:
        running = sum(self.now() - at for at in self._launched.values())
        return (self._over_seconds + running) / EPOCH_SECONDS

    # --- the calls of the search ----------------------------------------------------------------

    def submit(self, request: pb.SubmitRequest) -> pb.SubmitReply:
        job_id, spec = JobId(request.job_id), wire.spec(request.spec, USER)
        truth = SerialTruth(MEMORY_MIB, 1.0, EPOCH_SECONDS, 1.0)
        self._jobs[job_id] = TraceJob(self.now(), spec, truth)
        self._curves[job_id], self.scores[job_id] = self._curve_of(_values(spec)), []
        self.tally.record_submission(job_id, spec, self.now())
        self._mail.append(Submitted(job_id, spec))
        self.step()
        return pb.SubmitReply(job=self._message(job_id))

    def list_jobs(self, _: pb.ListJobsRequest) -> pb.ListJobsReply:
        return pb.ListJobsReply(jobs=[pb.Job(id=job_id) for job_id in self.jobs])

    def get_job(self, job: str) -> pb.GetJobReply:
        return pb.GetJobReply(job=self._message(JobId(job)))

    def _message(self, job_id: JobId) -> pb.Job:
        job = self.jobs[job_id]
        message = wire.job_message(job, status(job, self.scheduler.view, None, math.inf))
        scores = enumerate(self.scores[job_id], 1)
        message.scores.extend(wire.score_messages(scores))
        return message

    # --- the cluster ----------------------------------------------------------------------------

    def _on_commit(self, step: Step) -> None:
        for job_id in step.touched:
            self.jobs[job_id] = job = step.after.jobs[job_id]
            self._ended += job.outcome is not None and job_id in step.before.jobs

    def _launch(self, launch: Launch) -> None:
        super()._launch(launch)
        self._launched[launch.job_id, launch.attempt] = self.now()

    def _stop_training(self, run: TraceRun) -> None:
        super()._stop_training(run)
        self._over_seconds += self.now() - self._launched.pop(run.key, self.now())

    def _profile(self, run: TraceRun) -> Profile:
        job_id, _ = run.key
        score = wire.score(self._curves[job_id][run.epoch - 1])
        self.scores[job_id].append(score)
        self.best = min(self.best, score)
        return replace(super()._profile(run), score=score)


def _values(spec: JobSpec) -> Mapping[str, str]:
    """As the training gets them."""
    words = (word.removeprefix("--").partition("=") for word in spec.command[1:])
    return {key: value for key, _, value in words}
