"""First come, first served, on whole GPUs: the usual queue of a GPU cluster.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
(Philly), ATC 2019. As there, a job keeps the GPUs it asked for until it ends, and gangs are put on
as few machines as possible. No job is preempted, and no job overtakes another: if the free GPUs are
not enough for the first job in the queue, they stay idle until they are. (Philly's queues were per
virtual cluster, and out of order where that delayed no job; its locality constraints were relaxed
with time, ours from the start.)

It knows of a job: its priority, its time of submission, how many GPUs and how much memory it asks
for.
"""

from __future__ import annotations

from scheduler.core.model import Job, JobId, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.planning.policies.whole_gpus import Round


def fifo(rules: Rules) -> Policy:
    def plan(view: View, now: Time) -> Plan:
        round = Round(view, now, rules, in_turn=True)
        blocked = False
        for job in sorted(round.candidates, key=_order):
            if (blocked and job.spec.gpus_max) or not round.give(job):
                round.refused.append(job)
                # A job that needs more than the cluster has does not hold up the others.
                blocked = blocked or round.gpus_wanted(job) is not None
        return round.plan()

    return plan


def _order(job: Job) -> tuple[int, Time, JobId]:
    return -job.priority, job.submitted_at, job.id
