"""Memory of GPUs: how much a job needs, which GPUs have room for it, and what is lacking if none
has. Pure. Policies plan with these functions; adopt.py checks plans with the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from operator import attrgetter

from scheduler.core.images import has
from scheduler.core.model import (
    NO_GPU,
    Failure,
    Gpu,
    GpuKey,
    Job,
    Node,
    Placement,
    Reason,
    Rules,
    Share,
    View,
    Waiting,
    WholeGpus,
)


def usable_gpus(nodes: Iterable[Node]) -> dict[GpuKey, Gpu]:
    """All GPUs that may be used now."""
    return {(node.name, gpu.uuid): gpu for node in nodes for gpu in node.usable}


def all_gpus(nodes: Iterable[Node]) -> dict[GpuKey, Gpu]:
    """All GPUs, including those that may not be used now."""
    return {(node.name, gpu.uuid): gpu for node in nodes for gpu in node.gpus}


def takes_whole_gpu(job: Job) -> bool:
    """Whether the job needs a GPU to itself: it does not share, or its memory use is unknown."""
    return not job.spec.shareable or job.memory_mib <= 0


def known_mib(job: Job, gpus: int = 0) -> int:
    """The known need on each of `count` GPUs: what was seen there, but no less than was asked for.
    If the job never had that many, or what was seen is incomplete because it ran out of memory: the
    most that is known. 0: nothing is known."""
    if not job.peaks:
        return job.memory_mib
    seen = 0 if job.failed(Failure.OUT_OF_MEMORY) else dict(job.peaks).get(gpus, 0)
    return max(seen, job.spec.memory_mib) if seen else job.memory_mib


def need_mib(job: Job, gpu: Gpu, rules: Rules, gpus: int = 0) -> int:
    """The memory that the job must hold on this GPU as one of `count` (0: any number); more than
    the GPU's capacity if the job cannot run there, for lack of memory or of its image."""
    if gpu.images is not None and not has(gpu.images, job.spec.image):
        return gpu.memory_mib + 1
    return takes_mib(job, gpu, rules, gpus)


def takes_mib(job: Job, gpu: Gpu, rules: Rules, gpus: int = 0) -> int:
    """The same for a GPU whose node has the image, or had it when the run was started.

    A job alone on its GPU may have been measured to use part of the headroom, and a measured need
    plus margin may exceed the capacity: either job takes the whole capacity, and must fit there
    again.
    """
    known = known_mib(job, gpus)
    if known > gpu.memory_mib:
        return known
    if gpu.whole or takes_whole_gpu(job):
        return gpu.capacity_mib
    return min(known + rules.memory_margin_mib, gpu.capacity_mib)


def fits_empty(job: Job, gpu: Gpu, rules: Rules) -> bool:
    """Whether the GPU could hold the job if no other job had a share of it."""
    return need_mib(job, gpu, rules) <= gpu.capacity_mib


# All that matters of a GPU, but not which one it is.
make_of = attrgetter(*(each.name for each in fields(Gpu) if each.name not in ("uuid", "index")))


def count_makes(gpus: Iterable[Gpu]) -> list[tuple[Gpu, int]]:
    """One GPU of each make, and how many there are of it, in the order of their first."""
    makes: dict[object, list[Gpu]] = {}
    for gpu in gpus:
        makes.setdefault(make_of(gpu), []).append(gpu)
    return [(alike[0], len(alike)) for alike in makes.values()]


def free_mib(view: View) -> dict[GpuKey, int]:
    """The free memory of each usable GPU now; pods that are not seen gone yet still hold theirs."""
    return {
        key: gpu.capacity_mib - sum(view.held.get(key, {}).values())
        for key, gpu in usable_gpus(view.nodes).items()
    }


def placement(shares: Sequence[Share], known: Mapping[GpuKey, Gpu]) -> str:
    """The text of the placement of these shares; for several types, one text for each, joined."""
    if not shares:
        return str(NO_GPU)
    types = Counter(known[share.key].type for share in shares if share.key in known)
    nodes = len({share.node for share in shares})
    if len(types) == 1:
        ((type, gpus),) = types.items()
        return str(Placement(type, gpus, nodes))
    key = "+".join(str(Placement(*each)) for each in sorted(types.items()))
    return f"{key}/{nodes}" if nodes > 1 else key


