"""The shortest remaining time first, on whole GPUs, with preemption at the end of epochs.

Source: Schrage, "A Proof of the Optimality of the Shortest Remaining Processing Time Discipline",
Operations Research 16(3), 1968: optimal for the mean completion time on one machine if preemption
loses nothing. For gangs it is a heuristic, as used for comparison in the papers on Tiresias (NSDI
2019) and Lucid (ASPLOS 2023): jobs are considered by their remaining time, and each job that fits
into what is left gets its GPUs. Large gangs may starve.

It knows of a job: its remaining time, that is, its remaining epochs times the duration of an epoch
so far. Before the first epoch ends, this is the user's estimate. A job of which nothing is known
comes first, until an epoch has been measured. (The papers' SRTF is told the true length of each
job.)
"""

from __future__ import annotations

from scheduler.core.model import Job, JobId, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.planning.policies.whole_gpus import Round


def srtf(rules: Rules) -> Policy:
    def plan(view: View, now: Time) -> Plan:
        round = Round(view, now, rules, preempts=True)
        for job in sorted(round.candidates, key=_order):
            if not round.give(job):
                round.refused.append(job)
        return round.plan()

    return plan


def _order(job: Job) -> tuple[int, float, Time, JobId]:
    return -job.priority, remaining_seconds(job), job.submitted_at, job.id


def remaining_seconds(job: Job) -> float:
    """The remaining seconds if the job goes on, or runs again, as it last did. 0: unknown."""
    return (job.max_epochs - job.epochs_done) * epoch_seconds(job)


def epoch_seconds(job: Job) -> float:
    if not job.measured:
        return job.spec.hours_estimate * 3600.0 / job.spec.max_epochs
    here = [m for m in job.measured if job.run and m.placement == job.run.placement]
    return (here or job.measured)[-1].seconds
