"""The optional guard: only the daemon's pods may request a GPU by its name."""

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

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
ASKS = {"nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=GPU-1"}
RIGHTS = [
    {
        "apiGroups": [""],
        "resources": ["pods", "pods/ephemeralcontainers", "configmaps", "secrets"],
        "verbs": ["get", "create", "patch"],
    }
]


class Somebody:
    """An account that may create pods and what they need, where the guard is installed."""

    def __init__(self, control: ControlPlane) -> None:
        self._kubeconfig = control.account("people", "somebody", RIGHTS)
        self._cache = control.folder / "kubectl"

    def kubectl(self, *words: str, given: Any = None) -> subprocess.CompletedProcess[str]:
        before: list[str | Path] = [program("kubectl"), "--kubeconfig", self._kubeconfig]
        before += ["--cache-dir", self._cache, "--namespace", "people"]
        text = json.dumps(given) if given else None
        done = subprocess.run(
            [*before, *words], input=text, capture_output=True, text=True, check=False
        )
        return done

    def creates(self, manifest: Mapping[str, Any], *words: str) -> str:
        """The message of the refusal; empty if there is none."""
        return self.kubectl("create", "--filename", "-", *words, given=manifest).stderr

    def tries(self, manifest: Mapping[str, Any]) -> str:
        """The same as a dry run."""
        return self.creates(manifest, "--dry-run=server")


@pytest.fixture(scope="module")
def somebody(control: ControlPlane) -> Iterator[Somebody]:
    with installed(control, "overlays/lab"):
        control.namespace("people")
        # Elsewhere a controller makes it, but none runs for these tests.
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        control.apply(account, "epoch-scheduler-jobs")
        made = Somebody(control)
        # It takes effect a little later.
        eventually(lambda: VARIABLE in made.tries(pod({"env": [variable("all")]})))
        eventually(lambda: VARIABLE in made.tries(of_keys("ConfigMap", VARIABLE)))
        yield made
        control.kubectl("delete", "namespace", "people", "--wait=false")


def variable(value: str) -> dict[str, str]:
    return {"name": VARIABLE, "value": value}


def mount(path: str) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "n", "mountPath": path}]}


def of_keys(kind: str, key: str) -> dict[str, Any]:
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "values"}}
    return {**made, "data" if kind == "ConfigMap" else "stringData": {key: "all"}}


def pod(
    container: Mapping[str, Any] | None = None,
    first: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    name: str = "of-somebody",
) -> dict[str, Any]:
    """A pod with these fields in its container, or in an init container."""
    container, first = (
        {"name": name, "image": "none:1", **(more or {})}
        for name, more in (("main", container), ("first", first))
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "containers": [container],
            "initContainers": [first],
            "volumes": [{"name": "n", "emptyDir": {}}],
        },
    }


BELOW = "/var/run/nvidia-container-devices"
FROM = {"configMapRef": {"name": "values"}}
GREEDY = {
    "a variable": (pod({"env": [variable("all")]}), VARIABLE),
    "one from elsewhere": (
        pod(
            {"env": [{"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
        ),
        VARIABLE,
    ),
    "one before": (pod(first={"env": [variable("0")]}), VARIABLE),
    "a prefix": (pod({"envFrom": [{**FROM, "prefix": "NVIDIA_"}]}), VARIABLE),
    "a configmap": (of_keys("ConfigMap", VARIABLE), VARIABLE),
    "a secret": (of_keys("Secret", VARIABLE), VARIABLE),
    "a mount": (pod(mount(f"{BELOW}/GPU-1")), BELOW),
    "a mount before": (pod(first=mount(f"{BELOW}/GPU-1")), BELOW),
    "two slashes": (pod(mount("/var//run/nvidia-container-devices/GPU-1")), BELOW),
    "a detour": (pod(mount("/var/lib/../run/nvidia-container-devices/all")), BELOW),
    "an annotation": (pod(annotations=ASKS), "nvidia.cdi.k8s.io"),
}


@pytest.mark.parametrize("way", GREEDY)
def test_nobody_else_takes_a_card_by_its_name(somebody: Somebody, way: str) -> None:
    manifest, named = GREEDY[way]
    refusal = somebody.tries(manifest)
    assert "epoch-scheduler-" in refusal
    assert named in refusal


MODEST = {
    "void": pod({"env": [variable("void")]}),
    "variables": pod({"envFrom": [FROM, {**FROM, "prefix": "NVIDIA_DRIVER_"}]}),
    "a configmap": of_keys("ConfigMap", "VISIBLE_DEVICES"),
    "a secret": of_keys("Secret", "NVIDIA_DRIVER_CAPABILITIES"),
    "a mount": pod(mount("/var/run/nvidia")),
}


@pytest.mark.parametrize("way", MODEST)
def test_who_takes_none_is_not_bothered(somebody: Somebody, way: str) -> None:
    assert not somebody.tries(MODEST[way])


def test_nor_is_one_taken_by_a_pod_that_is_there(somebody: Somebody) -> None:
    assert not somebody.creates(pod(name="there"))
    debug = ("debug", "there", "--image", "none:1", "--attach=false", "--env")
    assert VARIABLE in somebody.kubectl(*debug, f"{VARIABLE}=all").stderr
    assert somebody.kubectl(*debug, f"{VARIABLE}=void").returncode == 0
    asks = json.dumps({"metadata": {"annotations": ASKS}})
    assert "nvidia.cdi.k8s.io" in somebody.kubectl("patch", "pod", "there", "--patch", asks).stderr


def test_what_the_daemon_asked_for_stays_when_others_write_to_its_pod(
    control: ControlPlane, somebody: Somebody
) -> None:
    as_daemon = ("--as", "system:serviceaccount:epoch-scheduler:epoch-scheduler")
    words = ("create", "--namespace", "epoch-scheduler-jobs", "--filename", "-", *as_daemon)
    control.kubectl(*words, text=json.dumps(pod(annotations=ASKS, name="job")))
    control.kubectl("label", "pod", "job", "--namespace", "epoch-scheduler-jobs", "seen=yes")
