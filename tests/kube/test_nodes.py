"""The nodes of the tests are real ones: what they must be able to do for the other tests."""

from __future__ import annotations

from typing import Any

from tests.kube.control import ControlPlane
from tests.kube.nodes import Nodes
from tests.support import eventually


def pod(name: str, *command: str, node: str = "", gpus: int = 0) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "epoch-scheduler/python:test",
        "imagePullPolicy": "Never",
        "command": command,
        "resources": {"limits": {"nvidia.com/gpu": gpus}} if gpus else {},
    }
    spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**spec, "nodeName": node} if node else spec,
    }


def status(control: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = control.get("pod", name, "--namespace", namespace)["status"]
    return found


def logs(control: ControlPlane, namespace: str, name: str) -> str:
    return control.kubectl("logs", name, "--namespace", namespace)


def until(control: ControlPlane, namespace: str, name: str, phase: str) -> dict[str, Any]:
    eventually(lambda: status(control, namespace, name)["phase"] == phase)
    return status(control, namespace, name)


def test_a_training_runs_in_a_pod_and_its_log_can_be_read(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    control.apply(pod("training", "python3", "-c", IMPORT), namespace)
    until(control, namespace, "training", "Succeeded")
    assert logs(control, namespace, "training") == "the library is there\n"


def test_pods_reach_each_other_over_the_nodes(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    first, second = nodes.nodes
    control.apply(pod("server", "python3", "-c", SERVE, node=first.name), namespace)
    address = until(control, namespace, "server", "Running")["podIP"]
    eventually(lambda: "listens" in logs(control, namespace, "server"))
    control.apply(pod("client", "python3", "-c", ASK, address, node=second.name), namespace)
    until(control, namespace, "client", "Succeeded")
    assert logs(control, namespace, "client") == "hello\n"


def test_a_container_is_told_which_gpu_it_was_given(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    node = nodes.nodes[0]
    give(nodes, control, "GPU-one")
    control.apply(pod("one", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES", gpus=1), namespace)
    until(control, namespace, "one", "Succeeded")
    assert logs(control, namespace, "one") == "GPU-one\n"
    assert node.name == control.get("pod", "one", "-n", namespace)["spec"]["nodeName"]


def test_a_pod_with_too_many_gpus_is_refused_by_its_node(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    give(nodes, control, "GPU-one", "GPU-two")
    control.apply(pod("many", "true", node=nodes.nodes[0].name, gpus=3), namespace)
    assert until(control, namespace, "many", "Failed")["reason"] == "UnexpectedAdmissionError"


def give(nodes: Nodes, control: ControlPlane, *gpus: str) -> None:
    """The first node has these, and the kubelet has noticed."""
    node = nodes.nodes[0]
    node.set_gpus(dict.fromkeys(gpus, True))

    def told() -> bool:
        allocatable = control.get("node", node.name)["status"]["allocatable"]
        return bool(allocatable.get("nvidia.com/gpu") == str(len(gpus)))

    eventually(told)


IMPORT = """
from kubernetesdlprofile import kubeprofiler
print("the library is there")
"""
SERVE = """
import socket
server = socket.create_server(("", 4000))
print("listens", flush=True)
server.accept()[0].sendall(b"hello")
"""
ASK = """
import socket, sys
print(socket.create_connection((sys.argv[1], 4000)).recv(5).decode())
"""
