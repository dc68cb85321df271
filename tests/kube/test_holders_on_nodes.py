"""Held GPUs on a real node: its kubelet gives them to holders and to foreign pods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters.kubernetes.client import ApiError
from scheduler.clusters.kubernetes.holders import holder
from scheduler.clusters.kubernetes.holders.holder import MIXED, OWNED
from scheduler.clusters.kubernetes.permissions import FOR_MIXED_NODES
from tests.kube.cluster import CLUSTER_RULES, RULES, daemon_kubeconfig
from tests.kube.held import GPUS, HeldNode, HoldingPort, run_rounds
from tests.kube.images import python_image
from tests.kube.nodes import Nodes

IMAGE = "docker.io/epoch-scheduler/holder:test"
ROUNDS = int(os.environ.get("ROUNDS", "20"))  # each takes some seconds
TELL = ("sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 1000')


class Real(HeldNode):
    """The GPUs that containers were given, as their logs say."""

    def step(self) -> None:
        there = {pod["metadata"]["name"]: pod for pod in self.pods() if not _left(pod)}
        for name in self.given.keys() - there.keys():
            del self.given[name]
        for name, pod in there.items():
            told = name.startswith("gs-hold-") or not name.startswith("gs-")
            if told and name not in self.given and pod["status"]["phase"] == "Running":
                self._ask(name)

    def _ask(self, name: str) -> None:
        try:
            said = self._server.call("GET", f"{self._path}/{name}/log").decode().split()
        except ApiError as error:
            if error.code not in (400, 404):  # it has just started, or ended
                raise
            return
        if said:
            self.given[name] = tuple(said[0].split(","))


def _left(pod: dict[str, Any]) -> bool:
    """Stops a foreign pod: when its container has ended, the kubelet gives its GPU to other pods,
    and only then reports to the server."""
    meta = pod["metadata"]
    return "deletionTimestamp" in meta and not meta["name"].startswith("gs-")


@pytest.fixture
def port(nodes: Nodes, namespace: str, request: pytest.FixtureRequest) -> Iterator[HoldingPort]:
    control, node = nodes.control, nodes.nodes[0]
    name, label = node.name, f"{holder.MODE}={request.param}"
    agent = {"/usr/local/bin/scheduler-agent": Path(__file__).with_name("holder.sh")}
    node.load(python_image(IMAGE, (), agent, command=["sleep", "infinity"]))
    node.give(*GPUS)
    token = ("create", "secret", "generic", "epoch-scheduler-agent", "--from-literal=token=x")
    control.kubectl(*token, "--namespace", namespace)
    control.kubectl("label", "node", name, label, "--overwrite")
    lists = tuple(rule.written() for rule in FOR_MIXED_NODES)
    kubeconfig = daemon_kubeconfig(control, namespace, RULES, (*CLUSTER_RULES, *lists))
    port = HoldingPort(kubeconfig, namespace, Real(control, namespace, name), IMAGE)
    port.held.start(lambda event: None)
    try:
        yield port
    finally:
        port.held.stop()
        control.kubectl("label", "node", name, f"{holder.MODE}-")
        control.kubectl("delete", "pods", "--all", "--namespace", namespace)


@pytest.mark.slow
@pytest.mark.parametrize("port", [OWNED, MIXED], indirect=True)
def test_no_card_is_owned_twice_beside_pods_of_others(port: HoldingPort) -> None:
    port.wait_until(lambda: len(port.usable_gpus()) == len(GPUS))
    run_rounds(port, ROUNDS, IMAGE, *TELL)
