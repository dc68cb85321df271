"""Translates a cluster's pods and nodes to the model: names, labels, verdicts. Pure.

A run is rebuilt from its pods' labels and annotations alone, so a daemon that lost its state folder
finds every GPU that is taken. (How a pod is made: manifests.py.)
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from scheduler.core.errors import Rejected
from scheduler.core.images import canonical, has, registry
from scheduler.core.model import (
    EXIT_SKIPPED,
    Failure,
    Gpu,
    JobId,
    Node,
    Pod,
    PodState,
    RunKey,
    Share,
    Time,
)
from scheduler.run_logs import old_library_error, out_of_memory_line, skip_line

DOMAIN = "epoch-scheduler.io"
JOB, ATTEMPT, RANK = f"{DOMAIN}/job", f"{DOMAIN}/attempt", f"{DOMAIN}/rank"
MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = "epoch-scheduler"
HELPERS = {"relay": "its relay", "code": "what fetches its package"}  # init containers
FETCH_AGAIN = 75  # the exit code of a fetcher that could not reach the daemon, or had no disk
SELECTOR = f"{MANAGED_BY}={OURS},{JOB}"

ALLOC = f"{DOMAIN}/alloc"  # {"node": "n1", "gpus": {"GPU-..": 9216}, "epoch": 12}
SPEC_HASH = f"{DOMAIN}/spec-hash"  # of the launch: differs for another one under the same name
PORTS = f"{DOMAIN}/ports"  # on a run's owner, if the run has a Service with ports of all nodes
GPUS = f"{DOMAIN}/gpus"  # of a node, by its administrator: a JSON list of model.Gpu

TRAINING, RELAY, FETCHER = "main", "relay", "code"  # the containers of a run's pod

GPU_RESOURCE = "nvidia.com/gpu"
CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"  # what NVIDIA's device plugin calls a GPU
GPU_PRODUCT, GPU_MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"  # of NVIDIA's discovery
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"  # by NVIDIA's operator
SLOT = "slot-"  # the prefix of names that stand for GPUs that the kubelet chooses
CARDS_MAX, MIB_MAX = 1023, 2**31 - 1  # GPUs of a node, MiB of a GPU: what the annotations can hold
MEMORY_UNKNOWN_MIB = 16_384  # assumed if a node states the number of its GPUs, but not their memory

IMAGES_MAX, NAMES_MAX = 50, 5  # the most images, and names of each, that a kubelet reports

NODE_SILENT_SECONDS = 60.0  # after a pod's grace, before it counts as lost on a node not ready

# Reasons for which the cluster, not the job, is to blame. See the kubelet's admission handlers.
INFRASTRUCTURE_REASONS = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "TaintToleration",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
INFRASTRUCTURE_PREFIX = "OutOf"  # OutOfcpu, OutOfmemory, OutOfnvidia.com/gpu, …
NOT_ADMITTED = frozenset({"NodeAffinity", "TaintToleration", "UnexpectedAdmissionError"})
NO_IMAGE = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
NO_CONTAINER = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
UNSCHEDULABLE = "its pod cannot be scheduled"  # scheduler-doctor recognises it by this text
MESSAGE_MAX = 300  # characters of a message from the cluster


# --- the fields of objects that are used here ---------------------------------------------------


class Struct(msgspec.Struct, rename="camel", frozen=True):
    """Decoding skips all fields that are not named here, which are most of a pod."""


class Meta(Struct, frozen=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None  # when its grace ends
    deletion_grace_period_seconds: int | None = None


class KubeObject(Struct, frozen=True):
    """An object of any kind."""

    metadata: Meta


class Ending(Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class ContainerWaiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerRunning(Struct, frozen=True):
    """Since when is not used."""


class ContainerState(Struct, frozen=True):
    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: Ending | None = None


class ContainerStatus(Struct, frozen=True):
    state: ContainerState = ContainerState()
    name: str = ""
    image: str = ""


class Condition(Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodSpec(Struct, frozen=True):
    node_name: str = ""


class PodAddress(Struct, frozen=True):
    ip: str = ""


class PodStatus(Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    addresses: list[PodAddress] = msgspec.field(name="podIPs", default_factory=list)


class KubePod(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False


class ContainerImage(Struct, frozen=True):
    names: list[str] | None = None  # None: another image has its name now


class NodeInfo(Struct, frozen=True):
    kubelet_version: str = ""  # v1.34.2


class NodeStatus(Struct, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []
    images: list[ContainerImage] | None = None
    node_info: NodeInfo = NodeInfo()


class KubeNode(Struct, frozen=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- names --------------------------------------------------------------------------------------


def run_name(key: RunKey) -> str:
    """The name of all objects of one attempt. Another job's id may begin with the same eight
    characters: then the server refuses the name, and the job is retried under the next one."""
    return f"gs-{key[0][:8]}-a{key[1]}"


def pod_name(key: RunKey, rank: int) -> str:
    return f"{run_name(key)}-r{rank}"


def labels_of(key: RunKey) -> dict[str, str]:
    return {MANAGED_BY: OURS, JOB: key[0], ATTEMPT: str(key[1])}


class Alloc(msgspec.Struct, frozen=True):
    """One pod's part of its run's shares, and the epoch it began at."""

    node: str = ""
    gpus: dict[str, int] = {}
    epoch: int = 0


class Claim(msgspec.Struct, frozen=True):
    """The run that a pod belongs to, and its shares, from its labels and annotations."""

    key: RunKey
    rank: int
    shares: tuple[Share, ...]


def claim(meta: Meta) -> Claim | None:
    """Reads a pod's labels and annotations. None: this scheduler did not write them."""
    try:
        attempt, rank = int(meta.labels[ATTEMPT]), int(meta.labels.get(RANK, "0"))
        alloc = msgspec.json.decode(meta.annotations.get(ALLOC, "{}"), type=Alloc)
    except (KeyError, ValueError):  # msgspec's errors are ValueErrors
        return None
    shares = tuple(Share(alloc.node, gpu, mib) for gpu, mib in alloc.gpus.items())
    return Claim((JobId(meta.labels.get(JOB, "")), attempt), rank, shares)


