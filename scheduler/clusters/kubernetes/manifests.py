"""The objects of a run on a cluster: from its launch to manifests, as plain dicts. Pure.

All objects of a run carry the name of its attempt, and its owner, a ConfigMap, owns the others: to
delete it is to delete all. Nothing of one attempt refers to another attempt, so a deletion that is
still in progress can never affect the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from scheduler.access.project_table import Project
from scheduler.access.user_table import User
from scheduler.clusters import library_renewal, step_wrapping
from scheduler.clusters.environment import command, environment
from scheduler.clusters.kubernetes import code_fetcher, pods, relay_sidecar
from scheduler.clusters.kubernetes.confidential import (
    confidential,
    env_fields,
    secret_name,
    spec_hash,
    verbatim,
)
from scheduler.clusters.kubernetes.host_ports import (
    AllowedPorts,
    container_ports,
    service_ports,
)
from scheduler.clusters.kubernetes.relay_sidecar import RelayTemplate
from scheduler.clusters.kubernetes.volumes import PATHS, AllowedVolume, VolumeSource, volumes
from scheduler.core.errors import Impossible
from scheduler.core.images import has
from scheduler.core.model import JobSpec, Launch, Node, RunKey, Share
from scheduler.step_wrapper.s3_store import SETTINGS as STORE

Manifest = dict[str, Any]  # JSON

DEVICES = "/var/run/nvidia-container-devices"  # a mount below it requests a GPU
UNREACHABLE_SECONDS = 120  # that a node may be silent before its pods are given up


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The settings that all pods of this cluster have in common."""

    server: str  # where a training reports to
    namespace: str = "default"
    image: str = ""  # of jobs that name none
    inject: str = "env"  # how a chosen GPU gets into a pod: "env", "volume" or "annotation"
    runtime_class: str = ""  # of pods with chosen GPUs
    binding: str = "affinity"  # or "node_name", which bypasses the cluster's own scheduler
    priority_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    job_secrets: tuple[str, ...] = ()  # those that a job may name beside these
    storage_claim: str = ""  # the claim of a project's storage; empty: there is none
    projects: Mapping[str, Project] = field(default_factory=dict)  # that have a namespace
    pull_policy: str = ""
    users: Mapping[str, User] = field(default_factory=dict)  # that have accounts of their own
    run_as_user: int = 1000
    host_ports: AllowedPorts = field(default_factory=AllowedPorts)
    cpu: str = "1"
    memory: str = ""
    shm_mib: int = 8192
    grace_seconds: int = 30
    heartbeat_seconds: int = 30
    custom: VolumeSource = field(default_factory=VolumeSource)
    snapshots: VolumeSource = field(default_factory=VolumeSource)
    data: VolumeSource = field(default_factory=VolumeSource)
    http: str = ""  # where a training without gRPC reports to; empty: there is none
    library: library_renewal.Files = field(
        default_factory=dict
    )  # the current one; empty: no run is given it
    relay: RelayTemplate | None = None  # none: what trainings log is not heard
    code_image: str = ""  # of what fetches packages; empty: no job has one
    volumes: tuple[AllowedVolume, ...] = ()  # that jobs may name

    def uid(self, user: str) -> int:
        """The uid that the jobs of this user run as."""
        own = self.users.get(user, User()).uid
        return self.run_as_user if own is None else own

    def namespace_of(self, spec: JobSpec) -> str:
        """Where the pods of this job are: where its project is, else where its user is."""
        if project := self.projects.get(spec.project):
            return project.namespace
        return self.users.get(spec.user, User()).namespace or self.namespace

    def account(self, user: str) -> tuple[int, str]:
        """Users with the same account can change each other's files. Paths of nodes are the same in
        all namespaces, but claims are not; a project's namespace has several users."""
        kinds = {self.custom.kind, self.snapshots.kind, self.data.kind}
        namespace = self.users.get(user, User()).namespace or self.namespace
        return self.uid(user), "" if self.projects or "host" in kinds else namespace


def manifests(launch: Launch, nodes: Sequence[Node], shape: PodTemplate) -> list[Manifest]:
    """Returns the objects in the order of their creation, the owner first. Raises Impossible."""
    key = launch.job_id, launch.attempt
    parts = ranks(launch)
    shape.host_ports.check(launch.spec)
    if launch.spec.code and not shape.code_image:
        raise Impossible("--code: this cluster has no image for it (kubernetes.code_image)")
    return [
        _owner(launch, key),
        _secret(launch),
        *([_library(launch, shape)] if _renews_library(launch, shape) else []),
        *([_step_wrapper(launch)] if launch.spec.step else []),
        *_services(launch, key, len(parts)),
        *(_pod(launch, rank, share, nodes, shape) for rank, share in enumerate(parts)),
    ]


