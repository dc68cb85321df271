"""The text of reasons, in one place. Pure.

Text is made where it leaves the program: for people (api/) and when a run is asked to stop
(adopt.py). What is written into rows (`stop_reason`) may not change its wording: journals are
replayed against rows that were written before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from signal import Signals

from scheduler.core.model import GpuCounts, Reason, Waiting, When, WholeGpus

NAMES_MAX = 3  # further names are counted
DEFAULT_IMAGE = "the default image"

_WHOLE = {
    None: "",
    WholeGpus.POLICY: "",
    WholeGpus.EXCLUSIVE: " because it shares with no other job",
    WholeGpus.UNKNOWN: " because its memory use is not known yet (--estimated_memory)",
}
_ENDED = re.compile(
    r"(exit code (?P<code>[0-9]{1,3})|killed by (?P<name>SIG[A-Z0-9+-]+)"
    r"|killed by signal (?P<number>[0-9]{1,3}))(,|$)"
)
_PREEMPTIONS = (Waiting.PREEMPTED, Waiting.MADE_ROOM)


def line(reason: Reason) -> str:
    """`kind (text)`."""
    detail = text(reason)
    return f"{reason.kind} ({detail})" if detail else str(reason.kind)


def text(reason: Reason) -> str:
    match reason.kind:
        case Waiting.HELD:
            return "until it is released"
        case Waiting.AFTER:
            return _after(reason)
        case Waiting.BACKOFF:
            return f"tries again in {reason.seconds} s, after: {reason.cause}"
        case Waiting.STOPPING:
            return reason.cause or _stopping(reason)
        case Waiting.NODES:
            return "no node is ready"
        case Waiting.IMAGE:
            return _image(reason)
        case Waiting.GPUS:
            return _gpus(reason) + _with_image(reason)
        case Waiting.MEMORY:
            return _memory(reason) + _with_image(reason)
        case Waiting.TURN:
            return _turn(reason) + _with_image(reason)
        case Waiting.PLANNING:
            unobserved = "waits for the first observation of the cluster"
            return "will be planned in a moment" if reason.observed else unobserved
        case Waiting.PARALLEL:
            first = f"; {_jobs(reason)} come{_s(reason)} first" if reason.jobs else ""
            return f"at most {reason.parallel} at once{first}"
        case Waiting.STARTING:
            return reason.cause
        case Waiting.SILENT:
            return "no report for more than two heartbeats"
        case Waiting.SLOWED:
            return _slowed(reason)
        case Waiting.PREEMPTED:
            return _preempted(reason)
        case Waiting.MOVED:
            return _moved(reason)
        case Waiting.MADE_ROOM:
            grown = "it was" if reason.grown else "others were"
            return f"on gpu{reason.gpu}, where {grown} measured to need more"
        case Waiting.STOPPED:
            return "by the plan"


def stop_reason(reason: Reason) -> str:
    """`Run.stop_reason` for a run that is asked to stop for this reason: `preempted for b`."""
    detail = "by request" if reason.kind is Waiting.HELD else text(reason)
    return f"{reason.kind} {detail}"


def is_preemption(stop_reason: str) -> bool:
    """Whether a run was stopped for the sake of others, by the text in its job's row. A row keeps
    nothing but this text, which `stop_reason` above wrote, so its first word is compared."""
    return stop_reason.startswith(_PREEMPTIONS)


def exit_code(failure: str) -> int | None:
    """The exit code of the program of a failed job, as a shell gives it, by the text in the job's
    row. None: the job did not fail by the end of its program."""
    ended = _ENDED.match(failure)
    if ended is None:
        return None
    if name := ended["name"]:
        return 128 + Signals[name] if name in Signals.__members__ else None
    return int(ended["code"] or 128 + int(ended["number"]))


def first_named(names: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """The names that a text can list, and the number of the others: for reasons that concern many
    jobs."""
    named = tuple(dict.fromkeys(names))
    return named[:NAMES_MAX], max(0, len(named) - NAMES_MAX)


def listed(names: Iterable[str], more: int = 0) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    named = list(names)
    count = len(named) + more
    if count > NAMES_MAX:
        named[NAMES_MAX - 1 :] = [f"{count - NAMES_MAX + 1} others"]
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


# --- jobs that wait -----------------------------------------------------------------------------


def _after(reason: Reason) -> str:
    how = {When.FAILED: " to fail", When.FINISHED: " to end", When.ENDED: " to end"}
    where = f" ({reason.cause})" if reason.cause else ""
    return f"waits for {_jobs(reason)}{how.get(reason.when, '') if reason.when else ''}{where}"


def _stopping(reason: Reason) -> str:
    parts = (
        (reason.asked, "to stop at the end of an epoch"),
        (reason.gone, "to be gone"),
        (reason.ends, "to end"),
    )
    words = [f"for {listed(names)} {what}" for names, what in parts if names]
    return f"waits {' and '.join(words or ['for the pods of its last run to be gone'])}"


def _image(reason: Reason) -> str:
    if reason.image_nodes:
        return f"{_only(reason)}, and no GPU there can be used"
    nodes = "node with GPUs" if reason.gpus else "ready node"
    return f"no {nodes} has {reason.image or DEFAULT_IMAGE}, and it may not be pulled"


def _with_image(reason: Reason) -> str:
    return f"; {_only(reason)}" if reason.image_nodes else ""


def _only(reason: Reason) -> str:
    nodes = listed(reason.image_nodes, reason.image_nodes_more)
    have = "have" if len(reason.image_nodes) > 1 else "has"
    return f"only {nodes} {have} {reason.image or DEFAULT_IMAGE}"


def _gpus(reason: Reason) -> str:
    if reason.there is not None:
        if not reason.gpus:
            return "there is no GPU"
        state = "" if reason.whole in (None, WholeGpus.POLICY) else "whole "
        return f"needs {_needed(reason, state)}; {_there_are(reason.there)}"
    free = _most(reason.free or ())
    if reason.jobs:
        return _does_not_share(reason)
    if reason.whole in (None, WholeGpus.POLICY):
        return f"needs {_needed(reason, 'empty ')}; empty now: {free}"
    if free != "0":
        return f"needs {_needed(reason, 'whole ')}; empty now: {free}"
    large = " large enough" if reason.whole is WholeGpus.EXCLUSIVE else ""
    return f"needs {_needed(reason, 'whole ')}; no GPU{large} is empty"


def _does_not_share(reason: Reason) -> str:
    """Not `free` but *empty* is what the GPU lacks."""
    free = f"{reason.free_mib:,} MiB are free beside {_jobs(reason)} on {_gpu(reason)}"
    return f"{free}; sharing with {_it(reason)} is expected to cost more than waiting"


def _needed(reason: Reason, state: str) -> str:
    """`a free GPU with 12,000 MiB`, `16 whole GPUs on 2 or more nodes because ...`"""
    one = "an" if state.startswith("e") else "a"
    gpus = f"{reason.gpus} {state}GPUs" if reason.gpus > 1 else f"{one} {state}GPU"
    size = f" with {reason.memory_mib:,} MiB" if reason.memory_mib else ""
    most = ", as many as it can use" if reason.most else ""
    return f"{gpus}{size}{_on_nodes(reason.nodes)}{_WHOLE[reason.whole]}{most}"


def _on_nodes(nodes: int) -> str:
    if nodes == 1:
        return " on one node"
    return f" on {nodes} or more nodes" if nodes else ""


def _memory(reason: Reason) -> str:
    if reason.jobs:
        return f"will run beside {_jobs(reason)}, which leave{_s(reason)} too little memory so far"
    free = f"{_gpu(reason)} has the most free: {reason.free_mib:,} MiB"
    return f"needs {reason.memory_mib:,} MiB; {free}"


def _turn(reason: Reason) -> str:
    if not reason.jobs:
        return "other jobs come first"
    return f"what is free is reserved for {_jobs(reason)}"


# --- runs ---------------------------------------------------------------------------------------


def _preempted(reason: Reason) -> str:
    if reason.gpu is not None:
        room = f"no room beside {_jobs(reason)} on gpu{reason.gpu}"
        return f"{room}: needs {reason.memory_mib}, free {reason.free_mib}"
    if not reason.jobs:
        return "for others"
    return f"for {_jobs(reason)}{', which it may slow' if reason.slows else ''}"


def _moved(reason: Reason) -> str:
    sake = f"for {_jobs(reason)}" if reason.jobs else ""
    match reason.before, reason.after:
        case (("", here),), (("", there),):
            gpus = "GPUs" if here > 1 else "GPU"
            return f"from {here} {gpus} to {there}{', ' * bool(sake)}{sake}"
        case (before, after) if before != after:
            return f"from {_each(before)} to {_each(after)}"
    if reason.nodes_before:
        return f"from {reason.nodes_before} nodes to {reason.nodes}"
    if sake:
        return sake
    return "to other GPUs of the same type" if reason.before else "by the plan"


def _slowed(reason: Reason) -> str:
    if not reason.gpus:
        how = "measured" if reason.measured else "expected"
        return f"{reason.speed:.2f} of its speed alone, {how} beside {_jobs(reason)}"
    verb = "are" if len(reason.jobs) > 1 else "is"
    where = f", where {_jobs(reason)} {verb}" if reason.jobs else ""
    return f"{reason.speed:.2f} of its speed on {reason.gpus} GPUs{where}"


# --- parts --------------------------------------------------------------------------------------


def _jobs(reason: Reason) -> str:
    return listed(reason.jobs, reason.jobs_more)


def _it(reason: Reason) -> str:
    return "them" if len(reason.jobs) > 1 else "it"


def _s(reason: Reason) -> str:
    return "" if len(reason.jobs) > 1 else "s"


def _gpu(reason: Reason) -> str:
    return f"{reason.node}/gpu{reason.gpu}" if reason.node else f"gpu{reason.gpu}"


def _there_are(counts: GpuCounts) -> str:
    most = _most(counts)
    return {"0": "there is none", "1": "there is 1"}.get(most, f"there are {most}")


def _most(counts: GpuCounts) -> str:
    """`2`, or where there are several types, `2 t4, 1 a100`: one run has GPUs of one type."""
    return _each(counts) if len(counts) > 1 else str(max((n for _, n in counts), default=0))


def _each(counts: GpuCounts) -> str:
    return ", ".join(f"{count} {type}" for type, count in counts)
