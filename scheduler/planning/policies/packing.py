"""Pairs of jobs on the same GPUs, where the expected slowdown is small; no job is preempted.

Source: Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning
Training Jobs", ASPLOS 2023, and its artifact. Waiting jobs are considered by their GPUs times their
predicted length, the smallest first. A job for which no GPUs are free is put beside one running job
at most ("indolent packing"), if

- both have one GPU, and their memory fits together;
- their sharing scores add up to no more than 2: tiny 0, medium 1, jumbo 2;
- it is not expected to need more than twice the GPU time of the other.

A job that cannot be placed at all is passed over. No job is stopped, and counts never change.

Differences: Lucid's artifact pairs gangs of one node too, which is packing_gangs.py. It finds the
class with a decision tree from a profile taken before the first run. Here the class follows from
the GPU utilisation, measured in its first epochs or known from earlier jobs of its family; jobs
without either run alone. The two limits are those that fit Lucid's 66 published profiles best (53
agree). Lucid predicts lengths from the cluster's history with a boosted model, and turns packing
off when it forecasts a quiet hour; here lengths are those of speed.py, and no job is packed as long
as GPUs are free.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from scheduler.core.images import has
from scheduler.core.learning import kind_of
from scheduler.core.memory import fewest_nodes, takes_mib, takes_whole_gpu
from scheduler.core.model import Gpu, Job, JobId, Placement, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.core.runs import gpu_keys, is_running
from scheduler.estimates.speed import estimate
from scheduler.planning.placement import Unit
from scheduler.planning.policies.whole_gpus import Round

MEDIUM_UTIL, JUMBO_UTIL = 0.25, 0.59
SCORES_MAX = 2
LONGER_MAX = 2.0  # relative to the job that is there already


def packing(rules: Rules, gpus_max: int = 1) -> Policy:
    """`gpus_max`: the most GPUs, on one node, that paired jobs may have."""

    def plan(view: View, now: Time) -> Plan:
        round = Round(view, now, rules)
        packer = _Packer(round, gpus_max)
        for job in sorted(round.candidates, key=packer.order):
            if round.give(job):
                packer.host(len(round.units) - 1)
            elif not packer.join(job):
                round.refused.append(job)
        return round.plan()

    return plan


@dataclass(frozen=True, slots=True)
class _Host:
    job: Job
    unit: int  # its number in the round
    gpu: Gpu  # the smallest that it may be on


class _Packer:
    def __init__(self, round: Round, gpus_max: int) -> None:
        self.round, self.gpus_max = round, gpus_max
        self.work = _gpu_seconds(round)
        self.hosts: dict[tuple[int, int], list[_Host]] = {}  # by number of GPUs and score
        # Of jobs that found no host: GPUs, score, memory, image.
        self.in_vain = set[tuple[int, int, int, str]]()
        self.scores: dict[str, int | None] = {}  # of kinds
        self.smallest: dict[str, Gpu] = {}
        for gpu in round.gpus.values():
            least = self.smallest.setdefault(gpu.type, gpu)
            self.smallest[gpu.type] = min(least, gpu, key=lambda gpu: gpu.capacity_mib)
        holders = Counter(key for key, held in round.view.held.items() for _ in held)
        for number, unit in enumerate(round.units):
            shares = unit.jobs[0].run.shares if unit.jobs[0].run else ()
            if all(holders[share.key] == 1 for share in shares):
                self.host(number)

    def order(self, job: Job) -> tuple[int, float, Time, JobId]:
        return -job.priority, self.work[job.id], job.submitted_at, job.id

    def host(self, number: int) -> None:
        """From now on, others may join this unit."""
        unit = self.round.units[number]
        job = unit.jobs[0]
        score = self._score(job)
        if score is None or takes_whole_gpu(job) or not 0 < unit.count <= self.gpus_max:
            return
        if unit.type in self.smallest and self._nodes(unit) == 1:
            host = _Host(job, number, self.smallest[unit.type])
            self.hosts.setdefault((unit.count, score), []).append(host)
            self.in_vain.clear()

    def _nodes(self, unit: Unit) -> int:
        """The number of nodes that it is on, or must be on."""
        run = unit.jobs[0].run
        if is_running(unit.jobs[0]) and run:
            return len({share.node for share in run.shares})
        return fewest_nodes(self.round.node_sizes[unit.type], unit.count)

    def join(self, job: Job) -> bool:
        """Puts the job beside another that has GPUs to itself."""
        count, score = self.round.gpus_wanted(job), self._score(job)
        if not job.waiting or not count or score is None or takes_whole_gpu(job):
            return False
        needs = count, score, job.memory_mib, job.spec.image
        if needs in self.in_vain:
            return False  # it takes longer than a similar job that found no host
        for other in range(SCORES_MAX - score + 1):
            hosts = self.hosts.get((count, other), [])
            for host in hosts:
                if self._welcome(job, host):
                    hosts.remove(host)
                    unit = self.round.units[host.unit]
                    self.round.units[host.unit] = replace(unit, jobs=(host.job, job))
                    return True
        self.in_vain.add(needs)
        return False

    def _welcome(self, job: Job, host: _Host) -> bool:
        if self.work[job.id] > LONGER_MAX * self.work[host.job.id]:
            return False
        needs = (takes_mib(one, host.gpu, self.round.rules) for one in (job, host.job))
        return sum(needs) <= host.gpu.capacity_mib and self._has_image(job, host)

    def _has_image(self, job: Job, host: _Host) -> bool:
        """Whether the host's GPUs have the image, wherever they will be."""
        if job.spec.image == host.job.spec.image:
            return True
        keys = gpu_keys(host.job) if is_running(host.job) else self.round.gpus
        there = (self.round.gpus.get(key) for key in keys)
        return all(has(gpu.images, job.spec.image) for gpu in there if gpu)

    def _score(self, job: Job) -> int | None:
        """0 tiny, 1 medium, 2 jumbo; None: unknown."""
        if job.gpu_util:
            return _score_of(job.gpu_util)
        kind = kind_of(job.spec)
        if kind not in self.scores:
            known = self.round.view.kinds.get(kind)
            self.scores[kind] = _score_of(known.gpu_util) if known and known.gpu_util else None
        return self.scores[kind]


def _score_of(util: float) -> int:
    return (util >= MEDIUM_UTIL) + (util >= JUMBO_UTIL)


def _gpu_seconds(round: Round) -> dict[JobId, float]:
    """The expected GPU time of each job, from its first epoch to its last."""
    jobs = [job for job in round.view.jobs.values() if job.outcome is None]
    configs: dict[Placement, int] = {}
    columns = [configs.setdefault(_config(job, round), len(configs)) for job in jobs]
    seconds = estimate(jobs, round.view.kinds, list(configs)) if jobs else np.zeros((0, 0))
    counts = [config.gpus for config in configs]
    return {
        job.id: job.max_epochs * counts[column] * float(seconds[row, column])
        for row, (job, column) in enumerate(zip(jobs, columns, strict=True))
    }


def _config(job: Job, round: Round) -> Placement:
    """The placement with which it runs, or is expected to run."""
    if is_running(job) and job.run and job.run.shares:
        nodes = len({share.node for share in job.run.shares})
        return Placement(round.type_of(job) or "", len(job.run.shares), nodes)
    type, count = next(iter(round.count_fitting(job)), ""), round.gpus_wanted(job) or 1
    return Placement(type, count, max(1, fewest_nodes(round.node_sizes.get(type, ()), count)))
