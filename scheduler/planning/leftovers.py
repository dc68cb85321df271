"""Fills GPUs that the plan leaves idle because a job chosen for them could not be placed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from scheduler.core.memory import fits_empty
from scheduler.core.model import Gpu, GpuKey, Job, Rules, View
from scheduler.core.runs import gpu_keys, is_running
from scheduler.planning.placement import PlacedUnits, Unit


def assign_leftovers(
    jobs: Sequence[Job],
    done: PlacedUnits,
    known: Mapping[GpuKey, Gpu],
    view: View,
    rules: Rules,
    count: Callable[[Job], int],
) -> list[Unit]:
    """Units for jobs that can get, or keep, GPUs that are not assigned: `count` of them, of one
    type."""
    idle = done.unassigned(known)
    units = []
    for job in jobs if idle else ():
        if job.id not in done.placements and job.id not in done.claims:
            keys = gpu_keys(job) if is_running(job) else _free(job, count(job), idle, view, rules)
            if keys and idle.keys() >= set(keys):
                units.append(Unit((job,), idle[keys[0]].type, len(keys)))
                idle = {key: gpu for key, gpu in idle.items() if key not in keys}
    return units


def _free(
    job: Job, count: int, idle: Mapping[GpuKey, Gpu], view: View, rules: Rules
) -> Sequence[GpuKey]:
    """`count` of these GPUs of one type; none if there are too few."""
    found: dict[str, list[GpuKey]] = {}
    for key, gpu in idle.items() if job.waiting else ():
        if not view.held.get(key) and fits_empty(job, gpu, rules):
            found.setdefault(gpu.type, []).append(key)
    enough = (keys for keys in found.values() if len(keys) >= count)
    return next(enough, [])[:count]
