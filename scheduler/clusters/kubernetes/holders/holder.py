"""A holder: the pod that requests GPUs of a node for the scheduler, and reports which it was given.
How it is made and recognised, and how a node says which mode its GPUs are held in. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated

import msgspec

from scheduler.access.agent_tokens import AUDIENCE
from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.gpu_requests import RequestingPod, requested_gpus
from scheduler.clusters.kubernetes.manifests import Manifest
from scheduler.clusters.kubernetes.pods import KubeNode, KubePod, Struct
from scheduler.core.errors import Rejected
from scheduler.core.fast_replace import replace
from scheduler.core.model import Gpu, PodState

ROLE, MODE, NODE = (f"{pods.DOMAIN}/{word}" for word in ("role", "mode", "node"))
HOLDS = f"{pods.DOMAIN}/holds"  # {"node": "n1", "number": 0, "count": 8}
SELECTOR = f"{pods.MANAGED_BY}={pods.OURS},{ROLE}=holder"
OWNED, MIXED, EXCLUSIVE = MODES = ("owned", "mixed", "exclusive")
LABEL_MAX = 63
TOKEN_FOLDER, TOKEN = "/etc/epoch-scheduler-agent", "token"  # the file with its agent's token
TOKEN_SECONDS = 3600  # the kubelet replaces the token in time
USER = 10001  # the account that our image runs as
GRACE_SECONDS = 5

# Kubernetes issues it to this pod alone: it is valid as long as the pod, and names its node.
_TOKEN_SOURCE = {
    "serviceAccountToken": {
        "audience": AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
        "path": TOKEN,
    }
}

Small = Annotated[int, msgspec.Meta(ge=0, le=1023)]


class Hold(Struct, frozen=True):
    """A number of GPUs of a node, and which of its holders has them."""

    node: str
    number: Small
    count: Small

    @property
    def name(self) -> str:
        """Always the same, so that creating a holder is idempotent. It is also what its agent
        calls the node, because one node can have several of them."""
        return f"{_prefix(self.node)}{self.number}"


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder that exists."""

    hold: Hold
    uid: str = ""
    state: PodState = PodState.PENDING
    spec_hash: str = ""
    words: str = ""  # why it is not running yet

    @property
    def name(self) -> str:
        return self.hold.name

    @property
    def over(self) -> bool:
        return self.state is PodState.FAILED


@dataclass(frozen=True, slots=True)
class HeldNodeSpec:
    """A node with GPUs that are held."""

    name: str
    mode: str
    count: int  # GPUs that its kubelet assigns
    kind: Gpu  # as its labels describe them
    gpus: tuple[Gpu, ...] = ()  # as its annotation declares them
    foreign: int = 0  # GPUs that foreign pods were given
    ready: bool = True
    closing: bool = False  # its driver is to be replaced, which waits until no pod has a GPU


@dataclass(frozen=True, slots=True)
class HolderTemplate:
    """The settings that all holders of this cluster have in common."""

    image: str
    server: str  # where agents report to
    namespace: str = "default"
    account: str = "epoch-scheduler-agent"  # the service account of their agents
    runtime_class: str = ""
    priority_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = ""
    host_pid: bool = False  # so that its agent sees which pod a process belongs to


def speaks_for(node: str, name: str) -> bool:
    """Whether an agent on this node calls itself so: by the name of the node, or, in a holder, by
    that of the holder."""
    prefix = _prefix(node)
    return name == node or (name.startswith(prefix) and name.removeprefix(prefix).isdigit())


def _prefix(node: str) -> str:
    return f"gs-hold-{hashlib.sha256(node.encode()).hexdigest()[:10]}-"


# --- what exists --------------------------------------------------------------------------------


def mode_of(kube: KubeNode, default: str) -> str:
    mode = kube.metadata.labels.get(MODE, default)
    if mode not in MODES:
        raise Rejected(f"node {kube.metadata.name}: label {MODE}: {mode!r} is not a valid mode")
    return mode


