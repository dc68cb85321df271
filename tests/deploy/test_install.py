"""deploy/kubernetes installed on a real API server: accepted, sufficient, and removed
completely."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.installing import installed, left, uninstall
from tests.deploy.manifests import DAEMON, FOLDERS, JOBS, manifests, one
from tests.kube.control import ControlPlane, token_file
from tests.support import Daemon, eventually

pytestmark = pytest.mark.kube

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "westworld",
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"nvidia.com/gpu.memory": "16384"},
    },
    "status": {
        kind: {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"}
        for kind in ("capacity", "allocatable")
    },
}


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest, control: ControlPlane) -> Iterator[str]:
    """Installs it, and removes it afterwards."""
    folder: str = request.param
    with installed(control, folder):
        yield folder


def test_what_is_installed_is_what_is_written(folder: str, control: ControlPlane) -> None:
    """The server knows every field; it would drop or refuse a misspelt one."""
    for manifest in manifests(folder):
        namespace = manifest["metadata"].get("namespace", "default")
        name = (manifest["kind"], manifest["metadata"]["name"])
        there = control.get(*name, "--namespace", namespace)
        assert _within(manifest, there), name


def test_the_daemon_s_pod_is_admitted_under_the_strictest_level(
    folder: str, control: ControlPlane
) -> None:
    def made() -> Any:
        return control.get("pods", "--namespace", DAEMON)["items"]

    eventually(made)
    label = "pod-security.kubernetes.io/enforce"
    assert one(folder, "Namespace", DAEMON)["metadata"]["labels"][label] == "restricted"


def test_an_agent_is_off_its_node_while_the_driver_is_replaced(
    folder: str, control: ControlPlane, node: None
) -> None:
    if folder != "overlays/lab":
        pytest.skip("it has no agents")

    def agents() -> Any:
        place = ("--namespace", f"{DAEMON}-agents")
        status = control.get("daemonset", f"{DAEMON}-agent", *place)["status"]
        return status["desiredNumberScheduled"]

    control.kubectl("label", "node", "westworld", "nvidia.com/gpu.present=true")
    eventually(lambda: agents() == 1)
    for state, count in (("pod-deletion-required", 0), ("upgrade-done", 1)):
        label = f"nvidia.com/gpu-driver-upgrade-state={state}"
        control.kubectl("label", "node", "westworld", label, "--overwrite")
        eventually(lambda: agents() == count)  # noqa: B023 - called in this round


def test_a_daemon_with_this_account_and_these_settings_runs_a_job(
    folder: str, control: ControlPlane, node: None, tmp_path: Path
) -> None:
    """All but the container is as installed: account, settings, priorities, security level."""
    settings = tmp_path / "epoch-scheduler.toml"
    settings.write_text(one(folder, "ConfigMap")["data"]["epoch-scheduler.toml"])
    kubeconfig = control.kubeconfig(f"{DAEMON}-as-installed")
    token_file(kubeconfig).write_text(control.token(DAEMON, DAEMON))
    daemon = Daemon(tmp_path / "state", "0", "--config", str(settings))
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("SCHEDULER_KUBERNETES__KUBECONFIG", str(kubeconfig))
            environment.setenv("SCHEDULER_KUBERNETES__RUNTIME_CLASS", "")
            daemon.start()
        daemon.submit("--image_name", "none:1", "--num_gpus", "0", "as-installed", "--", "true")
        daemon.wait_state(**{"as-installed": "RUNNING"})
        (pod,) = _pods_of_jobs(control)
        assert pod["spec"]["priorityClassName"] == "epoch-scheduler-worker"
        assert pod["spec"]["preemptionPolicy"] == "Never"
        daemon.run("scheduler-cancel-job", "as-installed")
        daemon.wait_state(**{"as-installed": "CANCELED"})
        eventually(lambda: not _pods_of_jobs(control))
    finally:
        daemon.end()


def _pods_of_jobs(control: ControlPlane) -> list[Any]:
    return list(control.get("pods", "--namespace", JOBS)["items"])


@pytest.fixture
def node(control: ControlPlane) -> Iterator[None]:
    """A node that kwok simulates, with two GPUs."""
    control.apply(NODE)
    status = json.dumps({"status": NODE["status"]})
    control.kubectl("patch", "node", "westworld", "--subresource=status", "--patch", status)
    control.scheduler.start()
    control.kwok.start()
    yield
    control.kwok.kill()
    control.scheduler.kill()
    control.kubectl("delete", "node", "westworld")
    words = ("delete", "pods", "--all", "--all-namespaces", "--force", "--grace-period=0")
    control.kubectl(*words)


def test_uninstalling_leaves_nothing(folder: str, control: ControlPlane) -> None:
    """Uninstalls its folder, as the last one."""
    control.kubectl("create", "configmap", "of-a-job", "--namespace", JOBS)
    uninstall(control, folder)
    eventually(lambda: not left(control))


def _within(written: Any, there: Any) -> bool:
    """Whether all written fields are there; the server adds fields of its own."""
    if isinstance(written, dict):
        return all(key in there and _within(value, there[key]) for key, value in written.items())
    if isinstance(written, list):
        pairs = zip(written, there, strict=True)
        return len(written) == len(there) and all(_within(*pair) for pair in pairs)
    return bool(written == there)