def keys_by_type(known: Mapping[GpuKey, Gpu]) -> dict[str, list[list[GpuKey]]]:
    """The GPUs of each type, those of one node together."""
    found: dict[str, dict[str, list[GpuKey]]] = {}
    for key, gpu in known.items():
        found.setdefault(gpu.type, {}).setdefault(key[0], []).append(key)
    return {type: list(nodes.values()) for type, nodes in found.items()}


def node_sizes(known: Mapping[GpuKey, Gpu]) -> dict[str, list[int]]:
    """For each type, the number of GPUs of each node; the largest first."""
    by_node = keys_by_type(known).items()
    return {type: sorted(map(len, nodes), reverse=True) for type, nodes in by_node}


def fewest_nodes(sizes: Iterable[int], count: int) -> int:
    """The fewest nodes of these sizes that together have `count` GPUs; 0 if all together have too
    few."""
    together = accumulate(sorted(sizes, reverse=True))
    return next((nodes for nodes, have in enumerate(together, 1) if have >= count), 0)


def best_fit(
    job: Job, most: int, known: Mapping[GpuKey, Gpu], free: Mapping[GpuKey, int], rules: Rules
) -> tuple[GpuKey, ...] | None:
    """GPUs for the job on the fewest nodes: as many as it can use, up to `most`, and those that
    keep the least free memory. None: no type has enough."""
    if most == 0:
        return ()
    fits = []
    for nodes in keys_by_type(known).values():
        room = [_room(job, keys, known, free, rules) for keys in nodes]
        room.sort(key=lambda group: (-len(group), group))
        if fewest := fewest_nodes(map(len, room), job.spec.gpus_min):
            whole = [pair for group in room[: fewest - 1] for pair in group]
            missing = min(most - len(whole), len(room[fewest - 1]))
            last = min(
                (group[:missing] for group in room[fewest - 1 :] if len(group) >= missing),
                key=_left,
            )
            chosen = whole + last
            fits.append((fewest, -len(chosen), _left(chosen), tuple(key for _, key in chosen)))
    return min(fits)[-1] if fits else None


def _room(
    job: Job,
    keys: Iterable[GpuKey],
    known: Mapping[GpuKey, Gpu],
    free: Mapping[GpuKey, int],
    rules: Rules,
) -> list[tuple[int, GpuKey]]:
    """Those of the GPUs that have room for the job, and how much memory each would keep free; the
    least first."""
    return sorted(
        (free[key] - need, key)
        for key in keys
        if (need := need_mib(job, known[key], rules)) <= free[key]
    )


def _left(group: Sequence[tuple[int, GpuKey]]) -> tuple[int, Sequence[tuple[int, GpuKey]]]:
    return sum(mib for mib, _ in group), group


def explain_lack(
    job: Job, known: Mapping[GpuKey, Gpu], free: Mapping[GpuKey, int], rules: Rules
) -> Reason:
    """Why the job fits nowhere, in numbers."""
    if not known:
        return Reason(Waiting.GPUS, there=())
    count = job.spec.gpus_min
    whole = why_whole(job)
    several = len({node for node, _ in known}) > 1
    if count == 1 and not whole:
        key = max(known, key=lambda key: free[key])
        return Reason(
            Waiting.MEMORY,
            memory_mib=need_mib(job, known[key], rules),
            gpu=known[key].index,
            node=key[0] if several else "",
            free_mib=free[key],
        )
    fitting = max(
        sum(len(_room(job, keys, known, free, rules)) for keys in nodes)
        for nodes in keys_by_type(known).values()
    )
    return Reason(
        Waiting.GPUS,
        gpus=count,
        nodes=nodes_needed(count, node_sizes(known).values()) if several else int(count > 1),
        whole=whole,
        memory_mib=0 if whole else job.memory_mib + rules.memory_margin_mib,
        free=(("", fitting),),
    )


def why_whole(job: Job) -> WholeGpus | None:
    if not takes_whole_gpu(job):
        return None
    return WholeGpus.UNKNOWN if job.spec.shareable else WholeGpus.EXCLUSIVE


def nodes_needed(count: int, sizes: Iterable[Sequence[int]]) -> int:
    """How many nodes it takes to have `count` GPUs of one type if no single node has them;
    otherwise 0. `sizes`: of the nodes, by type."""
    fewest = min(filter(None, (fewest_nodes(nodes, count) for nodes in sizes)), default=0)
    return fewest if fewest > 1 else 0
