"""Max-min fair shares of every type of GPU, in time slices, on whole GPUs.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads" (Gavel), OSDI 2020: its heterogeneity-aware least-attained-service policy (§4.1) in the
round-based mechanism of §5. A linear program finds X[j, t], the part of its time that job j should
spend on type t, such that the least of

    pace_j(X) / pace_j(an equal part of each type) x GPUs_j

is as large as possible, each job is in at most one place at a time, and no type is overbooked. Each
round takes six minutes. Jobs are considered by X[j, t] / (the job's part of the time that all these
jobs had on t so far), the highest first, and each job that fits into what is left gets its GPUs.

Differences here: a slice ends with the epoch in which the round ends, because no run is preempted
in mid-epoch; where epochs are much longer than rounds, slices are too. A job that is chosen again
keeps its GPUs. What a job had of each type is its running time, divided in the proportion of its
measured epochs. Jobs that come within a round only take idle GPUs, and a run that was launched
within it keeps its GPUs.

It knows of a job: the seconds per epoch on each type (from speed.py; the paper has its own
estimator), how many GPUs it asks for, and how long it has run; not how long it will take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from scheduler.core.memory import fewest_nodes
from scheduler.core.model import Job, Placement, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.core.runs import is_running, may_move
from scheduler.estimates.arrays import Floats
from scheduler.estimates.speed import estimate
from scheduler.planning.policies.whole_gpus import Round

ROUND_SECONDS = 360.0
NEW_SECONDS = ROUND_SECONDS / 2  # what a new job is assumed to have had of each type


def gavel(rules: Rules) -> Policy:
    def plan(view: View, now: Time) -> Plan:
        round = Round(view, now, rules, preempts=True)
        began_at = now - now % ROUND_SECONDS
        sliced = []
        for job in round.candidates:
            fresh = is_running(job) and job.run is not None and job.run.started_at >= began_at
            if round.gpus_wanted(job) and not fresh:
                sliced.append(job)
            elif not round.give(job):
                round.refused.append(job)
        _slice(sliced, round, began_at)
        return round.plan(began_at + ROUND_SECONDS if round.refused else None)

    return plan


def _slice(jobs: Sequence[Job], round: Round, began_at: Time) -> None:
    """Gives this round's GPUs to the jobs furthest behind their part of them."""
    types = sorted(type for type, left in round.left.items() if left > 0)
    entitled = _entitled(jobs, types, round)
    had = np.array(
        [[_attained_seconds(job, type, types, round, began_at) for type in types] for job in jobs]
    )
    behind = entitled / (had / had.sum(axis=0)) if jobs else entitled
    turns = sorted(
        (-job.priority, job.submitted_at >= began_at, -behind[row, column], row, type)
        for row, job in enumerate(jobs)
        for column, type in enumerate(types)
        if _may_be_on(job, type, round)
    )
    chosen = set[int]()
    for *_, row, type in turns:
        count = round.gpus_wanted(jobs[row]) or 0
        if row not in chosen and round.left[type] >= count:
            chosen.add(row)
            round.assign(jobs[row], type, count)
    left_over = [job for row, job in enumerate(jobs) if row not in chosen]
    round.refused += sorted(left_over, key=lambda job: (-job.priority, job.submitted_at))


def _may_be_on(job: Job, type: str, round: Round) -> bool:
    if is_running(job) and not may_move(job):
        return type == round.type_of(job)
    return round.count_fitting(job).get(type, 0) >= (round.gpus_wanted(job) or 0)


def _entitled(jobs: Sequence[Job], types: Sequence[str], round: Round) -> Floats:
    """[jobs, types] the part of its time that each job should spend on each type."""
    if not jobs or not types:
        return np.zeros((len(jobs), len(types)))
    capacity = np.array([round.left[type] for type in types], float)
    scale = np.array([round.gpus_wanted(job) or 0 for job in jobs], float)
    if len(types) == 1:  # the program's solution, without solving it
        level = min(capacity[0] / len(jobs), scale.min())
        return np.asarray(level / scale[:, None])
    able = np.array([[_may_be_on(job, type, round) for type in types] for job in jobs])
    worth = able * _relative_pace(jobs, types, scale, capacity, round) * scale[:, None]
    return np.asarray(able * _fairest(worth, scale, capacity))


def _relative_pace(
    jobs: Sequence[Job], types: Sequence[str], scale: Floats, capacity: Floats, round: Round
) -> Floats:
    """[jobs, types] relative to its pace with an equal part of each type."""
    counts = sorted({int(count) for count in scale})
    configs = [
        Placement(type, count, max(1, fewest_nodes(round.node_sizes[type], count)))
        for type in types
        for count in counts
    ]
    seconds = estimate(jobs, round.view.kinds, configs)
    column = np.searchsorted(counts, scale)[:, None] + np.arange(len(types)) * len(counts)
    pace = 1.0 / seconds[np.arange(len(jobs))[:, None], column]
    return np.asarray(pace / (pace @ (capacity / capacity.sum()))[:, None])


def _fairest(worth: Floats, scale: Floats, capacity: Floats) -> Floats:
    """[jobs, types] The X with the largest least `worth` x X."""
    jobs, types = worth.shape
    each, every = sparse.eye_array(jobs), np.ones((1, types))
    rows = sparse.vstack(
        [
            # z <= worth of each job's part; one place at a time; no type overbooked
            sparse.hstack([-sparse.block_diag(worth[:, None, :]), np.ones((jobs, 1))]),
            sparse.hstack([sparse.kron(each, every), np.zeros((jobs, 1))]),
            sparse.hstack(
                [sparse.kron(scale[None, :], sparse.eye_array(types)), np.zeros((types, 1))]
            ),
        ],
        format="csr",
    )
    bounds = np.concatenate([np.zeros(jobs), np.ones(jobs), capacity])
    aim = np.append(np.zeros(jobs * types), -1.0)
    found = linprog(aim, A_ub=rows, b_ub=bounds)
    return np.asarray(found.x[:-1].reshape(jobs, types))


def _attained_seconds(
    job: Job, type: str, types: Sequence[str], round: Round, until: Time
) -> float:
    """The seconds that the job had on this one of the types."""
    by_type: dict[str, float] = {}
    for found in job.measured:
        where = found.placement.rpartition("x")[0]
        by_type[where] = by_type.get(where, 0.0) + found.seconds * max(1, found.epochs)
    total = sum(by_type.values())
    part = by_type.get(type, 0.0) / total if total else 1.0 / len(types)
    current = 0.0
    if job.run and type == round.type_of(job):
        current = max(0.0, until - job.run.started_at)
    return NEW_SECONDS + job.ran_seconds * part + current
