"""Jobs and GPUs as lines of text: the list, the full record, the cluster. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from scheduler.presentation import outlook, story
from scheduler.presentation.records import pairs
from scheduler.presentation.render import (
    Cell,
    Column,
    Screen,
    ago,
    bar,
    clock,
    fields,
    printable,
    span,
    table,
    with_separators,
    wrap,
)
from scheduler.v1 import scheduler_pb2 as pb

SHORT = 8  # this many characters of an id's end are enough to select a job
ENDED = ("FINISHED", "FAILED", "CANCELED", "SKIPPED")
_WAITING = ("HELD", "QUEUED")

_COLOURS = {
    "HELD": "grey",
    "QUEUED": "yellow",
    "STARTING": "cyan",
    "RUNNING": "green",
    "STOPPING": "cyan",
    "UNRESPONSIVE": "magenta",
    "FAILED": "red",
    "CANCELED": "grey",
    "SKIPPED": "grey",
}
_COLUMNS = (
    Column("ID"),
    Column("USER", least=8),
    Column("NAME", least=12, keep_end=True),
    Column("STATE"),
    Column("EPOCHS", right=True),
    Column("GPUS", right=True, optional=True),
    Column("SUBMITTED", optional=True),
    Column("NOTE", least=26),
)


def title(job: pb.Job) -> str:
    """How the commands that change a job name it."""
    return f"{printable(job.spec.name)} ({job.id[-SHORT:]})"


# --- the list -----------------------------------------------------------------------------------


def jobs(messages: Sequence[pb.Job], now: float, screen: Screen, users: bool) -> list[str]:
    rows = [_row(job, now) for job in messages]
    columns = list(_COLUMNS)
    if not users:
        del columns[1]
        for row in rows:
            del row[1]
    return table(columns, rows, screen) if rows else []


def _row(job: pb.Job, now: float) -> list[Cell]:
    return [
        Cell(job.id[-SHORT:]),
        Cell(job.spec.user),
        Cell(job.spec.name),
        Cell(job.state, _COLOURS.get(job.state, "")),
        Cell(f"{job.epochs_done}/{job.max_epochs}"),
        Cell(str(len(job.shares)) if job.shares else "-"),
        Cell(ago(job.submitted_at, now)),
        Cell(remark(job)),
    ]


def remark(job: pb.Job) -> str:
    """The most useful information: why it waits, how much longer it runs, or how it ended."""
    if finished_plainly(job) and job.started_at:
        return f"took {span(job.ended_at - job.started_at)}"
    if reason := with_separators(job.reason):
        return f"preempted; {reason}" if job.preempted else reason
    return f"{span(job.eta_seconds)} left" if job.HasField("eta_seconds") else ""


def _waits(job: pb.Job, now: float) -> str:
    """Why it waits; where waiting costs less than something else, also how long that is."""
    told = with_separators(job.reason)
    if told.endswith("than waiting)") and job.eta.HasField("starts_at"):
        told = f"{told.removesuffix(')')} (about {span(job.eta.starts_at - now)}))"
    return f"pending: {told}"


def finished_plainly(job: pb.Job) -> bool:
    """Whether it has finished and its outcome says no more than that."""
    return job.state == "FINISHED" and job.reason in ("", "finished")


def failure(job: pb.Job) -> str:
    """`exit code 1; its log: ValueError: ...`"""
    return "; its log: ".join(filter(None, (with_separators(job.reason), job.log_line)))


def progress(job: pb.Job) -> str:
    """The progress line of `run-scheduler --wait`."""
    epochs = f"epoch {job.epochs_done}/{job.max_epochs}"
    return ", ".join(filter(None, (f"{job.spec.name}: {job.state}", epochs, remark(job))))


# --- one job ------------------------------------------------------------------------------------


def record(
    reply: pb.GetJobReply,
    now: float,
    screen: Screen,
    extended: bool,
    more: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """`more`: what is known of it from elsewhere."""
    job = reply.job
    title = f"{printable(job.spec.name)}  {screen.paint(job.state, _COLOURS.get(job.state, ''))}"
    facts = [*about(job, now), *more]
    if extended:
        facts += options(job.spec)
        facts += _origin(reply.origin)
    if extended and reply.HasField("learned"):
        facts += outlook.learned_fields(reply.learned)
    lines = [title, *fields(facts, screen)]
    if reply.story:
        lines.append(f"  {screen.paint('story', 'grey')}")
        told = [(clock(fact.at, now), story.sentence(fact)) for fact in reply.story]
        lines += fields(told, screen, indent=4)
    return lines


def about(job: pb.Job, now: float) -> Iterator[tuple[str, str]]:
    spec = job.spec
    yield "id", job.id
    if job.reason and job.reason != "finished":
        yield "why", _waits(job, now) if job.state in _WAITING else failure(job)
    elif job.why.kind == "slowed":
        yield "slowed", job.why.detail
    if job.last_run:
        yield "last run", with_separators(job.last_run)
    if starts := outlook.start_forecast(job, now):
        yield "starts", starts
    yield "epochs", _epochs(job)
    if _epochs_missing(job):
        yield "weights", f"have only {job.epochs_trained} of these {job.epochs_done} epochs"
    if ends := outlook.end_forecast(job, now):
        yield "ends", ends
    for share in job.shares:
        yield "on", f"{share.node} {share.gpu}, {share.memory_mib:,} MiB"
    if job.attempt:
        began = f", started {ago(job.run_started_at, now)}" if job.run_started_at else ""
        heard = f", last heard from {ago(job.heard_at, now)}" if job.heard_at else ""
        yield "attempt", f"{job.attempt}{began}{heard}"
    yield (
        "submitted",
        f"{clock(job.submitted_at, now)}, {ago(job.submitted_at, now)}, by {spec.user}",
    )
    if job.HasField("started_at"):
        yield "started", f"{clock(job.started_at, now)}, {ago(job.started_at, now)}"
    if job.HasField("ended_at"):
        took = f", after {span(job.ended_at - job.started_at)}" if job.started_at else ""
        yield "ended", f"{clock(job.ended_at, now)}, {ago(job.ended_at, now)}{took}"
    yield "wants", gpu_request(spec, job.memory_mib)
    if job.priority != 1:
        yield "priority", str(job.priority)
    for name, value in (("project", spec.project), ("experiment", spec.experiment)):
        if value:
            yield name, value
    if spec.labels:
        yield "labels", " ".join(f"{key}={value}" for key, value in pairs(spec.labels).items())
    for key, value in pairs(job.annotations).items():
        yield "annotated", f"{key}={' '.join(value.split())}"
    yield "runs", _command(spec)


def _epochs_missing(job: pb.Job) -> int:
    """How many of the epochs done are not in the weights, as far as the library has told."""
    return job.epochs_done - job.epochs_trained if job.HasField("epochs_trained") else 0


def _epochs(job: pb.Job) -> str:
    told = f"{job.epochs_done} of {job.max_epochs}"
    if job.HasField("epoch_seconds"):
        told += f", {span(job.epoch_seconds)} each"
    if job.HasField("eta_seconds") and not job.eta.HasField("ends_at"):
        told += f", {span(job.eta_seconds)} left"
    if job.state == "FINISHED" and job.max_epochs == 1 and job.HasField("epoch_seconds"):
        told += "; --max_epochs N trains more than 1"
    return told


def gpu_request(spec: pb.JobSpec, memory_mib: int = 0) -> str:
    """`1 to 4 GPUs, 6,000 MiB, alone`: the memory is for each GPU."""
    least, most = spec.gpus_min, spec.gpus_max
    if most == 0:
        return "no GPU"
    count = f"{least} to {most}" if least != most else str(least)
    memory = memory_mib or spec.memory_mib
    each = f"{memory:,} MiB" if memory else "whole until its memory use is measured"
    alone = ", alone" if spec.disable_gpu_sharing else ""
    return f"{count} GPU{'s' if most > 1 else ''}, {each}{alone}"


def _command(spec: pb.JobSpec) -> str:
    from shlex import join  # used only here

    return join([*(spec.command or ["python", spec.script_path]), *spec.args])


def _origin(origin: pb.CodeOrigin) -> Iterator[tuple[str, str]]:
    """Where the files of its package were."""
    if origin.commit:
        on = f" on {printable(origin.branch)}" if origin.branch else ""
        by = f", by {printable(origin.author)}" if origin.author else ""
        yield "commit", f"{origin.commit[:12]}{on}{by}{', dirty' if origin.dirty else ''}"
    if origin.folder:
        yield "from", printable(origin.folder)
    if origin.remote:
        yield "remote", printable(origin.remote)
    if origin.untracked:
        yield "untracked", printable(", ".join(origin.untracked))
    for number, line in enumerate(origin.diff.splitlines()):
        yield "" if number else "diff", printable(line)


def options(spec: pb.JobSpec) -> Iterator[tuple[str, str]]:
    """The flags that would submit the same job again."""
    for field, value in spec.ListFields():
        if field.name in FLAGS:
            yield FLAGS[field.name], str(value).lower() if isinstance(value, bool) else str(value)
    if spec.process_per_gpu:
        yield "--processes_per_node", "gpu"
    for name, value in pairs(spec.env).items():
        yield "--env", f"{name}={value}"
    if spec.time_limit_seconds:
        yield "--time_limit", f"{spec.time_limit_seconds:.0f}s"
    if spec.maximize:
        yield "--mode", "max"
    for after in spec.after:
        yield "--after", f"{after.job}:{after.when}"
    for name in spec.secrets:
        yield "--secret", name
    for name, source in pairs(spec.folders).items():
        yield "--folder", f"{name}={source}"
    for volume in spec.volumes:
        yield "--volume", volume
    if spec.exported:
        yield "--export", ",".join(pair.key for pair in spec.exported)
    if spec.ports:
        yield "--port_mapping", ",".join(f"{port.host}:{port.container}" for port in spec.ports)
    if spec.args:
        yield "--", json.dumps(list(spec.args), ensure_ascii=False)


FLAGS = {
    "image": "--image",
    "script_path": "--script_path",
    "custom_dir": "--custom_dir",
    "snapshots_dir": "--snapshots_dir",
    "max_epochs": "--max_epochs",
    "batch_size": "--batch_size",
    "training_set_size": "--training_set_size",
    "gpus_min": "--min_gpus",
    "gpus_max": "--max_gpus",
    "memory_mib": "--estimated_memory",
    "is_single_gpu": "--is_single_gpu",
    "disable_gpu_sharing": "--disable_gpu_sharing",
    "priority": "--priority",
    "held": "--hold",
    "hours_estimate": "--est_nhours",
    "retries": "--retries",
    "keep_library": "--keep_library",
    "no_tracking": "--no_tracking",
    "debug_wait": "--debug_wait",
    "code": "--code",
    "step": "step",
    "directory": "directory",
    "parallel": "--parallel",
    "metric": "--metric",
    "prune": "--prune",
    "prune_after": "--prune_after",
    "storage": "--storage",
    "storage_size": "--default_pvc_size",
    "registry_secret": "--registry_secret",
}


# --- what a change has done ----------------------------------------------------------------------


def cancel_result(reply: pb.CancelJobReply, graceful: bool) -> list[str]:
    first = _cancelled(reply.job, graceful)
    if reply.already_ended:
        first = f"{title(reply.job)}: already {reply.job.state.lower()}"
    return [first, *(_cancelled(job, graceful) for job in reply.dependents)]


def left_behind(reply: pb.CancelJobReply) -> str:
    """What becomes of the jobs that wait for the end of a cancelled one."""
    if not reply.behind:
        return ""
    named, more = [printable(job.name) for job in reply.behind[:3]], len(reply.behind) - 3
    names = ", ".join([*named, *([f"{more} more"] if more > 0 else [])])
    wait = "jobs wait" if len(reply.behind) > 1 else "job waits"
    return (
        f"{len(reply.behind)} {wait} for its end: {names}; what needs its success is skipped"
        " (--with_dependents cancels all of them)"
    )


def _cancelled(job: pb.Job, graceful: bool) -> str:
    name = title(job)
    if job.state == "CANCELED":
        return f"{name}: canceled"
    when = "at the end of its epoch" if graceful else "now"
    return f"{name}: stopping {when}"


def update_result(changes: pb.UpdateJobRequest, job: pb.Job) -> str:
    return f"{title(job)}: {', '.join(_changed(changes, job))}"


def _changed(changes: pb.UpdateJobRequest, job: pb.Job) -> Iterator[str]:
    if changes.HasField("held"):
        yield _held(job) if changes.held else "released"
    if changes.HasField("priority"):
        yield f"priority {job.priority}"
    if changes.HasField("max_epochs"):
        yield f"{job.max_epochs:,} epoch{'s' if job.max_epochs > 1 else ''}"
    for key, value in pairs(changes.annotate).items():
        yield f"annotated {printable(key)}" if value else f"without {printable(key)}"


def _held(job: pb.Job) -> str:
    if not job.run_started_at:
        return "held"
    if job.heard_at:
        return "held from the end of its epoch"
    return "held from the end of its run, which has reported no epoch yet"


# --- the cluster --------------------------------------------------------------------------------


def cluster(message: pb.Cluster, screen: Screen) -> list[str]:
    lines = _gpus(message.gpus, screen) or ["no GPU has been seen yet"]
    lines += [
        line for each in _memory_enforcement(message.gpus) for line in wrap(each, screen.width)
    ]
    if message.users:
        lines += ["", *_users(message.users, screen)]
    return lines


def _gpus(gpus: Sequence[pb.GpuState], screen: Screen) -> list[str]:
    several = len({gpu.node for gpu in gpus}) > 1
    seen = any(gpu.HasField("used_mib") for gpu in gpus)
    columns = (screen.width or 100) // 4
    rows = []
    for gpu in gpus:
        name = f"{gpu.node}/gpu{gpu.index}" if several else f"gpu{gpu.index}"
        used = f"{gpu.used_mib:,}/{gpu.memory_mib:,}" if gpu.HasField("used_mib") else "-"
        busy = f"{gpu.busy:.0%}" if gpu.HasField("busy") else "-"
        fault = with_separators(gpu.fault) if gpu.ready else "node not ready"
        beside = "; ".join(filter(None, (_slow(gpu), ", ".join(map(_job_memory, gpu.jobs)))))
        rows.append(
            [
                Cell(name),
                Cell(gpu.type),
                _bar(gpu, columns, screen),
                Cell(f"{gpu.reserved_mib:,}/{gpu.capacity_mib:,}"),
                *([Cell(used), Cell(busy)] if seen else []),
                Cell("; ".join(filter(None, (fault, beside))), "red" if fault else ""),
            ]
        )
    titles = [
        Column("GPU"),
        Column("TYPE", least=12, optional=True),
        Column("MEMORY", optional=seen),
        Column("HELD" if seen else "MIB", right=True),
        *([Column("USED", right=True), Column("BUSY", right=True)] if seen else []),
        Column("JOBS", least=20),
    ]
    return table(titles, rows, screen) if rows else []


def _slow(gpu: pb.GpuState) -> str:
    if not gpu.HasField("slow"):
        return ""
    epochs, jobs = (
        f"{number:,} {name}{'' if number == 1 else 's'}"
        for number, name in ((gpu.slow.epochs, "epoch"), (gpu.slow.jobs, "job"))
    )
    return f"{gpu.slow.speed:.2f}x as fast as its type ({epochs} of {jobs})"


def _job_memory(job: pb.GpuJob) -> str:
    """The job's share, and what it uses if that is more."""
    uses = f" (uses {job.used_mib:,})" if job.used_mib > job.memory_mib else ""
    return f"{job.name} {job.memory_mib:,}{uses}"


