"""A job's package in a pod: an init container of the daemon's image fetches it with the job's token
into a volume of the pod, which the training sees read-only as /code. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.confidential import TOKEN, variable
from scheduler.clusters.kubernetes.volumes import PATHS
from scheduler.core.model import Launch

SETTINGS = "EPOCH_SCHEDULER_CODE"
COMMAND = ("python3", "-I", "-m", "scheduler.packages.fetching")
VOLUME, TREE = "code", "tree"  # the part of the volume that is the package


def added(
    spec: Mapping[str, Any], launch: Launch, image: str, server: str, pull_policy: str = ""
) -> dict[str, Any]:
    """Returns the specification of a pod with the package of its job."""
    told = {
        "server": server,
        "package": launch.spec.code,
        "folders": dict(launch.spec.folders),
        "folder": f"{PATHS.code}/{TREE}",
    }
    environ = {
        SETTINGS: json.dumps(told),
        TOKEN: launch.token,
        "NVIDIA_VISIBLE_DEVICES": "void",  # its node may show all to whoever asks for none
    }
    fetcher = {
        "name": pods.FETCHER,
        "image": image,
        "command": [*COMMAND],
        "env": [variable(launch, name, value) for name, value in environ.items()],
        "volumeMounts": [{"name": VOLUME, "mountPath": PATHS.code}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
    }
    training, *others = spec["containers"]
    mount = {"name": VOLUME, "mountPath": PATHS.code, "subPath": TREE, "readOnly": True}
    training = {
        **training,
        "workingDir": PATHS.code,
        "volumeMounts": [*training["volumeMounts"], mount],
    }
    return {
        **spec,
        "initContainers": [fetcher, *spec.get("initContainers", ())],
        "containers": [training, *others],
        "volumes": [*spec["volumes"], {"name": VOLUME, "emptyDir": {}}],
    }
