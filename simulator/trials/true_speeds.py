"""The true speeds of the jobs of a trial, for a policy: what learning is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.core.model import Job, Placement
from scheduler.planning.optimizer.speed_sources import SpeedSource, given_speeds
from simulator.traces.behaviour import TraceJob
from simulator.trials.trace_world import trace_job_id

SECONDS_MOST = 1e9  # of an epoch, for a job that cannot run there


def true_speeds(jobs: Sequence[TraceJob], slowness: Mapping[str, float]) -> SpeedSource:
    """How long the epochs that each job has left take on any GPUs (their mean), and how fast it is
    beside any other job: known as soon as the job is submitted. Of jobs still to come it says
    nothing, nor of slow first minutes of a run.

    `jobs`: all jobs of the trial. `slowness`: of types of GPU: how many times longer everything
    takes there than the truths of the jobs say.
    """
    traced = {trace_job_id(number): job for number, job in enumerate(jobs)}

    def seconds(job: Job, placement: Placement) -> float:
        true = traced[job.id]
        factor = true.course.mean_factor(job.epochs_done, job.max_epochs)
        factor *= slowness.get(placement.type, 1.0)
        alone = true.truth.epoch_seconds(placement.type, placement.gpus, placement.nodes)
        return min(SECONDS_MOST, factor * alone)

    def beside(job: Job, other: Job, type: str) -> float:
        return traced[job.id].truth.speed_beside(traced[other.id].truth, type)

    return given_speeds(seconds, beside=beside)
