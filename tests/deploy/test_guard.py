"""The optional guard: who is not the daemon cannot take a card by its name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.installing import installed
from tests.kube.build import program
from tests.kube.control import ControlPlane
from tests.support import eventually

pytestmark = pytest.mark.kube


@pytest.fixture(scope="module")
def guarded(control: ControlPlane) -> Iterator[Path]:
    """The kubeconfig of somebody who may create pods, where the guard is installed."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    with installed(control, "overlays/lab"):
        control.namespace("people")
        yield control.account("people", "somebody", rules)
        control.kubectl("delete", "namespace", "people", "--wait=false")


GREEDY: dict[str, dict[str, Any]] = {
    "NVIDIA_VISIBLE_DEVICES": {
        "container": {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    },
    "nvidia-container-devices": {
        "container": {
            "volumeMounts": [{"name": "n", "mountPath": "/var/run/nvidia-container-devices/GPU-1"}]
        }
    },
    "nvidia.cdi.k8s.io": {
        "annotations": {"nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=GPU-1"}
    },
}


@pytest.mark.parametrize("named", GREEDY)
def test_nobody_else_takes_a_card_by_its_name(
    guarded: Path, control: ControlPlane, named: str
) -> None:
    def refusal() -> str:
        return _create(control, guarded, _pod(**GREEDY[named])).stderr

    eventually(lambda: "epoch-scheduler-cards" in refusal())  # it takes effect a little later
    assert named in refusal()
    void = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    done = _create(control, guarded, _pod(container=void))
    assert done.returncode == 0, done.stderr


def _pod(
    container: Mapping[str, Any] | None = None, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "of-somebody", "annotations": annotations or {}},
        "spec": {
            "containers": [{"name": "main", "image": "none:1", **(container or {})}],
            "volumes": [{"name": "n", "emptyDir": {}}],
        },
    }


def _create(
    control: ControlPlane, kubeconfig: Path, manifest: Mapping[str, Any]
) -> subprocess.CompletedProcess[str]:
    """As somebody, without making anything."""
    words: list[str | Path] = [program("kubectl"), "--kubeconfig", kubeconfig]
    words += ["--cache-dir", control.folder / "kubectl", "--namespace", "people"]
    return subprocess.run(
        [*words, "create", "--dry-run=server", "--filename", "-"],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        check=False,
    )
