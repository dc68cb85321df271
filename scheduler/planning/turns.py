"""Which jobs of a sweep may start, if only so many of them may run at once. Pure.

A policy does not see the others: what it would give to them it gives to jobs that may start.
(adopt.py starts no more of them either, whatever a plan says.)
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.core.fast_replace import replace
from scheduler.core.model import Job, JobId, Plan, Reason, Time, View, Waiting
from scheduler.core.ports import Policy
from scheduler.core.reason_text import first_named
from scheduler.core.sweeps import sweep_of
from scheduler.planning.reasons import blocked_reason


def in_turn(policy: Policy, view: View, now: Time) -> Plan:
    """The policy's plan for the jobs that may start."""
    later = later_jobs(view, now)
    if not later:
        return policy(view, now)
    seen = {id: job for id, job in view.jobs.items() if id not in later}
    plan = policy(replace(view, jobs=seen), now) if seen else Plan()
    return replace(plan, why={**plan.why, **later}, queue=(*plan.queue, *later))


def later_jobs(view: View, now: Time) -> Mapping[JobId, Reason]:
    """The waiting jobs whose turn comes when others of their sweep have ended, in their order, with
    the reason. Those that have run before come first."""
    limited = [job for job in view.jobs.values() if job.spec.parallel and job.waiting]
    if not limited:
        return {}
    first = {name: list[str]() for name in {sweep_of(job.spec) for job in limited}}
    for job in view.jobs.values():
        if job.run and (sweep := sweep_of(job.spec)) in first:
            first[sweep].append(job.spec.name)
    later: dict[JobId, Reason] = {}
    for job in sorted(limited, key=_order):
        come_first = first[sweep_of(job.spec)]
        if blocked_reason(job, view, now):
            continue
        if len(come_first) < job.spec.parallel:
            come_first.append(job.spec.name)
        else:
            names, more = first_named(come_first)
            later[job.id] = Reason(
                Waiting.PARALLEL, parallel=job.spec.parallel, jobs=names, jobs_more=more
            )
    return later


def _order(job: Job) -> tuple[bool, int, Time, JobId]:
    return job.attempts == 0, -job.priority, job.submitted_at, job.id
