"""The nodes of the tests are real: the features that other tests rely on."""

from __future__ import annotations

import socket
from typing import Any

from tests.kube.control import READY_SECONDS, ControlPlane
from tests.kube.nodes import Nodes
from tests.kube.proxy import Proxy
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
    eventually(lambda: status(control, namespace, name)["phase"] == phase, READY_SECONDS)
    return status(control, namespace, name)


def test_a_training_runs_in_a_pod_and_its_log_can_be_read(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    control.apply(pod("training", "python3", "-c", IMPORT), namespace)
    until(control, namespace, "training", "Succeeded")
    assert logs(control, namespace, "training") == "the library is there\n"


def test_a_command_runs_in_a_pod_also_through_the_proxy(
    nodes: Nodes, control: ControlPlane, namespace: str, proxy: Proxy
) -> None:
    control.apply(pod("long", "sleep", "infinity"), namespace)
    until(control, namespace, "long", "Running")
    through = ("--kubeconfig", proxy.kubeconfig(control.admin), "--namespace", namespace)
    assert control.kubectl("exec", "long", *through, "--", "sh", "-c", "echo $0") == "sh\n"


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


def test_services_have_names_and_are_reached_from_pods_and_from_this_machine(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    control.apply(SERVICES, namespace)
    server = pod("server", "python3", "-c", SERVE)
    server["metadata"]["labels"] = {"app": "server"}
    server["spec"] |= {"hostname": "rank0", "subdomain": "ranks"}
    control.apply(server, namespace)
    until(control, namespace, "server", "Running")
    for number, name in enumerate(("port", "rank0.ranks")):
        control.apply(pod(f"asks-{number}", "python3", "-c", ASK, name), namespace)
        until(control, namespace, f"asks-{number}", "Succeeded")
    port = control.get("service", "port", "-n", namespace)["spec"]["ports"][0]["nodePort"]
    for node in nodes.nodes:
        with socket.create_connection((node.address, port), timeout=10) as connection:
            assert connection.recv(5) == b"hello"


def test_a_pod_reaches_the_api_server_as_its_account(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    control.apply(pod("asks", "python3", "-c", ASK_API), namespace)
    until(control, namespace, "asks", "Succeeded")
    assert logs(control, namespace, "asks") == f"system:serviceaccount:{namespace}:default\n"


def test_a_container_is_told_which_gpu_it_was_given(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    node = nodes.nodes[0]
    node.give("GPU-one")
    control.apply(pod("one", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES", gpus=1), namespace)
    until(control, namespace, "one", "Succeeded")
    assert logs(control, namespace, "one") == "GPU-one\n"
    assert node.name == control.get("pod", "one", "-n", namespace)["spec"]["nodeName"]


def test_a_pod_with_too_many_gpus_is_refused_by_its_node(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    node = nodes.nodes[0]
    node.give("GPU-one", "GPU-two")
    control.apply(pod("many", "true", node=node.name, gpus=3), namespace)
    assert until(control, namespace, "many", "Failed")["reason"] == "UnexpectedAdmissionError"


def test_a_kubelet_that_was_killed_comes_back_with_its_gpus_and_its_pods_went_on(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    node = nodes.nodes[0]
    node.give("GPU-one")
    control.apply(pod("long", "sleep", "infinity", gpus=1), namespace)
    before = until(control, namespace, "long", "Running")["containerStatuses"]
    node.kubelet.kill()
    node.containerd.kill()
    nodes.start()
    node.give("GPU-one", "GPU-two")
    assert status(control, namespace, "long")["containerStatuses"] == before
    control.apply(pod("second", "true", gpus=1), namespace)
    until(control, namespace, "second", "Succeeded")


def test_a_node_without_power_is_noticed_and_comes_back(
    nodes: Nodes, control: ControlPlane, namespace: str
) -> None:
    node = nodes.nodes[0]
    control.apply(pod("long", "sleep", "infinity", node=node.name), namespace)
    until(control, namespace, "long", "Running")
    node.init.kill()
    eventually(lambda: ready(control, node.name) == "Unknown", READY_SECONDS)
    nodes.start()
    (lost,) = until(control, namespace, "long", "Failed")["containerStatuses"]
    assert lost["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


def ready(control: ControlPlane, node: str) -> str:
    conditions = control.get("node", node)["status"]["conditions"]
    return str(next(found["status"] for found in conditions if found["type"] == "Ready"))


IMPORT = """
from kubernetesdlprofile import kubeprofiler
print("the library is there")
"""
SERVE = """
import socket
server = socket.create_server(("", 4000))
print("listens", flush=True)
while True:
    server.accept()[0].sendall(b"hello")
"""
SERVICES = """
{apiVersion: v1, kind: Service, metadata: {name: ranks},
 spec: {clusterIP: None, selector: {app: server}, publishNotReadyAddresses: true}}
---
{apiVersion: v1, kind: Service, metadata: {name: port},
 spec: {type: NodePort, selector: {app: server}, ports: [{port: 4000}]}}
"""
ASK_API = """
import json, os, pathlib, ssl, urllib.request
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
url = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}/apis/authentication.k8s.io/v1/selfsubjectreviews"
asked = urllib.request.Request(
    url,
    data=b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
    headers={
        "Authorization": f"Bearer {(account / 'token').read_text()}",
        "Content-Type": "application/json",
    },
)
trust = ssl.create_default_context(cafile=account / "ca.crt")
with urllib.request.urlopen(asked, context=trust) as answer:
    print(json.load(answer)["status"]["userInfo"]["username"])
"""
ASK = """
import socket, sys
print(socket.create_connection((sys.argv[1], 4000)).recv(5).decode())
"""
