"""GPUs that are slower than others of their type are a type of their own in a plan. Pure.

So a job gets them only if it is worth it, and a gang has none of them beside normal ones. A plan
does not set them apart if one of its jobs would then have too few GPUs for ever, or could start on
idle GPUs otherwise, and a gang that runs on both is left together if they differ little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.core.fast_replace import replace
from scheduler.core.memory import usable_gpus
from scheduler.core.model import Gpu, GpuKey, Job, View
from scheduler.core.runs import gpu_keys, is_running
from scheduler.estimates.slow_gpus import SlowGpus, slow_type, split_type
from scheduler.planning.optimizer.inventory import stocks

STEP = 4  # steps of slowness in each doubling: GPUs in the same one are alike
DIFFER = 1.5  # a running gang is not taken apart because of GPUs that differ less


def with_slow_types(view: View, slow: SlowGpus, jobs: Sequence[Job]) -> View:
    """The view with other types for slow GPUs; `jobs`: those that are to have GPUs."""
    if not slow.known:
        return view
    known = {key: gpu.type for key, gpu in usable_gpus(view.nodes).items()}
    types = {key: _type(key, type, slow) for key, type in known.items()}
    apart = {key: type for key, type in types.items() if type != known[key]}
    for job in jobs if apart else ():
        apart |= _kept_together(job, types, known)
    for type in {known[key] for key in apart}:
        if _starves(jobs, view, {key: name for key, name in apart.items() if known[key] == type}):
            apart = {key: name for key, name in apart.items() if known[key] != type}
    return _named(view, apart) if apart else view


def _type(key: GpuKey, type: str, slow: SlowGpus) -> str:
    gpu = slow.of(key)
    steps = math.floor(STEP * math.log2(gpu.times) + 1e-6) if gpu else 0
    return slow_type(type, 2.0 ** (steps / STEP)) if steps > 0 else type


def _kept_together(
    job: Job, types: Mapping[GpuKey, str], known: Mapping[GpuKey, str]
) -> dict[GpuKey, str]:
    """The types of the GPUs of a gang that runs, if they are alike but for a little slowness."""
    keys = [key for key in gpu_keys(job) if key in types] if is_running(job) else []
    if len({types[key] for key in keys}) < 2 or len({known[key] for key in keys}) > 1:
        return {}
    times = {split_type(types[key])[1]: types[key] for key in keys}
    if max(times) > DIFFER * min(times):
        return {}
    return dict.fromkeys(keys, times[max(times)])


def _starves(jobs: Sequence[Job], view: View, apart: Mapping[GpuKey, str]) -> bool:
    """Whether a job could have enough GPUs of one type, or could start on idle ones now, but not if
    these are apart."""
    gpus, named = usable_gpus(view.nodes), usable_gpus(_named(view, apart).nodes)
    idle = [key for key in gpus if not view.held.get(key)]
    waiting = [job for job in jobs if job.waiting and not (job.held or job.awaits)]
    now = [{key: known[key] for key in idle} for known in (gpus, named)]
    return _lacks(jobs, gpus, named) or _lacks(waiting, *now)


def _lacks(jobs: Sequence[Job], gpus: Mapping[GpuKey, Gpu], named: Mapping[GpuKey, Gpu]) -> bool:
    """Whether one of the jobs has enough among the former, and not among the latter."""
    memory = np.array([job.memory_mib for job in jobs])
    images = [job.spec.image for job in jobs]
    least = np.array([job.spec.gpus_min for job in jobs])
    most = [
        np.max([stock.hold(memory, images) for stock in stocks(known)], axis=0, initial=0)
        for known in (gpus, named)
    ]
    return bool(((most[0] >= least) & (most[1] < least)).any()) if jobs and gpus else False


def _named(view: View, types: Mapping[GpuKey, str]) -> View:
    nodes = []
    for node in view.nodes:
        gpus = [replace(gpu, type=types.get((node.name, gpu.uuid), gpu.type)) for gpu in node.gpus]
        some = any((node.name, gpu.uuid) in types for gpu in node.gpus)
        nodes.append(replace(node, gpus=tuple(gpus)) if some else node)
    return replace(view, nodes=tuple(nodes))
