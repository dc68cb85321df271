"""How things are now: numbers from one view and what is observed on the GPUs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from scheduler.api.status import ENDED, State, state, waits_for
from scheduler.core.model import Gpu, GpuKey, Job, Measured, Node, Run, RunKey, Time, View, Waiting
from scheduler.gpus.usage import DRIVER, LIBRARY, WATCHDOG, Usage

MIB = 2**20
_LEVELS = {LIBRARY: 0, WATCHDOG: 1, DRIVER: 2}
# The kinds of reasons that a waiting job can have.
REASONS = (
    *(Waiting.HELD, Waiting.AFTER, Waiting.BACKOFF, Waiting.STOPPING, Waiting.NODES, Waiting.IMAGE),
    *(Waiting.GPUS, Waiting.MEMORY, Waiting.TURN, Waiting.PLANNING),
    Waiting.PARALLEL,
)
# Those of jobs that wait by request, or for a time that is known.
_NOT_READY = (Waiting.HELD, Waiting.AFTER, Waiting.BACKOFF, Waiting.PARALLEL)

Values = tuple[str, ...]  # of labels


@dataclass(frozen=True, slots=True)
class Gauge:
    name: str
    help: str
    labels: Values
    samples: Iterable[tuple[Values, float]]


def gauges(
    view: View, usage: Mapping[GpuKey, Usage], due_at: Time, jobs_max: int
) -> Iterator[Gauge]:
    yield from _jobs(view, due_at)
    yield from _nodes(view.nodes, view, usage)
    yield from _runs(view, usage, jobs_max)
    orphans = {key for key, pods in view.pods.items() if any(pod.orphan for pod in pods)}
    yield _one("orphans", "Runs in the cluster that no row knows.", len(orphans))


def _one(name: str, help: str, value: float) -> Gauge:
    return Gauge(f"scheduler_{name}", help, (), [((), value)])


def _jobs(view: View, due_at: Time) -> Iterator[Gauge]:
    states = Counter[str]({each: 0 for each in State if each not in ENDED.values()})
    reasons = Counter[str](dict.fromkeys(REASONS, 0))
    smallest: int | None = None
    for job in view.jobs.values():
        if job.outcome is not None:
            continue
        states[state(job, due_at)] += 1
        if job.run is None:
            reason = waits_for(job, view)
            reasons[reason] += 1
            if reason not in _NOT_READY:
                least = job.spec.gpus_min
                smallest = least if smallest is None else min(smallest, least)
    yield Gauge("scheduler_jobs", "Live jobs.", ("state",), _by_one(states))
    waiting = "Waiting jobs, by the kind of the reason."
    yield Gauge("scheduler_pending_jobs", waiting, ("reason",), _by_one(reasons))
    if smallest is not None:
        needed = "The fewest GPUs with which one of the waiting jobs that could start would start."
        yield _one("pending_gpus_min", needed, smallest)


def _by_one(counts: Mapping[str, int]) -> list[tuple[Values, float]]:
    return [((key,), count) for key, count in counts.items()]


# --- nodes and GPUs -----------------------------------------------------------------------------


def _nodes(nodes: Iterable[Node], view: View, usage: Mapping[GpuKey, Usage]) -> Iterator[Gauge]:
    nodes = sorted(nodes, key=lambda node: node.name)
    ready = [((node.name,), float(node.ready)) for node in nodes]
    yield Gauge("scheduler_node_ready", "1: runs can be started there.", ("node",), ready)
    levels = {node: _LEVELS.get(seen.keeps, 0) for (node, _), seen in usage.items()}
    limited = "What keeps runs to their memory: 0 the library, 1 the daemon, 2 the driver."
    by_node = [((node,), float(level)) for node, level in sorted(levels.items())]
    yield Gauge("scheduler_enforcement_level", limited, ("node",), by_node)
    gpus = {(node.name, gpu.uuid): gpu for node in nodes for gpu in node.gpus}
    yield Gauge(
        "scheduler_gpu_info",
        "1 for each GPU.",
        ("node", "gpu", "index", "type"),
        [((*key, str(gpu.index), gpu.type), 1.0) for key, gpu in gpus.items()],
    )
    for name, help, values in _gpu_values(gpus, view, usage):
        yield Gauge(f"scheduler_gpu_{name}", help, ("node", "gpu"), values)


def _gpu_values(
    gpus: Mapping[GpuKey, Gpu], view: View, usage: Mapping[GpuKey, Usage]
) -> Iterator[tuple[str, str, list[tuple[Values, float]]]]:
    held = {key: view.held.get(key, {}) for key in gpus}
    seen = {key: usage[key].reading for key in gpus if key in usage}
    yield (
        "memory_capacity_bytes",
        "Memory that runs may share.",
        [(key, gpu.capacity_mib * MIB) for key, gpu in gpus.items()],
    )
    yield (
        "memory_reserved_bytes",
        "Memory granted to runs.",
        [(key, sum(of.values()) * MIB) for key, of in held.items()],
    )
    yield (
        "memory_used_bytes",
        "Memory that the driver says is in use.",
        [(key, reading.used_mib * MIB) for key, reading in seen.items()],
    )
    yield (
        "memory_foreign_bytes",
        "Memory in use by processes that are not ours, beyond the headroom.",
        [(key, gpu.strange_mib * MIB) for key, gpu in gpus.items()],
    )
    yield "jobs", "Runs on the GPU.", [(key, len(of)) for key, of in held.items()]
    yield (
        "sm_ratio",
        "The part of the time in which some kernel ran.",
        [(key, reading.busy) for key, reading in seen.items()],
    )
    yield (
        "faulty",
        "1: nothing is started on the GPU; scheduler-state says why.",
        [(key, float(bool(gpu.fault))) for key, gpu in gpus.items()],
    )


# --- runs ---------------------------------------------------------------------------------------


def _runs(view: View, usage: Mapping[GpuKey, Usage], jobs_max: int) -> Iterator[Gauge]:
    """Of at most `jobs_max` jobs, the oldest ones: each costs its reader a series for each GPU."""
    running = [job for job in view.jobs.values() if job.run is not None]
    shown = {job.id: job for job in running[:jobs_max]}
    left_out = "Jobs with a run that are not shown one by one, because there are too many."
    yield _one("runs_left_out", left_out, len(running) - len(shown))
    granted: list[tuple[Values, float]] = []
    memory: list[tuple[Values, float]] = []
    busy: list[tuple[Values, float]] = []
    observed = _of_runs(usage)
    for job in shown.values():
        run = job.run
        assert run is not None, "only jobs with a run are shown"
        who = (job.id, job.spec.name, job.spec.user)
        for share in run.shares:
            values = (*who, share.node, share.gpu)
            granted.append((values, share.memory_mib * MIB))
            if share.key in usage:
                mib, part = observed.get(((job.id, run.attempt), share.key), (0, 0.0))
                memory.append((values, mib * MIB))
                busy.append((values, part))
    labels = ("job_id", "name", "user", "node", "gpu")
    of_run = "scheduler_run"
    help = "Memory granted to the run."
    yield Gauge(f"{of_run}_memory_granted_bytes", help, labels, granted)
    help = "Memory that its processes are seen to use."
    yield Gauge(f"{of_run}_memory_seen_bytes", help, labels, memory)
    help = "The part of the time in which its kernels ran."
    yield Gauge(f"{of_run}_sm_ratio", help, labels, busy)
    yield from _speeds(shown.values())


def _of_runs(
    usage: Mapping[GpuKey, Usage],
) -> dict[tuple[RunKey, GpuKey], tuple[int, float]]:
    """What the processes of each run use of each GPU together."""
    found: dict[tuple[RunKey, GpuKey], tuple[int, float]] = {}
    for gpu, seen in usage.items():
        for process, run in zip(seen.reading.processes, seen.runs, strict=True):
            if run is not None:
                mib, busy = found.get((run, gpu), (0, 0.0))
                found[run, gpu] = mib + process.memory_mib, busy + process.busy
    return found


def _speeds(jobs: Iterable[Job]) -> Iterator[Gauge]:
    speeds: list[tuple[Values, float]] = []
    slowed: list[tuple[Values, float]] = []
    for job in jobs:
        if not (job.run and job.measured):
            continue
        who = (job.id, job.spec.name, job.spec.user)
        newest = job.measured[-1]
        if job.spec.training_set_size > 1 and newest.seconds > 0:
            speeds.append((who, job.spec.training_set_size / newest.seconds))
        if alone := _alone(job, job.run, newest):
            slowed.append((who, newest.seconds / alone))
    labels = ("job_id", "name", "user")
    help = "Samples per second in the newest situation that was measured."
    yield Gauge("scheduler_job_samples_per_second", help, labels, speeds)
    help = "How many times as long an epoch takes beside the neighbours as alone, as measured."
    yield Gauge("scheduler_colocation_slowdown_ratio", help, labels, slowed)


def _alone(job: Job, run: Run, newest: Measured) -> float:
    """Seconds per epoch alone on the same GPUs; 0: its newest epochs were alone, or not known."""
    if not newest.beside or newest.placement != run.placement:
        return 0.0
    return next(
        (m.seconds for m in job.measured if (m.placement, m.beside) == (run.placement, ())), 0.0
    )
