"""The relay of a pod: a container of the daemon's image beside that of the training. Pure.

Where the kubelets know sidecars (1.29), it is one: it starts before the training and ends after it
by itself. Elsewhere it is a container like the other, which ends when the pod is deleted, as soon
as the training is seen to have ended. In both cases how the pod ends is how the training ends: see
pods.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.clusters import environment
from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.confidential import TOKEN, variable
from scheduler.clusters.kubernetes.volumes import PATHS
from scheduler.core.model import Launch

PORT = 8092  # on the loopback of the pod, for connections and datagrams
SETTINGS = "EPOCH_SCHEDULER_RELAY"
SNAPSHOTS = PATHS.snapshots.strip("/")
SIDECARS_SINCE = (1, 29)  # before, a feature that is off
SPARE_SECONDS = 2.0  # of the grace of a pod
COMMAND = ("python3", "-I", "-m", "scheduler.relay.sidecar")


@dataclass(frozen=True, slots=True)
class RelayTemplate:
    """What the relays of all pods have in common."""

    image: str
    gateway: str  # its URL, as pods call it
    certificate_file: Path | None = None
    certificate: str = ""  # what is in it, of the gateway or of who signed that: PEM
    spool_mib: int = 256
    linger_seconds: float = 300.0
    is_sidecar: bool = True


def variables(launch: Launch, given: Mapping[str, str]) -> dict[str, str]:
    """Those by which the training finds its relay. `given`: what it has without."""
    return environment.tracking(launch, PATHS, given, str(PORT))


def added(
    spec: Mapping[str, Any], launch: Launch, relay: RelayTemplate, pull_policy: str = ""
) -> dict[str, Any]:
    """Returns the specification of a pod with a relay in it."""
    (training,) = spec["containers"]
    mounts = [mount for mount in training["volumeMounts"] if mount["name"] == SNAPSHOTS]
    grace = spec["terminationGracePeriodSeconds"] - SPARE_SECONDS
    told = _settings(launch, relay, grace)
    environ = {
        SETTINGS: json.dumps(told),
        TOKEN: launch.token,
        "NVIDIA_VISIBLE_DEVICES": "void",  # its node may show all to whoever asks for none
    }
    container = {
        "name": pods.RELAY,
        "image": relay.image,
        "command": [*COMMAND],
        "env": [variable(launch, name, value) for name, value in environ.items()],
        "volumeMounts": mounts,
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"memory": "128Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
    }
    if relay.is_sidecar:
        first = spec.get("initContainers", ())
        return {**spec, "initContainers": [*first, {**container, "restartPolicy": "Always"}]}
    return {**spec, "containers": [training, container]}


def know_sidecars(nodes: Sequence[pods.KubeNode]) -> bool:
    """Whether all kubelets do. The API server is never older than they are."""
    versions = [re.match(r"v(\d+)\.(\d+)", node.status.node_info.kubelet_version) for node in nodes]
    known = [(int(found[1]), int(found[2])) for found in versions if found]
    return len(known) == len(nodes) > 0 and min(known) >= SIDECARS_SINCE


def _settings(launch: Launch, relay: RelayTemplate, grace_seconds: float) -> dict[str, object]:
    folder = environment.tracking_folder(launch, PATHS)
    written = (environment.WANDB, environment.TENSORBOARD, environment.RESULTS)
    watched = [f"{folder}/{part}" for part in written]
    return {
        "job_id": launch.job_id,
        "attempt": launch.attempt,
        "experiment": launch.spec.experiment or launch.spec.project,
        "gateway": relay.gateway,
        "certificate": relay.certificate,
        "folder": folder,
        "made": watched[1:],
        "folders": [*watched, f"{PATHS.snapshots}/{launch.job_id}"],
        "resumed": launch.epochs_done > 0,
        "port": PORT,
        "spool_bytes_max": relay.spool_mib * 2**20,
        "linger_seconds": max(1.0, min(relay.linger_seconds, grace_seconds)),
    }