def _memory_enforcement(gpus: Sequence[pb.GpuState]) -> Iterator[str]:
    """What enforces the memory limits of jobs on each node."""
    for node, keeps in sorted({(gpu.node, gpu.keeps) for gpu in gpus if gpu.keeps}):
        yield f"memory limits on {node} are enforced by {_ENFORCERS.get(keeps, keeps)}"


_ENFORCERS = {
    "library": "the client library alone; the memory use of other processes is not known",
    "watchdog": "the watchdog: a job that uses more is stopped after its epoch, or immediately",
    "driver": "the driver: no job can get more",
}


def _bar(gpu: pb.GpuState, columns: int, screen: Screen) -> Cell:
    parts = [job.memory_mib for job in gpu.jobs]
    others = gpu.reserved_mib - sum(parts)  # held by pods that are ending
    return bar([*parts, others] if others > 0 else parts, gpu.capacity_mib, columns, screen)


def _users(users: Sequence[pb.UserTotal], screen: Screen) -> list[str]:
    columns = (
        Column("USER", least=8),
        Column("RUNNING", right=True),
        Column("WAITING", right=True),
        Column("GPUS", right=True),
        Column("MIB", right=True),
    )
    rows = [
        [
            Cell(total.user),
            Cell(str(total.running)),
            Cell(str(total.waiting)),
            Cell(f"{total.gpus:.1f}"),
            Cell(f"{total.memory_mib:,}"),
        ]
        for total in users
    ]
    return table(columns, rows, screen)