# --- pods ---------------------------------------------------------------------------------------


def observe_pod(kube: KubePod, claim: Claim, now: Time, node_answers: bool) -> Pod:
    """The pod of the model, as it is observed at `now`."""
    state, more = _state(kube, now, node_answers)
    return Pod(*claim.key, state, claim.shares, claim.rank, **more)  # type: ignore[arg-type]  # by name


def created_at(kube: KubePod, now: Time) -> Time:
    """When it was created, at most `now`: the server's clock may be ahead."""
    created = kube.metadata.creation_timestamp
    return min(now, created.timestamp()) if created else now


def is_over(kube: KubePod) -> bool:
    """Whether no container of it will ever run again, except its relay."""
    return kube.status.phase in ("Succeeded", "Failed") or (
        JOB in kube.metadata.labels and training_state(kube).terminated is not None
    )


def training_state(kube: KubePod) -> ContainerState:
    """Of the container in which a training runs."""
    found = (status for status in kube.status.container_statuses if status.name != RELAY)
    return next((status.state for status in found), ContainerState())


def relay_trouble(kube: KubePod) -> str:
    """Why its relay, or what fetches its package, does not start; else empty."""
    for status in kube.status.init_container_statuses:
        waiting = status.state.waiting
        if status.name in HELPERS and waiting and waiting.reason not in STARTING:
            what = HELPERS[status.name]
            return f"{what} does not start: {sentence(waiting.reason, waiting.message)}"
    return ""


def fetcher_ending(kube: KubePod) -> Ending | None:
    """How the fetching of its package failed; None: it has not."""
    for status in kube.status.init_container_statuses:
        ending = status.state.terminated
        if status.name == FETCHER and ending and ending.exit_code:
            return ending
    return None


def hindrance(kube: KubePod) -> tuple[str, bool]:
    """Returns why a pending pod does not run yet, and whether its job is to blame."""
    if waiting := training_state(kube).waiting:
        said = sentence(waiting.reason, waiting.message)
        if waiting.reason in NO_IMAGE:
            return f"its image is not available{_registry_of(kube)}: {said}", True
        if waiting.reason in NO_CONTAINER:
            return f"cannot start: {said}", True
    if trouble := relay_trouble(kube):
        return trouble, False
    for condition in kube.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{UNSCHEDULABLE}: {sentence(condition.reason, condition.message)}", False
    return "", False


def _registry_of(kube: KubePod) -> str:
    """` from HOST`, as the kubelet need not say which registry it asked."""
    images = (each.image for each in kube.status.container_statuses if each.name != RELAY)
    host = registry(next(images, ""))
    return f" from {host}" if host else ""


