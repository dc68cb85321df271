"""What fits where: how much memory a job needs of a card, which cards have it, and if none has,
what is lacking. Pure. Policies wish with these functions; adopt.py checks with the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

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
    """Those too that may not be used now."""
    return {(node.name, gpu.uuid): gpu for node in nodes for gpu in node.gpus}


def takes_whole_gpu(job: Job) -> bool:
    """Because it shares with nobody, or because nobody knows yet what it needs."""
    return not job.spec.shareable or job.memory_mib <= 0


def known_mib(job: Job, gpus: int = 0) -> int:
    """What it is known to take of each of so many: what it was seen to take there, but no less than
    was asked for. Where it never had so many, or what was seen was not all, as it has died for want
    of memory: the most that is known. 0: nothing is."""
    if not job.peaks:
        return job.memory_mib
    seen = 0 if job.failed(Failure.OUT_OF_MEMORY) else dict(job.peaks).get(gpus, 0)
    return max(seen, job.spec.memory_mib) if seen else job.memory_mib


def need_mib(job: Job, gpu: Gpu, rules: Rules, gpus: int = 0) -> int:
    """What the job must hold of this card, as one of so many (0: however many); more than the card
    shares out if the job cannot run there, for want of memory or of its image."""
    if gpu.images is not None and not has(gpu.images, job.spec.image):
        return gpu.memory_mib + 1
    return takes_mib(job, gpu, rules, gpus)


def takes_mib(job: Job, gpu: Gpu, rules: Rules, gpus: int = 0) -> int:
    """The same of a card where its image is, or was when it was started.

    A job alone on its card may have been measured to use what we keep back there for prudence, and
    so may one with its margin: either takes all there is to share, and must fit there again.
    """
    known = known_mib(job, gpus)
    if known > gpu.memory_mib:
        return known
    if gpu.whole or takes_whole_gpu(job):
        return gpu.capacity_mib
    return min(known + rules.memory_margin_mib, gpu.capacity_mib)


def free_mib(view: View) -> dict[GpuKey, int]:
    """What is free of each usable card right now; pods not yet seen gone still hold theirs."""
    return {
        key: gpu.capacity_mib - sum(view.held.get(key, {}).values())
        for key, gpu in usable_gpus(view.nodes).items()
    }


def placement(shares: Sequence[Share], known: Mapping[GpuKey, Gpu]) -> str:
    """The text of the placement of these shares; of several types, one for each, joined."""
    if not shares:
        return str(NO_GPU)
    types = Counter(known[share.key].type for share in shares if share.key in known)
    nodes = len({share.node for share in shares})
    if len(types) == 1:
        ((type, gpus),) = types.items()
        return str(Placement(type, gpus, nodes))
    key = "+".join(str(Placement(*each)) for each in sorted(types.items()))
    return f"{key}/{nodes}" if nodes > 1 else key


def by_type(known: Mapping[GpuKey, Gpu]) -> dict[str, list[list[GpuKey]]]:
    """The cards of each type, those of each node together."""
    found: dict[str, dict[str, list[GpuKey]]] = {}
    for key, gpu in known.items():
        found.setdefault(gpu.type, {}).setdefault(key[0], []).append(key)
    return {type: list(nodes.values()) for type, nodes in found.items()}


def node_sizes(known: Mapping[GpuKey, Gpu]) -> dict[str, list[int]]:
    """Of each type, how many cards each node has; the most first."""
    by_node = by_type(known).items()
    return {type: sorted(map(len, nodes), reverse=True) for type, nodes in by_node}


def fewest_nodes(sizes: Iterable[int], count: int) -> int:
    """How few nodes of these sizes have so many cards together; 0: not even all of them."""
    together = accumulate(sorted(sizes, reverse=True))
    return next((nodes for nodes, have in enumerate(together, 1) if have >= count), 0)


def best_fit(
    job: Job, most: int, known: Mapping[GpuKey, Gpu], free: Mapping[GpuKey, int], rules: Rules
) -> tuple[GpuKey, ...] | None:
    """On the fewest nodes that have what the job needs at least, as many cards as it can use, up to
    `most`: those that would be left with the least memory. None: no type has so many."""
    if most == 0:
        return ()
    fits = []
    for nodes in by_type(known).values():
        room = [_room(job, keys, known, free, rules) for keys in nodes]
        room.sort(key=lambda cards: (-len(cards), cards))
        if fewest := fewest_nodes(map(len, room), job.spec.gpus_min):
            whole = [card for cards in room[: fewest - 1] for card in cards]
            missing = min(most - len(whole), len(room[fewest - 1]))
            last = min(
                (cards[:missing] for cards in room[fewest - 1 :] if len(cards) >= missing),
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
    """The cards of these that have room for it, and how much memory each would be left with; the
    least first."""
    return sorted(
        (free[key] - need, key)
        for key in keys
        if (need := need_mib(job, known[key], rules)) <= free[key]
    )


def _left(cards: Sequence[tuple[int, GpuKey]]) -> tuple[int, Sequence[tuple[int, GpuKey]]]:
    return sum(mib for mib, _ in cards), cards


def lacking(
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
        for nodes in by_type(known).values()
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
    """How many nodes it takes to have so many GPUs of one type, where no node has them; else 0.
    `sizes`: of the nodes, by type."""
    fewest = min(filter(None, (fewest_nodes(nodes, count) for nodes in sizes)), default=0)
    return fewest if fewest > 1 else 0
