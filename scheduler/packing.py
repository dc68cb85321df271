"""What fits where: how much memory a job needs of a card, which cards have it, and if none has,
what is lacking. Pure. Policies wish with these functions; adopt.py checks with the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from scheduler.model import Gpu, GpuKey, Job, Node, Reason, Rules, Share, View


def cards(nodes: Iterable[Node]) -> dict[GpuKey, Gpu]:
    """All GPUs that may be used now."""
    return {(node.name, gpu.uuid): gpu for node in nodes if node.ready for gpu in node.gpus}


def takes_whole_card(job: Job) -> bool:
    """Because it shares with nobody, or because nobody knows yet what it needs."""
    return not job.spec.shareable or job.memory_mib <= 0


def need_mib(job: Job, gpu: Gpu, rules: Rules) -> int:
    """What the job must hold of this card; more than it shares out if the job cannot run there.

    A job alone on its card may have been measured to use what we keep back there for prudence, and
    so may one with its margin: either takes all there is to share, and must fit there again.
    """
    if job.memory_mib > gpu.memory_mib:
        return job.memory_mib
    if takes_whole_card(job):
        return gpu.capacity_mib
    return min(job.memory_mib + rules.memory_margin_mib, gpu.capacity_mib)


def free_mib(view: View) -> dict[GpuKey, int]:
    """What is free of each usable card right now; pods not yet seen gone still hold theirs."""
    return {
        key: gpu.capacity_mib - sum(view.held.get(key, {}).values())
        for key, gpu in cards(view.nodes).items()
    }


def placement(shares: Sequence[Share], known: Mapping[GpuKey, Gpu]) -> str:
    """The key of a speed: which types of GPU, how many of each, and over how many nodes if not one:
    `t4x2`, `t4x8/2`, or `cpu`."""
    if not shares:
        return "cpu"
    types = Counter(known[share.key].type for share in shares if share.key in known)
    nodes = len({share.node for share in shares})
    key = "+".join(f"{type}x{count}" for type, count in sorted(types.items()))
    return f"{key}/{nodes}" if nodes > 1 else key


def by_node(known: Iterable[GpuKey]) -> list[list[GpuKey]]:
    """The cards of each node together; `known` has them side by side, as `cards` gives them."""
    return [list(keys) for _, keys in groupby(known, key=lambda key: key[0])]


def best_fit(
    job: Job, count: int, known: Mapping[GpuKey, Gpu], free: Mapping[GpuKey, int], rules: Rules
) -> tuple[GpuKey, ...] | None:
    """The cards, all of one node, that would be left with the least memory; None: nowhere."""
    if count == 0:
        return ()
    fits = []
    for keys in by_node(known):
        left = sorted(
            (free[key] - need, key)
            for key in keys
            if (need := need_mib(job, known[key], rules)) <= free[key]
        )[:count]
        if len(left) == count:
            fits.append((sum(mib for mib, _ in left), tuple(key for _, key in left)))
    return min(fits, default=(0, None))[1]


def lacking(
    job: Job, known: Mapping[GpuKey, Gpu], free: Mapping[GpuKey, int], rules: Rules
) -> Reason:
    """Why the job fits nowhere, in numbers."""
    if not known:
        return Reason("gpus", "there is no GPU")
    count = job.spec.gpus_min
    whole = takes_whole_card(job)
    if count == 1 and not whole:
        key = max(known, key=lambda key: free[key])
        need = need_mib(job, known[key], rules)
        return Reason("memory", f"needs {need}, free {free[key]} on {_name(key, known)}")
    fitting = max(
        sum(free[key] >= need_mib(job, known[key], rules) for key in keys)
        for keys in by_node(known)
    )
    if count == 1:
        why = "shares with nobody" if not job.spec.shareable else "has no known memory need"
        return Reason("gpus", f"needs a whole GPU, as it {why}; none is empty")
    what = "empty" if whole else f"with {job.memory_mib + rules.memory_margin_mib} MiB free"
    return Reason("gpus", f"needs {count} GPUs {what} on one node; now at most {fitting}")


def _name(key: GpuKey, known: Mapping[GpuKey, Gpu]) -> str:
    card = f"gpu{known[key].index}"
    return card if len({node for node, _ in known}) == 1 else f"{key[0]}/{card}"