def _state(kube: KubePod, now: Time, node_answers: bool) -> tuple[PodState, dict[str, object]]:
    if is_over(kube):
        return _verdict(kube)
    if leaving := kube.metadata.deletion_timestamp:
        # A pod on a silent node may still run. Its reports, and what it saves with the library
        # (fence.py there), are refused because its attempt is over; a script that saves by itself
        # may still write into a shared folder. Nothing is placed on that node before it is ready
        # again.
        if not node_answers and now > leaving.timestamp() + NODE_SILENT_SECONDS:
            return _lost_verdict(f"node {kube.spec.node_name} does not answer")
        return PodState.TERMINATING, {}
    # Without sidecars, a pod is pending until its relay runs as well.
    pending = kube.status.phase == "Pending" and not training_state(kube).running
    if pending or not kube.status.phase:
        return PodState.PENDING, {"reason": hindrance(kube)[0]}
    return PodState.RUNNING, {}


def _verdict(kube: KubePod) -> tuple[PodState, dict[str, object]]:
    status, ending = kube.status, _ending(kube)
    at = ending.finished_at.timestamp() if ending and ending.finished_at else None
    if status.reason in INFRASTRUCTURE_REASONS or status.reason.startswith(INFRASTRUCTURE_PREFIX):
        refused = ending is None and _is_refused_by_node(status)
        failure = Failure.REFUSED if refused else Failure.LOST
        return _lost_verdict(sentence(status.reason, status.message), at, failure)
    if _was_deleted_before(kube.metadata, ending):  # its reaction to the signal does not count
        return _lost_verdict("its pod was deleted", at)
    for condition in status.conditions:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return _lost_verdict(sentence(condition.reason, condition.message), at)
    if status.phase == "Succeeded" or (ending and not _is_unknown(ending) and not ending.exit_code):
        return PodState.SUCCEEDED, {"exit_code": 0, "at": at}
    if ending is None and (fetched := fetcher_ending(kube)):
        said = f"cannot start: its package of code: {sentence('', fetched.message)}"
        if fetched.exit_code in (FETCH_AGAIN, 137, 143):  # or it was killed
            return _lost_verdict(said, at)
        return PodState.FAILED, {"reason": said, "at": at}
    if ending is None or _is_unknown(ending):
        return _lost_verdict(sentence(status.reason, status.message), at)
    if ending.exit_code and (said := old_library_error(ending.message.encode())):
        return _lost_verdict(said, at)
    if ending.exit_code == EXIT_SKIPPED and (said := skip_line(ending.message.encode())):
        return PodState.FAILED, {"exit_code": EXIT_SKIPPED, "reason": said, "at": at}
    said = out_of_memory_line(ending.message.encode())
    how: dict[str, object] = {"exit_code": ending.exit_code, "said": said, "at": at}
    return PodState.FAILED, {
        **how,
        "reason": Failure.OUT_OF_MEMORY if said else _describe_ending(ending),
    }


def _lost_verdict(
    said: str, at: Time | None = None, failure: Failure = Failure.LOST
) -> tuple[PodState, dict[str, object]]:
    return PodState.FAILED, {"reason": failure, "said": said, "at": at}


def _is_refused_by_node(status: PodStatus) -> bool:
    """Whether the node did not admit the pod."""
    return status.reason in NOT_ADMITTED or status.reason.startswith(INFRASTRUCTURE_PREFIX)


def _ending(kube: KubePod) -> Ending | None:
    """How its training ended."""
    return training_state(kube).terminated


def _is_unknown(ending: Ending) -> bool:
    return ending.reason == "ContainerStatusUnknown"


def _was_deleted_before(meta: Meta, ending: Ending | None) -> bool:
    """Whether the deletion was requested before the container ended by itself."""
    if meta.deletion_timestamp is None:
        return False
    grace = timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    ended = ending.finished_at if ending else None
    return ended is None or ended >= meta.deletion_timestamp - grace


def _describe_ending(ending: Ending) -> str:
    if ending.reason == "OOMKilled":  # main memory, so a larger share of a GPU would not help
        return "killed: it used more main memory than its pod may use"
    if ending.reason in ("StartError", "ContainerCannotRun"):
        return f"cannot start: {sentence('', ending.message)}"
    if ending.exit_code > 128:
        try:
            return f"killed by {signal.Signals(ending.exit_code - 128).name}"
        except ValueError:
            pass
    return f"exit code {ending.exit_code}"


def sentence(reason: str, message: str) -> str:
    line = " ".join(message.split())[:MESSAGE_MAX]
    return f"{reason}: {line}" if reason and line else reason or line


# --- nodes --------------------------------------------------------------------------------------


