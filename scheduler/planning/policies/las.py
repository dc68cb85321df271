"""Least attained service first, in two queues, on whole GPUs, with preemption at the end of epochs.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019:
discretised two-dimensional LAS. A job's service is the number of its GPUs times the time that it
has had them. Below a threshold it is in the first queue, above it in the second; within a queue,
first come first served, so that similar jobs do not take turns. Jobs are considered in this order,
and each job that fits into what is left gets its GPUs. The threshold of 18,000 GPU-seconds is that
of the reimplementation in Lucid's artifact (ASPLOS 2023). Starving jobs are not promoted (the
paper's PROMOTEKNOB), as in the experiments there.

The paper's placement keeps together only the gangs of models with a skewed distribution of tensor
sizes, and profiles them for it. Tensor sizes are not known here: all gangs are kept together if
that is possible, and spread if not.

It knows of a job: how many GPUs it asks for, and how long it has had them; not how long it will
take.
"""

from __future__ import annotations

from scheduler.core.model import Job, JobId, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.core.runs import is_running
from scheduler.planning.policies.whole_gpus import Round

THRESHOLD_GPU_SECONDS = 18_000.0
_ROUNDING = 1e-3


def las(rules: Rules) -> Policy:
    def plan(view: View, now: Time) -> Plan:
        round = Round(view, now, rules, preempts=True)

        def order(job: Job) -> tuple[int, bool, Time, JobId]:
            served = served_gpu_seconds(job, round.gpus_wanted(job) or 0, now)
            demoted = served >= THRESHOLD_GPU_SECONDS - _ROUNDING
            return -job.priority, demoted, job.submitted_at, job.id

        for job in sorted(round.candidates, key=order):
            if not round.give(job):
                round.refused.append(job)
        return round.plan(_next_demotion(round) if round.refused else None)

    return plan


def served_gpu_seconds(job: Job, gpus: int, now: Time) -> float:
    current = now - job.run.started_at if job.run else 0.0
    return gpus * (job.ran_seconds + current)


def _next_demotion(round: Round) -> Time | None:
    moments = []
    for job in round.candidates:
        count = round.gpus_wanted(job)
        if is_running(job) and count:
            left = THRESHOLD_GPU_SECONDS - served_gpu_seconds(job, count, round.now)
            if left > _ROUNDING:
                moments.append(round.now + left / count)
    return min(moments, default=None)