def site_of(kube: KubeNode, default: str, foreign: int | None) -> HeldNodeSpec | None:
    """None: its GPUs are not held. Raises Rejected if its labels or annotations are invalid."""
    mode, meta = mode_of(kube, default), kube.metadata
    if mode == EXCLUSIVE:
        return None
    slots = pods.gpu_slots(kube)
    return HeldNodeSpec(
        meta.name,
        mode,
        len(slots),
        replace(slots[0], whole=False) if slots else Gpu("", 0, "gpu", pods.MEMORY_UNKNOWN_MIB),
        pods.declared_gpus(kube) if mode == OWNED else (),
        len(slots) if foreign is None else foreign,  # not counted yet: no GPU counts as free
        pods.read_node(kube).ready,
        pods.is_ready(kube) and pods.is_upgrading(kube),
    )


def holder_of(kube: KubePod) -> Holder | None:
    """None: the pod is not a holder that this scheduler made."""
    meta = kube.metadata
    try:
        hold = msgspec.json.decode(meta.annotations.get(HOLDS, ""), type=Hold)
    except msgspec.MsgspecError:
        return None
    if hold.name != meta.name:
        return None
    spec_hash = meta.annotations.get(pods.SPEC_HASH, "")
    return Holder(hold, meta.uid, _state(kube), spec_hash, pods.hindrance(kube)[0])


def _state(kube: KubePod) -> PodState:
    """FAILED as soon as no container of it will run again: the kubelet may reassign its GPUs."""
    if pods.is_over(kube):
        return PodState.FAILED
    if kube.metadata.deletion_timestamp:
        return PodState.TERMINATING
    return PodState.RUNNING if kube.status.phase == "Running" else PodState.PENDING


def foreign(pod: RequestingPod) -> int:
    """The number of GPUs that the pod has; 0 if it is one of our holders."""
    labels = pod.metadata.labels
    ours = labels.get(ROLE) == "holder" and labels.get(pods.MANAGED_BY) == pods.OURS
    return 0 if ours else requested_gpus(pod)


# --- how it is made -----------------------------------------------------------------------------


def manifest(hold: Hold, dress: HolderTemplate) -> Manifest:
    made = _manifest(hold, dress)
    made["metadata"]["annotations"][pods.SPEC_HASH] = _hash(made)
    return made


def spec_hash(hold: Hold, dress: HolderTemplate) -> str:
    return _hash(_manifest(hold, dress))


def _hash(made: Manifest) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()}"


def _manifest(hold: Hold, dress: HolderTemplate) -> Manifest:
    node = {"key": "metadata.name", "operator": "In", "values": [hold.node]}
    required = {"nodeSelectorTerms": [{"matchFields": [node]}]}
    spec: Manifest = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [  # a holder that loses its node for a while has not lost its GPUs
            {"key": key, "operator": "Exists"}
            for key in (
                pods.GPU_RESOURCE,
                f"{pods.DOMAIN}/owned",
                "node.kubernetes.io/not-ready",
                "node.kubernetes.io/unreachable",
            )
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "serviceAccountName": dress.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostPID": dress.host_pid,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(hold, dress)],
        "volumes": [{"name": "token", "projected": {"sources": [_TOKEN_SOURCE]}}],
    }
    if dress.priority_class:
        spec["priorityClassName"] = dress.priority_class
    if dress.runtime_class:
        spec["runtimeClassName"] = dress.runtime_class
    if dress.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in dress.pull_secrets]
    labels = {pods.MANAGED_BY: pods.OURS, ROLE: "holder", NODE: _label(hold.node)}
    notes = {
        HOLDS: msgspec.json.encode(hold).decode(),
        "karpenter.sh/do-not-disrupt": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": hold.name, "labels": labels, "annotations": notes},
        "spec": spec,
    }


def _container(hold: Hold, dress: HolderTemplate) -> Manifest:
    few = {"cpu": "50m", "memory": "128Mi"}
    return {
        "name": "hold",
        "image": dress.image,
        "command": ["scheduler-agent", "--server", dress.server, "--node", hold.name],
        "env": [
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            {"name": "SCHEDULER_TOKEN_FILE", "value": f"{TOKEN_FOLDER}/{TOKEN}"},
        ],
        "volumeMounts": [{"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True}],
        "resources": {
            "requests": few,
            "limits": {"memory": "256Mi", pods.GPU_RESOURCE: str(hold.count)},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **({"imagePullPolicy": dress.pull_policy} if dress.pull_policy else {}),
    }


def _label(node: str) -> str:
    """The node's name as a label, for searches by users; a name may be longer than a label."""
    return node[:LABEL_MAX].strip("-._")
