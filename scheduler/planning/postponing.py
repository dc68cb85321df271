"""Postpones moves onto idle GPUs that another job could use at once, or as soon as it has stopped
for them. Pure.

A run that moves must first stop, for which it has its notice, and the GPUs for it are idle until
then. A plan is made from nothing but the present: while one run stops for idle GPUs, the next plan
could give them to another run, which must stop too, and the first one the GPUs that the other
leaves. Then the GPUs would be idle for one notice after the other, and the first job would stand
still as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler.core.model import Gpu, GpuKey, Job, View
from scheduler.core.runs import gpu_keys, is_running, may_move
from scheduler.planning.placement import PlacedUnits, Unit


def postpone_moves(
    units: Sequence[Unit], done: PlacedUnits, known: Mapping[GpuKey, Gpu], view: View
) -> list[Unit] | None:
    """The units, with runs left where they are that would move onto idle GPUs which are enough for
    a job that waits for others to leave theirs. None: there are no such runs."""
    late = list(_late(units, done, view))
    stay: dict[int, Unit] = {}
    for number, unit in enumerate(units) if late else ():
        if not (idle := _idle_for_move(unit, done, known, view)):
            continue
        served = next((other for other in late if _is_enough(idle, other, unit, done)), None)
        if served is not None:
            late.remove(served)
            stay[number] = replace(unit, count=len(gpu_keys(unit.jobs[0])), stays=True)
    return [stay.get(number, unit) for number, unit in enumerate(units)] if stay else None


def count_late(units: Sequence[Unit], done: PlacedUnits, view: View) -> int:
    return sum(1 for _ in _late(units, done, view))


def _late(units: Sequence[Unit], done: PlacedUnits, view: View) -> Iterator[Unit]:
    """Units that do not run, or are stopping, and wait for runs of others to leave GPUs."""
    for unit in units:
        if len(unit.jobs) == 1 and not is_running(job := unit.jobs[0]):
            keys = done.claims.get(job.id, ())
            if any(_is_held_by_others(key, job, view) for key in keys):
                yield unit


def _is_held_by_others(key: GpuKey, job: Job, view: View) -> bool:
    return any(other != job.id for other, _ in view.held.get(key, ()))


def _idle_for_move(
    unit: Unit, done: PlacedUnits, known: Mapping[GpuKey, Gpu], view: View
) -> list[GpuKey]:
    """The idle GPUs to which a run is to move from GPUs of the same type."""
    job = unit.jobs[0] if len(unit.jobs) == 1 else None
    if job is None or not is_running(job) or not may_move(job):
        return []
    here, there = gpu_keys(job), done.claims.get(job.id, ())
    if set(here) == set(there) or len(here) > unit.count:
        return []
    if any(key not in known or known[key].type != unit.type for key in here):
        return []
    return [key for key in there if not view.held.get(key)]


def _is_enough(idle: Sequence[GpuKey], late: Unit, unit: Unit, done: PlacedUnits) -> bool:
    """Whether the late unit could be on these GPUs, on no more nodes than those that it waits
    for, and would use at least as many as the move adds: a large run does not wait for a small
    one."""
    gained = unit.count - len(gpu_keys(unit.jobs[0]))
    if late.type != unit.type or not gained <= late.count <= len(idle):
        return False
    claimed = {node for node, _ in done.claims[late.jobs[0].id]}
    nodes = sorted((sum(n == node for n, _ in idle) for node in {n for n, _ in idle}), reverse=True)
    return sum(nodes[: len(claimed)]) >= late.count
