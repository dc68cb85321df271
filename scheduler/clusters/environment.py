"""The environment and the command of a training. Pure, and the same for all clusters."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.clusters import step_wrapping
from scheduler.clusters.process_per_gpu import one_for_each_gpu
from scheduler.core.errors import Impossible
from scheduler.core.job_volumes import is_below, parse_all
from scheduler.core.model import PRETENDED, Gpu, JobSpec, Launch

# Only the scheduler sets these; a submission that names one is refused. A job may set all others.
RESERVED_ENVIRONMENT = frozenset(
    {
        "CODE_DIR",
        "JOB_UUID",
        "JOB_CONFIGID",
        "JOB_RESTARTED",
        "RESERVED_MEM",
        "EPOCHS_DONE",
        "EPOCHS_TO_BE_DONE",
        "BATCH_SIZE",
        "TRAINING_SET_SIZE",
        "NODELIST",
        "NODE_RANK",
        "NUM_GPUS",
        "NUM_NODES",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "TF_CONFIG",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "KUBEPROFILER_SERVER",
        "KUBEPROFILER_HTTP",
        "KUBEPROFILER_FILES",
        "KUBEPROFILER_TOKEN",
        "KUBEPROFILER_ATTEMPT",
        "KUBEPROFILER_HEARTBEAT_SECONDS",
        "KUBEPROFILER_RELAY",
        "KUBEPROFILER_RENEWED",
        "KUBEPROFILER_LAST_WORDS",
        "KUBEPROFILER_CUSTOM",
        "KUBEPROFILER_SNAPSHOTS",
        "KUBEPROFILER_METRIC",
        "KUBEPROFILER_DATA",
        "DEBUG_WAIT_PORT",
    }
)

HEARTBEATS_PER_EPOCH = 10
RESULTS, TENSORBOARD, WANDB = "results", "tensorboard", "wandb"  # parts of the folder for tracking
PORTS = range(10_000, 30_000)  # below the ports that Linux gives to outgoing connections


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders that the guide calls /custom, /snapshots and /data; empty if there is none."""

    custom: str = "/custom"
    snapshots: str = "/snapshots"
    data: str = "/data"
    code: str = "/code"  # only of a job with a package
    volumes: tuple[tuple[str, str], ...] = ()  # where the job looks for each, and where it is
    wrapper: str = step_wrapping.MOUNTED  # of the steps of workflows
    workflows: str = "/snapshots/workflows"  # where they keep what they give


def environment(
    launch: Launch,
    gpus: Sequence[Gpu],
    server: str,
    paths: Paths,
    *,
    node: str = "localhost",
    rank: int = 0,
    heartbeat_seconds: int = 30,
    hosts: Sequence[str] = (),
    http: str = "",
    renewed: bool = False,
) -> dict[str, str]:
    """Returns all variables of this rank's process, except those that every login has.

    `gpus` are all GPUs of the rank's node, not only the job's; `node` is where a job without GPUs
    runs. There is one process per node, or a shell that starts one for each GPU. Ranks find
    each other under `hosts`, by default under the names of their nodes. `http` is the address for
    reports by HTTP, empty if there is none. `renewed`: the script was written for an older library
    than the one it gets.
    """
    nodes = sorted({share.node for share in launch.shares}) or [node]
    shares = {share.gpu: share for share in launch.shares if share.node == nodes[rank]}
    own = sorted((gpu for gpu in gpus if gpu.uuid in shares), key=lambda gpu: gpu.index)
    if missing := sorted(shares.keys() - {gpu.uuid for gpu in own}):
        raise Impossible(f"there is no GPU {missing[0]} on {nodes[rank]}")
    spec, hosts = launch.spec, hosts or nodes
    return {
        "PYTHONUNBUFFERED": "1",
        "PL_TORCH_DISTRIBUTED_BACKEND": _backend(own),
        "HEARTBEAT_FREQ": str(_heartbeat_steps(spec, len(own) * len(nodes))),
        **_meeting_point(launch, hosts),
        **dict(spec.env),
        "JOB_UUID": launch.job_id,
        "JOB_CONFIGID": str(launch.attempt),  # the oldest images send it back
        # Scripts load a checkpoint if this is TRUE; a run that died in the first epoch has none.
        "JOB_RESTARTED": "TRUE" if launch.epochs_done > 0 else "FALSE",
        "EPOCHS_DONE": str(launch.epochs_done),
        "EPOCHS_TO_BE_DONE": str(launch.max_epochs),
        "BATCH_SIZE": str(spec.batch_size),
        "TRAINING_SET_SIZE": str(spec.training_set_size),
        "RESERVED_MEM": str(min((s.memory_mib for s in shares.values()), default=0)),
        "NUM_GPUS": str(len(own)),
        "NUM_NODES": str(len(nodes)),
        "NODELIST": ",".join(nodes),
        **_ranks(launch, hosts, rank, len(own)),
        **_visible_gpus(own),
        "KUBEPROFILER_SERVER": server,
        **({"KUBEPROFILER_HTTP": http} if http else {}),
        **({"KUBEPROFILER_RENEWED": "TRUE"} if renewed else {}),
        **({"DEBUG_WAIT_PORT": str(spec.debug_wait)} if spec.debug_wait else {}),
        "KUBEPROFILER_TOKEN": launch.token,
        "KUBEPROFILER_ATTEMPT": str(launch.attempt),
        "KUBEPROFILER_HEARTBEAT_SECONDS": str(heartbeat_seconds),
        **({"KUBEPROFILER_METRIC": spec.metric} if spec.metric else {}),
        "KUBEPROFILER_CUSTOM": paths.custom,
        "KUBEPROFILER_SNAPSHOTS": paths.snapshots,
        "KUBEPROFILER_DATA": paths.data,
        **({"CODE_DIR": paths.code} if spec.code else {}),
        **({"STORAGE_DIR": spec.storage} if spec.storage else {}),
    }


