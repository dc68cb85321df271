"""The text of reasons as it was when journals had digests of version 1, for their replay. Pure.

To be removed when no journal of version 1 is kept any more (`Decider.digest_version`). Nothing here
follows a change of wording elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.core.model import GpuCounts, JobId, Reason, Waiting, WholeGpus

_ALONE = {
    WholeGpus.EXCLUSIVE: ", as it shares with nobody",
    WholeGpus.UNKNOWN: ", as it has no known memory need",
}


def reasons(why: Mapping[JobId, Reason], policy: str) -> dict[JobId, dict[str, str]]:
    """As they were encoded. `policy`: fifo_sharing named all jobs, the others the first few."""
    made: dict[int, dict[str, str]] = {}  # by identity: many jobs have the same reason
    for reason in why.values():
        if id(reason) not in made:
            detail = _detail(reason, policy == "fifo_sharing")
            made[id(reason)] = {"kind": reason.kind, "detail": detail}
    return {job_id: made[id(reason)] for job_id, reason in why.items()}


def _detail(reason: Reason, names_all: bool) -> str:
    def names(of: Sequence[str], more: int = 0) -> str:
        return ", ".join(of) if names_all else _listed(of, more)

    match reason.kind:
        case Waiting.HELD:
            return "until it is released"
        case Waiting.BACKOFF:
            return f"tries again in {reason.seconds} s, after: {reason.cause}"
        case Waiting.STOPPING:
            parts = (
                (reason.asked, "to stop at the end of an epoch"),
                (reason.gone, "to be gone"),
                (reason.ends, "to end"),
            )
            words = " and ".join(f"{names(of)} {what}" for of, what in parts if of)
            return f"waits for {words or 'the rest of its last run to be gone'}"
        case Waiting.NODES:
            return "no node is ready"
        case Waiting.IMAGE:
            image = reason.image or "the image of jobs that name none"
            if reason.image_nodes:
                return f"{_others(reason)[2:]}, and no GPU can be used there"
            nodes = "node with GPUs" if reason.gpus else "node that is ready"
            return f"no {nodes} has {image}, and none may be pulled"
        case Waiting.GPUS:
            return _gpus(reason) + _others(reason)
        case Waiting.MEMORY if reason.jobs:
            there = f"is to share with {names(reason.jobs)}, where there is no room yet"
            return there + _others(reason)
        case Waiting.MEMORY:
            where = f"{reason.node}/" * bool(reason.node) + f"gpu{reason.gpu}"
            free = f"needs {reason.memory_mib}, free {reason.free_mib} on {where}"
            return free + _others(reason)
        case Waiting.TURN:
            if not reason.jobs and reason.whole is None:
                return "others come first" + _others(reason)
            whom = names(reason.jobs, reason.jobs_more) or "others"
            return f"what is free is kept for {whom}{_others(reason)}"
    return ""  # of a run: no job waited for this


def _gpus(reason: Reason) -> str:
    count, whole = reason.gpus, reason.whole
    if reason.there is not None:
        if not count:
            return "there is no GPU"
        return f"needs {_needed(reason, '')}; there are {_most(reason.there)}"
    free = reason.free or ()
    if free and free[0][0] == "" and whole is not WholeGpus.POLICY:
        return _of_fifo_sharing(reason, free[0][1])
    shared = ", and none is better shared with it" if whole is None and count == 1 else ""
    return f"needs {_needed(reason, 'free ')}; free now: {_most(free)}{shared}"


def _of_fifo_sharing(reason: Reason, fitting: int) -> str:
    if reason.gpus == 1:
        return f"needs a whole GPU{_ALONE[reason.whole or WholeGpus.UNKNOWN]}; none is empty"
    what = "empty" if reason.whole else f"with {reason.memory_mib} MiB free"
    where = " on one node" if reason.nodes == 1 else _on_nodes(reason)
    return f"needs {reason.gpus} GPUs {what}{where}; now at most {fitting}"


def _needed(reason: Reason, state: str) -> str:
    gpus = f"{reason.gpus} {state}GPUs" if reason.gpus != 1 else f"a {state}GPU"
    size = f" with {reason.memory_mib:,} MiB" if reason.memory_mib else ""
    if reason.whole is None:
        size = f" with {reason.memory_mib:,} MiB"
    most = ", as many as it can use" if reason.most else ""
    alone = _ALONE.get(reason.whole, "") if reason.whole else ""
    return f"{gpus}{size}{_on_nodes(reason)}{alone}{most}"


def _on_nodes(reason: Reason) -> str:
    return f" on {reason.nodes} or more nodes" if reason.nodes > 1 else ""


def _others(reason: Reason) -> str:
    if not reason.image_nodes:
        return ""
    image = reason.image or "the image of jobs that name none"
    return f"; no node but {_listed(reason.image_nodes, reason.image_nodes_more)} has {image}"


def _listed(names: Sequence[str], more: int = 0) -> str:
    named, count = list(names), len(names) + more
    if count > 3:
        named[2:] = [f"{count - 2} others"]
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


def _most(counts: GpuCounts) -> str:
    if len(counts) > 1:
        return ", ".join(f"{count} {type}" for type, count in counts)
    return str(max((count for _, count in counts), default=0))
