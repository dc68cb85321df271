"""What a job asks of Slurm: flags of `sbatch`; what Slurm cannot do is refused by name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import split

from cli.slurm.slurm_settings import (
    Resources,
    SlurmSettings,
    minutes,
    read_resources,
    refused,
)
from scheduler.v1 import scheduler_pb2 as pb

COMMENT = "epoch-scheduler:"  # then the job's id
GPUS_PER_NODE = 8  # more are on several nodes, unless `gpus_per_node` says otherwise


def flags(job_id: str, spec: pb.JobSpec, settings: SlurmSettings) -> list[str]:
    """Raises CommandError for what Slurm cannot do."""
    asked = read_resources(settings.resources)
    _refuse(spec)
    found = [f"--comment={COMMENT}{job_id}", f"--job-name={spec.name}"]
    found += ["--requeue", "--open-mode=append", "--output=slurm.log", "--error=slurm.log"]
    found += [f"--signal=B:USR1@{warning_seconds(spec, settings)}"]
    found += of_context(settings)
    if seconds := _run_seconds(spec, asked):
        found += ["-t", str(minutes(seconds))]
    found += _gpu_flags(spec, asked, settings)
    found += ["-c", str(asked.cpus)] if asked.cpus else []
    found += [f"--mem={asked.memory_mib}M"] if asked.memory_mib else []
    found += ["--hold"] if spec.held else []
    return [*found, *split(settings.flags)]


def of_context(settings: SlurmSettings) -> list[str]:
    found = ["-p", settings.partition] if settings.partition else []
    found += ["-A", settings.account] if settings.account else []
    return found + ([f"--qos={settings.qos}"] if settings.qos else [])


def alike(flags: Iterable[str]) -> list[str]:
    """Those that are not of one job alone."""
    own = ("--comment=", "--job-name=", "--output=", "--error=")
    return [flag for flag in flags if not flag.startswith(own)]


def warning_seconds(spec: pb.JobSpec, settings: SlurmSettings) -> int:
    """How long before the end of its time a run is warned."""
    return warning_within(_run_seconds(spec, read_resources(settings.resources)), settings)


def warning_within(seconds: float, settings: SlurmSettings) -> int:
    """At most half of so many seconds; 0: there is no limit."""
    most = minutes(seconds) * 30 if seconds else settings.warning_seconds
    return min(settings.warning_seconds, most)


def _run_seconds(spec: pb.JobSpec, asked: Resources) -> float:
    """A run may last as long as the cluster's context says; a job no longer than its own limit."""
    given = [seconds for seconds in (asked.seconds, spec.time_limit_seconds) if seconds]
    return min(given, default=0.0)


def _gpu_flags(spec: pb.JobSpec, asked: Resources, settings: SlurmSettings) -> list[str]:
    gpus, nodes = gpus_and_nodes(spec, asked)
    if not gpus:
        return ["--nodes=1", "--ntasks-per-node=1"]
    kind = f"{asked.gpu_type}:" if asked.gpu_type else ""
    if settings.gpu_flag == "gpus":
        wanted = [f"--gpus={kind}{gpus}", f"--gpus-per-node={kind}{gpus // nodes}"]
    else:
        wanted = [f"--gres=gpu:{kind}{gpus // nodes}"]
    return [f"--nodes={nodes}", "--ntasks-per-node=1", *wanted]


def gpus_and_nodes(spec: pb.JobSpec, asked: Resources) -> tuple[int, int]:
    """On as few nodes as can have them, the same number on each."""
    gpus = asked.gpus if asked.gpus is not None else 1
    if spec.HasField("gpus_min") or spec.HasField("gpus_max"):
        gpus = spec.gpus_min if spec.HasField("gpus_min") else spec.gpus_max
    if spec.is_single_gpu:
        gpus = min(gpus, 1)
    most = asked.gpus_per_node or GPUS_PER_NODE
    nodes = max(1, -(-gpus // most))
    if gpus % nodes:
        fitting = ", ".join(str(most * count) for count in (nodes - 1, nodes))
        raise refused(
            f"--num_gpus {gpus} cannot be divided evenly among {nodes} nodes with {most} GPUs each;"
            f" {fitting} can (the context's resource gpus_per_node says how many a node has)"
        )
    return gpus, nodes


def _refuse(spec: pb.JobSpec) -> None:
    both = spec.HasField("gpus_min") and spec.HasField("gpus_max")
    if both and spec.gpus_min != spec.gpus_max:
        raise refused(
            f"--min_gpus {spec.gpus_min} --max_gpus {spec.gpus_max}: Slurm gives a fixed number"
            " of GPUs; give --num_gpus, or the context a pilot"
        )
    if spec.HasField("priority") and spec.priority != 1:
        raise refused(
            f"--priority {spec.priority}: Slurm orders jobs by its own rules; ask for another"
            " qos or partition in the context"
        )
    if spec.prune:
        raise refused(
            "--prune: Slurm does not compare jobs by their metrics; the schedulers of pilots do"
            " (the context's key pilot)"
        )
    for given, flag in ((spec.code, "--code"), (spec.folders, "--folder")):
        if given:
            raise refused(f"{flag} needs a scheduler, and is not possible on Slurm")
    if spec.volumes:
        raise refused(
            "--volume: jobs on Slurm see the paths of their nodes: give the program the path itself"
        )
    refuse_ports(spec)
    if spec.after:
        raise refused("--after: is not possible there yet; wait for the other job with --wait")


def refuse_ports(spec: pb.JobSpec) -> None:
    if spec.ports:
        raise refused("--port_mapping: Slurm does not map ports; processes bind the node's own")


def notes(spec: pb.JobSpec) -> list[str]:
    """What the user should know, a line each."""
    lines = image_notes(spec)
    if spec.HasField("memory_mib"):
        lines.append("--estimated_memory is not used: on Slurm, jobs have whole GPUs")
    return lines


def image_notes(spec: pb.JobSpec) -> list[str]:
    if not spec.image:
        return []
    return [f"image {spec.image} is not used: Slurm runs the command directly on a node"]