def tracking_folder(launch: Launch, paths: Paths) -> str:
    """Where a run writes what its relay reads, and the relay what it has not delivered."""
    return f"{paths.snapshots}/.tracking/{launch.job_id}/{launch.attempt}"


def tracking(
    launch: Launch, paths: Paths, given: Mapping[str, str], port: str, telegraf: str = ""
) -> dict[str, str]:
    """Returns the variables by which clients find the run's relay, which hears at this port.

    `given` are the job's own variables: a job that names another server for a client has none of
    ours for that client, because ours contain its token, and names that the other does not know.
    """
    spec, folder = launch.spec, tracking_folder(launch, paths)
    mlflow = {
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}",
        "MLFLOW_TRACKING_TOKEN": launch.token,
        "MLFLOW_RUN_ID": launch.job_id,
        "MLFLOW_EXPERIMENT_NAME": spec.experiment or spec.project or "Default",
    }
    wandb = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": folder,
        "WANDB_RUN_ID": launch.job_id,
        "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL": "1",  # seconds
    }
    others = {
        "JOBMONITOR_TELEGRAF_HOST": "127.0.0.1",
        "JOBMONITOR_TELEGRAF_PORT": telegraf or port,
        "JOBMONITOR_RESULTS_DIR": f"{folder}/{RESULTS}",
        "TENSORBOARD_DIR": f"{folder}/{TENSORBOARD}",
        "KUBEPROFILER_RELAY": f"127.0.0.1:{port}",
    }
    if any(name.startswith("MLFLOW_TRACKING_") for name in given):
        mlflow = {}
    if not given.keys().isdisjoint(("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL")):
        wandb = {}
    wanted = mlflow | wandb | others
    return {name: text for name, text in wanted.items() if name not in given}


def command(spec: JobSpec, paths: Paths) -> list[str]:
    """Returns the command line to execute. Every argument stays as it was given, even if a shell
    starts a process for each GPU.

    /custom, /snapshots, /data and volumes that are elsewhere are replaced where an argument begins
    with one of them, or where the value of an option does, as in `--data_dir=/data/cifar`.
    """
    words = plain_command(spec, paths)
    words = one_for_each_gpu(words) if spec.process_per_gpu else words
    if not spec.step:
        return words
    return step_wrapping.command(words, spec.step, paths.wrapper, paths.workflows)


def plain_command(spec: JobSpec, paths: Paths) -> list[str]:
    """Returns the command of one process."""
    words = [*(spec.command or ("python", spec.script_path)), *spec.args]
    return [replace_folder(word, paths) for word in words]