class _DeclaredGpu(msgspec.Struct, frozen=True):
    """A GPU as a node's annotation declares it. Other fields are ignored."""

    uuid: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    index: Annotated[int, msgspec.Meta(ge=0, le=CARDS_MAX)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    memory_mib: Annotated[int, msgspec.Meta(ge=1, le=MIB_MAX)]
    reserved_mib: Annotated[int, msgspec.Meta(ge=0, le=MIB_MAX)] = 0
    strange_mib: Annotated[int, msgspec.Meta(ge=0, le=MIB_MAX)] = 0
    fault: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    lost: bool = False


def read_node(kube: KubeNode, image: str | None = None) -> Node:
    """Translates a node. `image` is that of jobs that name none, if no image is ever pulled.

    Raises Rejected if the node's labels or annotations about its GPUs are invalid."""
    upgraded = is_upgrading(kube)
    return Node(
        kube.metadata.name,
        gpus_of(kube),
        labels=tuple(sorted(kube.metadata.labels.items())),
        ready=is_ready(kube) and not kube.spec.unschedulable and not upgraded,
        leave="its driver is being replaced" if upgraded else "",
        images=None if image is None else images_of(kube, image),
    )


def images_of(kube: KubeNode, default: str) -> frozenset[str] | None:
    """The images that a node has. None: its list is incomplete, or empty because the kubelet could
    not read it."""
    told = [each.names or [] for each in kube.status.images or ()]
    if not 0 < len(told) < IMAGES_MAX or any(len(names) >= NAMES_MAX for names in told):
        return None
    names = frozenset(filter(None, (canonical(name) for names in told for name in names)))
    return names | {""} if default and has(names, default) else names


def is_upgrading(kube: KubeNode) -> bool:
    """Whether its driver is being replaced, which waits until no GPU is in use. (A node with an
    upgrade that is only required can be used until then, which may be long.)"""
    state = kube.metadata.labels.get(UPGRADE, "")
    return state not in ("", "unknown", "upgrade-done", "upgrade-required")


def is_ready(kube: KubeNode) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in kube.status.conditions)


def gpus_of(kube: KubeNode) -> tuple[Gpu, ...]:
    """The GPUs that the kubelet assigns, which have no names. Declared GPUs count only if it
    assigns none, because it could give the same ones to foreign pods."""
    return gpu_slots(kube) or declared_gpus(kube)


def declared_gpus(kube: KubeNode) -> tuple[Gpu, ...]:
    """The GPUs in the node's annotation. Raises Rejected if that is invalid."""
    meta = kube.metadata
    try:
        declared = msgspec.json.decode(meta.annotations.get(GPUS, "[]"), type=list[_DeclaredGpu])
    except msgspec.MsgspecError as error:
        raise Rejected(f"node {meta.name}: annotation {GPUS}: {error}") from error
    for field in ("uuid", "index"):
        if len({getattr(gpu, field) for gpu in declared}) < len(declared):
            raise Rejected(f"node {meta.name}: annotation {GPUS}: two GPUs have the same {field}")
    gpus = (Gpu(**msgspec.structs.asdict(gpu)) for gpu in declared)
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def gpus_annotation(gpus: Sequence[Gpu]) -> str:
    """The text of the annotation that declares these GPUs."""
    fields = _DeclaredGpu.__struct_fields__
    declared = [_DeclaredGpu(**{name: getattr(gpu, name) for name in fields}) for gpu in gpus]
    return msgspec.json.encode(declared).decode()


def gpu_slots(kube: KubeNode) -> tuple[Gpu, ...]:
    """One for each GPU that the kubelet assigns. Raises Rejected."""
    labels, allocatable = kube.metadata.labels, kube.status.allocatable
    count = _number(kube, "GPUs", allocatable.get(GPU_RESOURCE, ""), CARDS_MAX)
    mib = _number(kube, "MiB", labels.get(GPU_MEMORY, ""), MIB_MAX) or MEMORY_UNKNOWN_MIB
    words = labels.get(GPU_PRODUCT, "gpu").lower().split("-")
    kind = "-".join(word for word in words if word not in ("nvidia", "tesla")) or "gpu"
    return tuple(Gpu(f"{SLOT}{index}", index, kind, mib, whole=True) for index in range(count))


def _number(kube: KubeNode, of: str, text: str, most: int) -> int:
    """The number in a label or resource; 0 if it is not set."""
    number = int(text) if text.isdecimal() else 0
    if number > most:
        raise Rejected(f"node {kube.metadata.name}: {text} {of}: at most {most} are allowed")
    return number
