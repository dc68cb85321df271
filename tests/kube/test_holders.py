"""Held GPUs on a real API server with its own scheduler, which decides which pod gets one, foreign
pods included. Only the kubelet is simulated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError
from scheduler.clusters.kubernetes.holders import holder
from scheduler.clusters.kubernetes.holders.holder import MIXED, OWNED, Hold
from scheduler.clusters.kubernetes.permissions import FOR_MIXED_NODES
from scheduler.core.model import Failure
from tests.kube.cluster import CLUSTER_RULES, RULES, daemon_kubeconfig
from tests.kube.control import ControlPlane
from tests.kube.held import GPUS, HeldNode, HoldingPort, run_rounds
from tests.kube.kubelet import Kubelet
from tests.kube.proxy import Proxy, Silence
from tests.support import eventually

ROUNDS = 50
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "100", pods.GPU_RESOURCE: str(len(GPUS))}


class Played(HeldNode):
    """A node with a kubelet that gives GPUs to the pods that the scheduler has bound to it."""

    def __init__(self, control: ControlPlane, namespace: str) -> None:
        super().__init__(control, namespace, f"node-of-{namespace}")
        self.kubelet, self._control = Kubelet(control, namespace), control

    @contextmanager
    def at_work(self, mode: str) -> Iterator[Played]:
        self.kubelet.add_node(self.name, ())
        self._patch({"spec": {"taints": []}})
        self.label(holder.MODE, mode)
        self._patch({"status": {"capacity": ROOM, "allocatable": ROOM}}, "--subresource=status")
        try:
            yield self
        finally:
            self.kubelet.remove_node(self.name)
            self.kubelet.clear()

    def label(self, name: str, value: str) -> None:
        self._patch({"metadata": {"labels": {name: value}}})

    def step(self) -> None:
        for pod in self.kubelet.pods():
            name = pod["metadata"]["name"]
            try:
                if "deletionTimestamp" in pod["metadata"]:
                    self.kubelet.forget(name)
                    self.given.pop(name, None)
                elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    self._admit(name, pod["spec"]["containers"][0])
            except ApiError as error:
                if error.code not in (404, 409):  # another client was faster
                    raise

    def _admit(self, name: str, container: dict[str, Any]) -> None:
        count = int(container["resources"].get("limits", {}).get(pods.GPU_RESOURCE, "0"))
        taken = {card for cards in self.given.values() for card in cards}
        free = [card for card in GPUS if card not in taken]
        if len(free) < count:
            self.kubelet.refuses(name, "UnexpectedAdmissionError", "no card is left")
            return
        if count:
            self.given[name] = tuple(random.sample(free, count))
        self.kubelet.run(name)

    def _patch(self, patch: dict[str, Any], *words: str) -> None:
        told = ("--type=merge", "--patch", json.dumps(patch), *words)
        self._control.kubectl("patch", "node", self.name, *told)


@pytest.fixture
def node(
    request: pytest.FixtureRequest, control: ControlPlane, scheduler: None, namespace: str
) -> Iterator[Played]:
    with Played(control, namespace).at_work(request.param) as node:
        yield node


@pytest.fixture
def port(control: ControlPlane, namespace: str, node: Played) -> Iterator[HoldingPort]:
    """A port with the permissions that deploy/ grants."""
    lists = tuple(rule.written() for rule in FOR_MIXED_NODES)
    kubeconfig = daemon_kubeconfig(control, namespace, RULES, (*CLUSTER_RULES, *lists))
    with started(HoldingPort(kubeconfig, namespace, node)) as port:
        yield port


@contextmanager
def started(port: HoldingPort) -> Iterator[HoldingPort]:
    port.held.start(lambda event: None)
    try:
        yield port
    finally:
        port.held.stop()


@pytest.fixture
def patient(
    control: ControlPlane, proxy: Proxy, namespace: str, node: Played
) -> Iterator[HoldingPort]:
    """A port that waits for each answer as long as it takes."""
    lists = tuple(rule.written() for rule in FOR_MIXED_NODES)
    kubeconfig = daemon_kubeconfig(control, namespace, RULES, (*CLUSTER_RULES, *lists))
    port = HoldingPort(proxy.kubeconfig(kubeconfig), namespace, node, request_seconds=3600.0)
    with started(port):
        yield port
        proxy.heal()
        proxy.cut()


owned = pytest.mark.parametrize("node", [OWNED], indirect=True)
mixed = pytest.mark.parametrize("node", [MIXED], indirect=True)


@owned
def test_an_owned_node_is_closed_to_others_and_its_cards_are_shared(
    port: HoldingPort, node: Played
) -> None:
    port.wait_until(lambda: port.usable_gpus() == [*GPUS])
    node.add_foreign_pod("stranger")
    first, second = port.launch("GPU-b"), port.launch("GPU-b")
    port.wait_until(lambda: {port.state(first), port.state(second)} == {"running"})
    assert port.gpus_of(first) == port.gpus_of(second) == ["GPU-b"]
    assert node.holders() == [Hold(node.name, 0, 3).name]
    assert not node.foreign_gpus()


@owned
def test_a_holder_that_is_lost_takes_no_job_with_it_and_comes_back(
    port: HoldingPort, node: Played
) -> None:
    port.wait_until(lambda: port.usable_gpus() == [*GPUS])
    launch = port.launch("GPU-a")
    port.wait_until(lambda: port.state(launch) == "running")
    (name,) = node.holders()
    node.kubelet.delete(name)
    eventually(lambda: not port.usable_gpus())
    assert port.state(launch) == "running"
    port.wait_until(lambda: port.usable_gpus() == [*GPUS])
    assert port.state(launch) == "running"


@owned
def test_a_holder_makes_way_for_another_driver_and_comes_back(
    port: HoldingPort, node: Played
) -> None:
    port.wait_until(lambda: port.usable_gpus() == [*GPUS])
    launch = port.launch("GPU-a")
    port.wait_until(lambda: port.state(launch) == "running")
    node.label(pods.UPGRADE, "wait-for-jobs-required")
    port.wait_until(lambda: not port.usable_gpus())
    assert node.holders(), "a job is there"
    port.end(launch)
    port.wait_until(lambda: not node.holders())
    node.label(pods.UPGRADE, "upgrade-done")
    port.wait_until(lambda: port.usable_gpus() == [*GPUS])


@mixed
def test_a_card_of_a_mixed_node_is_held_while_it_is_used(port: HoldingPort, node: Played) -> None:
    port.wait_until(lambda: port.usable_gpus() == ["held-0", "held-1", "held-2"])
    assert not node.holders()
    launch = port.launch("held-1")
    port.wait_until(lambda: port.state(launch) == "running")
    assert node.holders() == [Hold(node.name, 1, 1).name]
    assert port.gpus_of(launch) == list(node.given[node.holders()[0]])
    assert [share.gpu for share in port.pods_of(launch)[0].shares] == ["held-1"]
    port.end(launch)
    port.wait_until(lambda: not node.holders())


@mixed
def test_who_waits_for_a_card_that_others_have_is_refused_and_placed_anew(
    port: HoldingPort, node: Played
) -> None:
    port.wait_until(lambda: len(port.usable_gpus()) == len(GPUS))
    for number in range(len(GPUS)):
        node.add_foreign_pod(f"stranger-{number}")
    port.wait_until(lambda: len(node.foreign_gpus()) == len(GPUS))
    launch = port.launch("held-0")
    port.wait_until(lambda: port.state(launch) == "failed")
    (pod,) = port.pods_of(launch)
    assert pod.reason == Failure.REFUSED
    assert pod.said.startswith(
        "no GPU could be reserved: its holder waits: its pod cannot be scheduled"
    )
    port.wait_until(lambda: not node.holders() and not port.usable_gpus())


@mixed
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "^/api/v1/pods"), ("POST", "/pods$")], ids=["others", "holder"]
)
def test_a_request_that_is_not_answered_keeps_no_other_card_waiting(
    patient: HoldingPort, proxy: Proxy, method: str, path: str
) -> None:
    patient.wait_until(lambda: len(patient.usable_gpus()) == len(GPUS))
    hung = proxy.inject(Silence(), method, path)
    first = patient.launch("held-0")
    patient.wait_until(lambda: hung.hit)
    second = patient.launch("held-1")
    patient.wait_until(lambda: patient.state(second) == "running")
    proxy.cut()
    patient.wait_until(lambda: patient.state(first) != "pending")  # or it was given up meanwhile


@mixed
def test_no_card_is_owned_twice_beside_pods_of_others(port: HoldingPort, node: Played) -> None:
    port.wait_until(lambda: len(port.usable_gpus()) == len(GPUS))
    run_rounds(port, ROUNDS)