def owned(manifest: Manifest, owner: Mapping[str, Any]) -> Manifest:
    """Returns the manifest with this owner, as the server returned it. Without a finalizer, nothing
    can get stuck."""
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def ports_name(run: str) -> str:
    """The name of the Service that opens a run's ports."""
    return f"{run}-ports"


def library_name(key: RunKey) -> str:
    """The name of the ConfigMap with the library's files, for a run that is given them."""
    return f"{pods.run_name(key)}-library"


def ranks(launch: Launch) -> list[tuple[Share, ...]]:
    """The shares of each pod: there is one pod for each node, or one without any GPU."""
    nodes = sorted({share.node for share in launch.shares})
    return [tuple(s for s in launch.shares if s.node == node) for node in nodes] or [()]


def rank_environment(
    launch: Launch, nodes: Sequence[Node], shape: PodTemplate, rank: int = 0
) -> dict[str, str]:
    """The environment of this rank's training, with the token."""
    part = ranks(launch)[rank]
    key = launch.job_id, launch.attempt
    hosts = [f"r{rank}.{pods.run_name(key)}" for rank in range(len(ranks(launch)))]
    gpus = next((node.gpus for node in nodes if part and node.name == part[0].node), ())
    own = environment(
        launch,
        gpus,
        shape.server,
        PATHS,
        rank=rank,
        heartbeat_seconds=shape.heartbeat_seconds,
        hosts=hosts if len(hosts) > 1 else (),
        http=shape.http,
        renewed=_renews_library(launch, shape),
    )
    if part and not _has_chosen_gpus(part):  # only the kubelet knows which GPUs it will be
        del own["CUDA_VISIBLE_DEVICES"], own["NVIDIA_VISIBLE_DEVICES"]
    if _relay(launch, shape):
        own |= relay_sidecar.variables(launch, own)
    mib = str(min((share.memory_mib for share in part), default=0))
    return {
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **own,
        **({"NVIDIA_GPU_MEMORY_REQUEST": mib, "NVIDIA_GPU_MEMORY_LIMIT": mib} if part else {}),
        **_devices(part, shape),
    }


def notes(spec: JobSpec, shape: PodTemplate) -> list[str]:
    """Returns what the user should know about a job that runs here, one line each."""
    said = []
    if not (spec.snapshots_dir or shape.snapshots.kind):
        said.append("/snapshots does not outlive a run: no snapshots_dir was given")
    if not (spec.custom_dir or spec.code):
        said.append("/custom is not available: no custom_dir was given")
    return said


# --- one of each --------------------------------------------------------------------------------


def _owner(launch: Launch, key: RunKey) -> Manifest:
    about = f"Deleting this ends attempt {launch.attempt} of job {launch.job_id}."
    meta = _meta(launch, pods.run_name(key))
    if ports := service_ports(launch.spec):
        meta["annotations"][pods.PORTS] = ",".join(str(port["nodePort"]) for port in ports)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {"about": about},
    }


def _secret(launch: Launch) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _meta(launch, secret_name(launch)),
        "type": "Opaque",
        "immutable": True,
        "stringData": confidential(launch),
    }


def _library(launch: Launch, shape: PodTemplate) -> Manifest:
    """The ConfigMap with the library. It lacks the labels that mark the owner of a run."""
    meta = _meta(launch, library_name((launch.job_id, launch.attempt)))
    meta["labels"] = {pods.MANAGED_BY: pods.OURS}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True}
    return {**made, "data": dict(shape.library)}


def _step_wrapper(launch: Launch) -> Manifest:
    """The ConfigMap with the wrapper of a workflow's step, without the labels of an owner."""
    meta = _meta(launch, f"{pods.run_name((launch.job_id, launch.attempt))}-step")
    meta["labels"] = {pods.MANAGED_BY: pods.OURS}
    data = {step_wrapping.key(path): text for path, text in step_wrapping.files().items()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": data,
    }