def notes(spec: JobSpec, paths: Paths, old_snapshots: bool = True) -> list[str]:
    """Returns what the user should know about a job on a bare machine, one line each.

    `old_snapshots`: whether old libraries can save to /snapshots, the only place that they know.
    """
    lines = []
    if spec.keep_library and not old_snapshots:
        lines.append("--keep_library: an old library fails here: this machine has no /snapshots")
    if spec.image:
        lines.append(f"image {spec.image} is not used: this machine runs the command directly")
    for name, path in _folders(paths).items():
        if name != path and (spec.code or name != "/code"):
            lines.append(f"{name} is {path}")
    shown = dict(paths.volumes)
    lines += [
        f"{volume}: the job can change it: only a daemon of root mounts folders"
        for volume in parse_all(spec.volumes)
        if volume.read_only and shown[volume.path] != volume.path
    ]
    if not (paths.custom or spec.code):
        lines.append("/custom is not available: no custom_dir was given")
    if spec.ports:
        ports = ", ".join(f"{host}:{container}" for host, container in spec.ports)
        lines.append(f"ports are not mapped ({ports}): processes bind the machine's own ports")
    return lines


def _folders(paths: Paths) -> dict[str, str]:
    folders = {"/custom": paths.custom, "/snapshots": paths.snapshots, "/data": paths.data}
    folders["/code"] = paths.code
    return {name: path for name, path in folders.items() if path} | dict(paths.volumes)


def replace_folder(word: str, paths: Paths) -> str:
    folders = _folders(paths)
    option = re.match(r"(?:-[^=\s]*=)?", word)
    assert option is not None  # it may be empty
    path = word[option.end() :]
    for folder in sorted(folders, key=len, reverse=True):
        if is_below(path, folder):
            return option[0] + folders[folder] + path[len(folder) :]
    return word


def _backend(own: Sequence[Gpu]) -> str:
    return "nccl" if own and all(gpu.type != PRETENDED for gpu in own) else "gloo"


def _heartbeat_steps(spec: JobSpec, gpus: int) -> int:
    """The steps between two heartbeats. Never 0, because old libraries divide by it."""
    steps = spec.training_set_size // max(1, spec.batch_size * max(1, gpus))
    return max(1, steps // HEARTBEATS_PER_EPOCH)


def _meeting_point(launch: Launch, hosts: Sequence[str]) -> dict[str, str]:
    """The address where the ranks meet. Each run has a port of its own, so that neighbours do not
    connect to each other."""
    address = "127.0.0.1" if len(hosts) == 1 else hosts[0]
    return {"MASTER_ADDR": address, "MASTER_PORT": str(_port(launch))}


def _port(launch: Launch) -> int:
    return PORTS[zlib.crc32(f"{launch.job_id}-{launch.attempt}".encode()) % len(PORTS)]


def _ranks(launch: Launch, hosts: Sequence[str], rank: int, gpus: int) -> dict[str, str]:
    variables = {"WORLD_SIZE": str(len(hosts)), "NODE_RANK": str(rank)}
    if launch.spec.process_per_gpu and gpus:
        # RANK is that of the node's first process; the shell numbers the others as it starts them.
        nodes = sorted(share.node for share in launch.shares)
        first = nodes.index(sorted(set(nodes))[rank])
        variables |= {
            "RANK": str(first),
            "LOCAL_WORLD_SIZE": str(gpus),
            "WORLD_SIZE": str(len(nodes)),
        }
    elif gpus <= 1:
        # With several GPUs, the framework starts a process for each. Lightning takes LOCAL_RANK as
        # a sign that another program starts them, and would wait for them forever.
        variables |= {"RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    if len(hosts) > 1:
        workers = [f"{host}:{_port(launch)}" for host in hosts]
        task = {"type": "worker", "index": rank}
        variables["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    return variables


def _visible_gpus(own: Sequence[Gpu]) -> dict[str, str]:
    """Shows the process its own GPUs only. Without any, an empty value hides all from CUDA."""
    uuids = ",".join(gpu.uuid for gpu in own)
    pretended = any(gpu.type == PRETENDED for gpu in own)
    indices = ",".join(str(gpu.index) for gpu in own)
    return {
        "CUDA_VISIBLE_DEVICES": indices if pretended else uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
    }
