"""The state of the cluster for users: the jobs on each GPU, the totals of each user. Pure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from scheduler.api.status import State
from scheduler.core.memory import all_gpus
from scheduler.core.model import Gpu, GpuKey, Job, Node, RunKey, View
from scheduler.core.runs import current_run
from scheduler.estimates.measurements import Memo, read
from scheduler.estimates.slow_gpus import SlowGpus, find_slow
from scheduler.gpus.usage import Usage
from scheduler.v1 import scheduler_pb2 as pb


class SlowGpuLookup:
    """Which GPUs are slow, by what a view has of jobs. Computed once for each view."""

    def __init__(self) -> None:
        self._memo, self._lock = Memo(), threading.Lock()
        self._of: tuple[View, SlowGpus] | None = None

    def __call__(self, view: View) -> SlowGpus:
        with self._lock:
            if self._of is None or self._of[0] is not view:
                live = [job for job in view.jobs.values() if job.outcome is None]
                self._of = view, find_slow(read(live, view.kinds, self._memo))
            return self._of[1]


def gpu_messages(
    view: View,
    state: Callable[[Job], State],
    usage: Mapping[GpuKey, Usage],
    slow: SlowGpus | None = None,
) -> Iterator[pb.GpuState]:
    for node in sorted(view.nodes, key=lambda node: node.name):
        for gpu in sorted(node.gpus, key=lambda gpu: gpu.index):
            message = _gpu_message(node, gpu, view, state)
            if seen := usage.get((node.name, gpu.uuid)):
                _add_usage(message, seen)
            if found := slow.of((node.name, gpu.uuid)) if slow else None:
                message.slow.speed, message.slow.doubt = 1.0 / found.times, found.doubt
                message.slow.epochs, message.slow.jobs = found.epochs, found.jobs
            yield message


def _gpu_message(node: Node, gpu: Gpu, view: View, state: Callable[[Job], State]) -> pb.GpuState:
    held = view.held.get((node.name, gpu.uuid), {})
    return pb.GpuState(
        node=node.name,
        gpu=gpu.uuid,
        index=gpu.index,
        type=gpu.type,
        memory_mib=gpu.memory_mib,
        capacity_mib=gpu.capacity_mib,
        reserved_mib=sum(held.values()),
        jobs=[_gpu_job(run, mib, view, state) for run, mib in sorted(held.items())],
        ready=node.ready,
        strange_mib=gpu.strange_mib,
        fault=gpu.fault,
        lost=gpu.lost,
    )


def _add_usage(message: pb.GpuState, usage: Usage) -> None:
    """Adds what the agent observes there."""
    message.used_mib, message.busy = usage.reading.used_mib, usage.reading.busy
    message.keeps = usage.keeps
    used: dict[str, int] = {}
    busy: dict[str, float] = {}
    for process, run in zip(usage.reading.processes, usage.runs, strict=True):
        job_id, attempt = run or ("", 0)
        used[job_id] = used.get(job_id, 0) + process.memory_mib
        busy[job_id] = busy.get(job_id, 0.0) + process.busy
        message.processes.append(
            pb.GpuProcess(
                pid=process.pid,
                name=process.name,
                memory_mib=process.memory_mib,
                job_id=job_id,
                attempt=attempt,
            )
        )
    for job in message.jobs:
        job.used_mib = used.get(job.job_id, 0)
        job.busy = busy.get(job.job_id, 0.0)


def _gpu_job(run: RunKey, mib: int, view: View, state: Callable[[Job], State]) -> pb.GpuJob:
    job_id = run[0]
    job = view.jobs.get(job_id)
    if job is None:
        return pb.GpuJob(job_id=job_id, memory_mib=mib, state=State.STOPPING)
    # An earlier attempt keeps its memory until an observation shows that it is gone.
    return pb.GpuJob(
        job_id=job_id,
        name=job.spec.name,
        user=job.spec.user,
        memory_mib=mib,
        state=state(job) if current_run(run, view.jobs) else State.STOPPING,
    )


def user_totals(view: View) -> list[pb.UserTotal]:
    """Returns totals of users with live jobs. A part of a GPU's memory counts as that part of a
    GPU."""
    capacity = {key: gpu.capacity_mib for key, gpu in all_gpus(view.nodes).items()}
    totals: dict[str, pb.UserTotal] = {}
    for job in view.jobs.values():
        if job.outcome:
            continue
        user = job.spec.user
        total = totals.setdefault(user, pb.UserTotal(user=user))
        if job.run is None:
            total.waiting += 1
            continue
        total.running += 1
        for share in job.run.shares:
            total.memory_mib += share.memory_mib
            total.gpus += share.memory_mib / (capacity.get(share.key) or share.memory_mib or 1)
    return [totals[user] for user in sorted(totals)]