def _workflows(spec: JobSpec, shape: PodTemplate) -> str:
    """Where steps of workflows keep what they give. Raises Impossible."""
    if spec.snapshots_dir or shape.snapshots.kind or STORE in spec.secrets:
        return PATHS.workflows
    if spec.storage:
        return f"{spec.storage}/workflows"
    raise Impossible(
        f"step {spec.name}: what steps give to each other needs a folder that all of them see: set"
        " kubernetes.snapshots, or give --store s3://SET"
    )


def _renews_library(launch: Launch, shape: PodTemplate) -> bool:
    """Only if the current library can report by gRPC and by HTTP."""
    return launch.renew_library and bool(shape.library and shape.http)


def _services(launch: Launch, key: RunKey, ranks: int) -> list[Manifest]:
    """One Service for the ranks of a gang to find each other, one for the requested ports."""
    name, selector = pods.run_name(key), pods.labels_of(key)
    made = []
    if ranks > 1:
        spec = {"selector": selector, "clusterIP": "None", "publishNotReadyAddresses": True}
        made.append((name, spec))
    if opened := service_ports(launch.spec):
        spec = {"selector": {**selector, pods.RANK: "0"}, "type": "NodePort", "ports": opened}
        made.append((ports_name(name), spec))
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": _meta(launch, name), "spec": spec}
        for name, spec in made
    ]


def _meta(launch: Launch, name: str) -> Manifest:
    return {
        "name": name,
        "labels": pods.labels_of((launch.job_id, launch.attempt)),
        "annotations": {
            pods.SPEC_HASH: spec_hash(launch),
            f"{pods.DOMAIN}/name": launch.spec.name,
            f"{pods.DOMAIN}/user": launch.spec.user,
        },
    }


# --- the pod ------------------------------------------------------------------------------------


def _pod(
    launch: Launch, rank: int, part: tuple[Share, ...], nodes: Sequence[Node], shape: PodTemplate
) -> Manifest:
    sources, mounts = _volumes(launch, part, shape)
    opened = container_ports(launch.spec) if rank == 0 else []
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": shape.grace_seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _security_context(launch.spec.user, shape),
        **_placement(part, shape, claims=any("persistentVolumeClaim" in each for each in sources)),
        **(_image_affinity(launch, nodes) if not part else {}),
        "containers": [
            {
                "name": pods.TRAINING,
                "image": launch.spec.image or shape.image,
                "command": [verbatim(word) for word in _command(launch, shape)],
                **env_fields(launch, rank_environment(launch, nodes, shape, rank)),
                "volumeMounts": mounts,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                **_limits(part, shape),
                **({"ports": opened} if opened else {}),
                **({"imagePullPolicy": shape.pull_policy} if shape.pull_policy else {}),
            }
        ],
        "volumes": sources,
    }
    key = launch.job_id, launch.attempt
    if len(ranks(launch)) > 1:
        spec |= {"hostname": f"r{rank}", "subdomain": pods.run_name(key)}
    secrets = [launch.spec.registry_secret] if launch.spec.registry_secret else []
    if names := dict.fromkeys([*secrets, *shape.pull_secrets]):
        spec["imagePullSecrets"] = [{"name": name} for name in names]
    if launch.spec.code:
        spec = code_fetcher.added(spec, launch, shape.code_image, shape.server, shape.pull_policy)
    if relay := _relay(launch, shape):
        spec = relay_sidecar.added(spec, launch, relay, shape.pull_policy)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_meta(launch, rank, part, shape),
        "spec": spec,
    }


def _command(launch: Launch, shape: PodTemplate) -> list[str]:
    paths = PATHS
    if launch.spec.step:
        paths = replace(paths, workflows=_workflows(launch.spec, shape))
    words = command(launch.spec, paths)
    return library_renewal.command(words) if _renews_library(launch, shape) else words


def _relay(launch: Launch, shape: PodTemplate) -> RelayTemplate | None:
    return None if launch.spec.no_tracking else shape.relay


