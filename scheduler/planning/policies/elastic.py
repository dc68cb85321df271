"""Elastic jobs on whole GPUs: how many GPUs of which type each job gets, by Sia's objective.

Source: Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
scheduling", SOSP 2023, and its artifact. Each job j can have one configuration c, a number of GPUs
of one type: a power of two on one node, or whole nodes (a rigid job only its own number). The
policy minimises the sum of (r_j G_jc)^p, or 1.1 for a job that gets nothing, within the GPUs of
each type (Sia by an integer program; here by prices.py, which comes within 0.1 % of it). G_jc is
the speed relative to the job's slowest configuration, times its fewest GPUs (gpus_min); p = -0.5;
r_j is 1, except for configurations that need a restart, where

    r_j = (age - restarts * S) / (age + S),    S seconds being the cost of a restart for the job.

All jobs have the same weight, their remaining work does not matter, and with 1.1 the sum is often
least when some jobs have several GPUs and others none. Among equal jobs, those with GPUs keep
them; otherwise equal jobs would take turns.

It knows of a job: the seconds per epoch in each configuration in which it, or an earlier job of
its family, was measured. Larger numbers of GPUs that are unknown are expected to scale perfectly,
and at most twice the largest number so far is tried, so that the true speed is soon known. The
artifact does the same, where each job learns for itself, after a profile on one GPU of each type;
here that first knowledge is a prediction (speed.py). Users set the batch size, so goodput is
throughput, and a run moves at the end of an epoch, not each minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scheduler.core.learning import kind_of
from scheduler.core.memory import fewest_nodes
from scheduler.core.model import Job, JobFamily, Placement, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.core.runs import is_running, may_move
from scheduler.estimates.arrays import Floats
from scheduler.estimates.speed import estimate
from scheduler.planning.optimizer.prices import Menu, chosen, priced
from scheduler.planning.policies.whole_gpus import Round

EXPONENT = -0.5
NOTHING = 1.1  # the objective's value of a job without GPUs
CHANGE = 0.01  # the cost of a change of GPUs: the artifact's lambda_a
GROWTH_MAX = 2  # times the GPUs that were tried before; 1 counts as tried
DISCOUNT_MIN = 0.01
MOVES_MAX = 8  # small units moved by one plan, so that others are on one node


def elastic(rules: Rules) -> Policy:
    def plan(view: View, now: Time) -> Plan:
        round = Round(view, now, rules, preempts=True, elastic=True)
        choosing = []
        for job in round.candidates:
            as_is = job.spec.gpus_max == 0 or (is_running(job) and not may_move(job))
            if not as_is and round.gpus_wanted(job) is not None:
                choosing.append(job)
            elif not round.give(job):
                round.refused.append(job)
        _choose(choosing, round)
        return round.plan(moves_max=MOVES_MAX)

    return plan


def _choose(jobs: Sequence[Job], round: Round) -> None:
    configs = _configs(jobs, round)
    if not jobs or not configs:
        return
    types = sorted(round.node_sizes)
    menu = Menu(
        worth=_worth(jobs, configs, round),
        count=np.array([config.gpus for config in configs], np.intp),
        type=np.array([types.index(config.type) for config in configs], np.intp),
        capacity=np.array([max(0, round.left[type]) for type in types], np.intp),
    )
    for job, column in zip(jobs, chosen(menu, priced(menu)).tolist(), strict=True):
        if column >= 0:
            round.assign(job, configs[column].type, configs[column].gpus)
        else:
            round.refused.append(job)


def _configs(jobs: Sequence[Job], round: Round) -> list[Placement]:
    """Powers of two on one node, whole nodes, and the smallest numbers that jobs ask for."""
    asked = {job.spec.gpus_min for job in jobs}
    most = max((job.spec.gpus_max for job in jobs), default=0)
    made = []
    for type, sizes in sorted(round.node_sizes.items()):
        size = sizes[0]
        counts = {1 << k for k in range(size.bit_length())} | set(range(size, most + 1, size))
        made += [
            Placement(type, count, fewest_nodes(sizes, count))
            for count in sorted(counts | asked)
            if count <= sum(sizes)
        ]
    return made


def _worth(jobs: Sequence[Job], configs: Sequence[Placement], round: Round) -> Floats:
    """[jobs, configs]; -inf: not possible."""
    has = np.array([_has(job, configs, round) for job in jobs])
    seconds, tried = _optimistic_seconds(jobs, configs, round)
    possible = _possible(jobs, configs, round, tried)
    possible[np.flatnonzero(has >= 0), has[has >= 0]] = True
    pace = 1.0 / seconds
    slowest = np.where(possible, pace, np.inf).min(axis=1, keepdims=True)
    least = np.array([[job.spec.gpus_min] for job in jobs])
    changes = has[:, None] != np.arange(len(configs))
    discount = np.array([[_discount(job, round)] for job in jobs])
    pace = pace / slowest * least * np.where(changes & (has[:, None] >= 0), discount, 1.0)
    return np.where(possible, NOTHING - pace**EXPONENT - CHANGE * changes, -np.inf)


def _optimistic_seconds(
    jobs: Sequence[Job], configs: Sequence[Placement], round: Round
) -> tuple[Floats, Floats]:
    """[jobs, configs] seconds per epoch; and [jobs, 1] the most GPUs that were tried."""
    seconds = estimate(jobs, round.view.kinds, configs)
    known = _was_measured(jobs, configs, round.view.kinds)
    most = np.ones((len(jobs), 1))
    for type in dict.fromkeys(config.type for config in configs):
        columns = [c for c, config in enumerate(configs) if config.type == type]
        count, last = np.zeros(len(jobs)), np.zeros(len(jobs))
        for column in columns:  # the fewest GPUs first
            perfect = last * count / configs[column].gpus
            hoped = ~known[:, column] & (count > 0)
            seconds[hoped, column] = perfect[hoped]
            count = np.where(known[:, column], configs[column].gpus, count)
            last = np.where(known[:, column], seconds[:, column], last)
        most = np.maximum(most, count[:, None])
    return seconds, most


def _was_measured(
    jobs: Sequence[Job], configs: Sequence[Placement], kinds: Mapping[str, JobFamily]
) -> npt.NDArray[np.bool_]:
    """[jobs, configs] whether the job or its family was measured in this configuration."""
    column = {str(config): c for c, config in enumerate(configs)}
    known = np.zeros((len(jobs), len(configs)), bool)
    of_kind = {name: [m.placement for m in kind.measured] for name, kind in kinds.items()}
    for row, job in enumerate(jobs):
        own = [m.placement for m in job.measured]
        places = (*own, *of_kind.get(kind_of(job.spec), ()))
        known[row, [column[place] for place in places if place in column]] = True
    return known


def _possible(
    jobs: Sequence[Job], configs: Sequence[Placement], round: Round, tried: Floats
) -> npt.NDArray[np.bool_]:
    count = np.array([config.gpus for config in configs])
    size = np.array([round.node_sizes[config.type][0] for config in configs])
    regular = (count % size == 0) | ((count < size) & (count & (count - 1) == 0))
    least = np.array([[job.spec.gpus_min] for job in jobs])
    most = np.array([[job.spec.gpus_max] for job in jobs])
    fitting = [round.count_fitting(job) for job in jobs]
    there_are = np.array([[fits.get(config.type, 0) for config in configs] for fits in fitting])
    in_range = (least <= count) & (count <= np.minimum(most, there_are))
    sensible = regular & (count <= GROWTH_MAX * tried)
    return np.asarray(in_range & (sensible | (count == least)))


def _has(job: Job, configs: Sequence[Placement], round: Round) -> int:
    """The configuration with which it runs; -1: none of these."""
    if not is_running(job) or job.run is None:
        return -1
    now = round.type_of(job), len(job.run.shares)
    return next((at for at, config in enumerate(configs) if (config.type, config.gpus) == now), -1)


def _discount(job: Job, round: Round) -> float:
    age = round.now - job.submitted_at
    restart = job.restart_seconds or round.rules.restart_seconds
    if age < restart:
        return 1.0
    return max(DISCOUNT_MIN, (age - (job.attempts - 1) * restart) / (age + restart))