def _security_context(user: str, shape: PodTemplate) -> Manifest:
    uid = shape.uid(user)
    group, *others = shape.users.get(user, User()).groups or (uid,)
    return {
        "runAsNonRoot": uid != 0,
        "runAsUser": uid,
        "runAsGroup": group,
        "fsGroup": group,
        **({"supplementalGroups": others} if others else {}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _pod_meta(launch: Launch, rank: int, part: tuple[Share, ...], shape: PodTemplate) -> Manifest:
    meta = _meta(launch, pods.pod_name((launch.job_id, launch.attempt), rank))
    meta["labels"] |= {pods.RANK: str(rank)}
    node, gpus = (part[0].node if part else ""), {s.gpu: s.memory_mib for s in part}
    alloc = pods.Alloc(node, gpus, launch.epochs_done)
    meta["annotations"][pods.ALLOC] = msgspec.json.encode(alloc).decode()
    if shape.inject == "annotation" and _has_chosen_gpus(part):
        devices = ",".join(f"{pods.CDI_KIND}={share.gpu}" for share in part)
        meta["annotations"][f"nvidia.cdi.k8s.io/container.{pods.TRAINING}"] = devices
    return meta


def _placement(part: tuple[Share, ...], shape: PodTemplate, claims: bool) -> Manifest:
    """What binds the pod to its node, and its priority. A volume that waits for its first consumer
    needs the cluster's own scheduler, so a pod with a claim is not bound by its node's name."""
    spec: Manifest = {
        "tolerations": [
            {"key": pods.GPU_RESOURCE, "operator": "Exists"},
            {"key": f"{pods.DOMAIN}/owned", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": UNREACHABLE_SECONDS,
            },
        ]
    }
    if shape.priority_class:
        spec["priorityClassName"] = shape.priority_class
    if _has_chosen_gpus(part) and shape.runtime_class:
        spec["runtimeClassName"] = shape.runtime_class
    if part and shape.binding == "node_name" and not claims:
        spec["nodeName"] = part[0].node
    elif part:
        spec |= _node_affinity([part[0].node])
    return spec


def _image_affinity(launch: Launch, nodes: Sequence[Node]) -> Manifest:
    there = [node.name for node in nodes if has(node.images, launch.spec.image)]
    return _node_affinity(there) if 0 < len(there) < len(nodes) else {}


def _node_affinity(nodes: Sequence[str]) -> Manifest:
    fields = ({"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes)
    required = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"nodeAffinity": node}}


def _limits(part: tuple[Share, ...], shape: PodTemplate) -> Manifest:
    requests, limits = {"cpu": shape.cpu}, {}
    if shape.memory:
        requests["memory"] = limits["memory"] = shape.memory
    if part and not _has_chosen_gpus(part):
        limits[pods.GPU_RESOURCE] = str(len(part))
    return {
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


# --- GPUs ---------------------------------------------------------------------------------------


def _has_chosen_gpus(part: tuple[Share, ...]) -> bool:
    """Whether the scheduler chooses the pod's GPUs; otherwise the kubelet does."""
    return bool(part) and not part[0].gpu.startswith(pods.SLOT)


def _devices(part: tuple[Share, ...], shape: PodTemplate) -> dict[str, str]:
    """The variable that shows GPUs to the pod. It is always set, because images may request all;
    if the kubelet chooses the GPUs, it sets the variable itself."""
    if part and not _has_chosen_gpus(part):
        return {}
    if not part or shape.inject == "annotation":
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    if shape.inject == "volume":
        return {"NVIDIA_VISIBLE_DEVICES": DEVICES}
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(share.gpu for share in part)}


def _volumes(
    launch: Launch, part: tuple[Share, ...], shape: PodTemplate
) -> tuple[list[Manifest], list[Manifest]]:
    """The volumes of a pod, and their mounts."""
    sources, mounts = volumes(
        launch.spec, shape.custom, shape.snapshots, shape.data, shape.storage_claim, shape.volumes
    )
    memory = {"medium": "Memory", "sizeLimit": f"{shape.shm_mib}Mi"}
    sources.append({"name": "shm", "emptyDir": memory})
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if shape.inject == "volume" and _has_chosen_gpus(part):
        sources.append({"name": "gpus", "hostPath": {"path": "/dev/null"}})
        mounts += [{"name": "gpus", "mountPath": f"{DEVICES}/{share.gpu}"} for share in part]
    if _renews_library(launch, shape):
        name = library_name((launch.job_id, launch.attempt))
        source, mount = library_renewal.volume(name, shape.library)
        sources.append(source)
        mounts.append(mount)
    if launch.spec.step:
        name = f"{pods.run_name((launch.job_id, launch.attempt))}-step"
        source, mount = step_wrapping.volume(name, step_wrapping.files())
        sources.append(source)
        mounts.append(mount)
    return sources, mounts
