"""Cards that are held, on a real API server with its own scheduler: who gets one is decided there,
beside pods that are none of ours. Only what a kubelet would do is played.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters import holding, pods
from scheduler.clusters.holders import Holders, Waits
from scheduler.clusters.holding import MIXED, OWNED, Dress, Hold
from scheduler.clusters.kubeapi import ApiError, Server
from scheduler.clusters.kubeheld import Held
from scheduler.clusters.kubeholders import Keeping
from scheduler.clusters.kubernetes import KubernetesCluster
from scheduler.clusters.kubeverbs import FOR_MIXED_NODES
from scheduler.clusters.manifests import Shape
from scheduler.errors import Unavailable
from scheduler.model import Failure, Gpu, JobId, JobSpec, Launch, Observed, Pod, Remove, Share
from scheduler.usage import Card, Report
from tests.kube.cluster import CLUSTER_RULES, RULES, allowed
from tests.kube.control import ControlPlane
from tests.kube.kubelet import Kubelet
from tests.support import eventually

CARDS = ("GPU-a", "GPU-b", "GPU-c")
ROUNDS = 25
WAITS = Waits(idle_seconds=1.0, held_seconds=10.0, again_seconds=2.0)
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "100", pods.GPU_RESOURCE: str(len(CARDS))}


class Node:
    """Plays a node's kubelet: it gives cards to whom the scheduler has bound there."""

    def __init__(self, control: ControlPlane, namespace: str) -> None:
        self.server = Server(control.admin, 10.0)
        self.kubelet, self.name = Kubelet(control, namespace), f"node-of-{namespace}"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.given: dict[str, tuple[str, ...]] = {}  # cards, by the name of a pod
        self._control = control

    @contextmanager
    def at_work(self, mode: str) -> Iterator[Node]:
        self.kubelet.joins(self.name, ())
        self._patch({"metadata": {"labels": {holding.MODE: mode}}, "spec": {"taints": []}})
        self._patch({"status": {"capacity": ROOM, "allocatable": ROOM}}, "--subresource=status")
        try:
            yield self
        finally:
            self.kubelet.leaves(self.name)
            self.kubelet.clears()

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
                if error.code not in (404, 409):  # somebody was faster
                    raise

    def reports(self) -> list[Report]:
        """What the agents in holders see."""
        return [
            Report(name, time.time(), tuple(Card(gpu(uuid)) for uuid in cards))
            for name, cards in dict(self.given).items()
            if name.startswith("gs-hold-")
        ]

    def somebody_asks(self, name: str) -> None:
        limits = {"limits": {pods.GPU_RESOURCE: "1"}}
        container = {"name": "main", "image": "none:1", "resources": limits}
        made = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        self.server.call("POST", self.pods, body={"apiVersion": "v1", "kind": "Pod", **made})

    def foreign(self) -> set[str]:
        """The cards that pods of others have."""
        theirs = [cards for name, cards in self.given.items() if not name.startswith("gs-")]
        return {card for cards in theirs for card in cards}

    def holders(self) -> list[str]:
        names = [pod["metadata"]["name"] for pod in self.kubelet.pods()]
        return [name for name in names if name.startswith("gs-hold-")]

    def _admit(self, name: str, container: dict[str, Any]) -> None:
        count = int(container["resources"].get("limits", {}).get(pods.GPU_RESOURCE, "0"))
        taken = {card for cards in self.given.values() for card in cards}
        free = [card for card in CARDS if card not in taken]
        if len(free) < count:
            self.kubelet.refuses(name, "UnexpectedAdmissionError", "no card is left")
            return
        if count:
            self.given[name] = tuple(random.sample(free, count))
        self.kubelet.runs(name)

    def _patch(self, patch: dict[str, Any], *words: str) -> None:
        told = ("--type=merge", "--patch", json.dumps(patch), *words)
        self._control.kubectl("patch", "node", self.name, *told)


def gpu(uuid: str) -> Gpu:
    return Gpu(uuid, CARDS.index(uuid), "t4", 16_384, 300)


class Port:
    """Ours, before the API server."""

    def __init__(self, kubeconfig: Path, namespace: str, node: Node) -> None:
        shape, dress = (
            Shape("scheduler:7070", namespace, "none:1"),
            Dress("agent:1", "scheduler:7070", namespace),
        )
        holders = Holders(dress, WAITS)
        below = KubernetesCluster(
            Server(kubeconfig, 5.0), shape, time.time, by_uuid=holders.by_uuid
        )
        keeping = Keeping(Server(kubeconfig, 5.0), dress, "exclusive", [namespace], 10.0)
        self.node, self.told = node, list[Observed]()
        self.held = Held(below, keeping, holders, node.reports, time.time, below.look_again)

    def launch(self, *cards: str) -> Launch:
        spec = JobSpec(name="j", user="ada", command=("sleep", "1000"), max_epochs=3)
        shares = tuple(Share(self.node.name, card, 1000) for card in cards)
        launch = Launch(JobId(str(uuid.uuid4())), 1, spec, shares, 0, 3, "secret-of-the-job")
        self.held.perform(launch)
        assert self.of(launch), "what was asked for shows at once"
        return launch

    def look(self) -> Observed:
        seen: list[Observed] = []

        def looked() -> bool:
            try:
                seen.append(self.held.observe())
            except Unavailable:
                return False
            return True

        eventually(looked)
        return seen[0]

    def of(self, launch: Launch) -> list[Pod]:
        return [pod for pod in self.look().pods if pod.job_id == launch.job_id]

    def usable(self) -> list[str]:
        nodes = [node for node in self.look().nodes if node.name == self.node.name]
        return [gpu.uuid for node in nodes for gpu in node.usable]

    def until(self, true: Callable[[], object]) -> None:
        def stepped() -> object:
            self.node.step()
            return true()

        eventually(stepped)

    def card_of(self, launch: Launch) -> list[str]:
        """Which it really has: what is written into its pod."""
        name = pods.pod_name((launch.job_id, 1), 0)
        (pod,) = (p for p in self.node.kubelet.pods() if p["metadata"]["name"] == name)
        return list(json.loads(pod["metadata"]["annotations"][pods.ALLOC])["gpus"])

    def ends(self, launch: Launch) -> None:
        self.held.perform(Remove(launch.job_id, 1))
        self.until(lambda: not self.of(launch))


@pytest.fixture
def node(
    request: pytest.FixtureRequest, control: ControlPlane, scheduler: None, namespace: str
) -> Iterator[Node]:
    with Node(control, namespace).at_work(request.param) as node:
        yield node


@pytest.fixture
def port(control: ControlPlane, namespace: str, node: Node) -> Iterator[Port]:
    """With what deploy/ grants."""
    lists = tuple(rule.written() for rule in FOR_MIXED_NODES)
    kubeconfig = allowed(control, namespace, RULES, (*CLUSTER_RULES, *lists))
    port = Port(kubeconfig, namespace, node)
    port.held.start(lambda event: None)
    try:
        yield port
    finally:
        port.held.stop()


owned = pytest.mark.parametrize("node", [OWNED], indirect=True)
mixed = pytest.mark.parametrize("node", [MIXED], indirect=True)


def state(port: Port, launch: Launch) -> str:
    return next((str(pod.state) for pod in port.of(launch)), "gone")


@owned
def test_an_owned_node_is_closed_to_others_and_its_cards_are_shared(port: Port, node: Node) -> None:
    port.until(lambda: port.usable() == [*CARDS])
    node.somebody_asks("stranger")
    first, second = port.launch("GPU-b"), port.launch("GPU-b")
    port.until(lambda: {state(port, first), state(port, second)} == {"running"})
    assert port.card_of(first) == port.card_of(second) == ["GPU-b"]
    assert node.holders() == [Hold(node.name, 0, 3).name]
    assert not node.foreign()


@owned
def test_a_holder_that_is_lost_takes_no_job_with_it_and_comes_back(port: Port, node: Node) -> None:
    port.until(lambda: port.usable() == [*CARDS])
    launch = port.launch("GPU-a")
    port.until(lambda: state(port, launch) == "running")
    (name,) = node.holders()
    node.kubelet.delete(name)
    eventually(lambda: not port.usable())
    assert state(port, launch) == "running"
    port.until(lambda: port.usable() == [*CARDS])
    assert state(port, launch) == "running"


@mixed
def test_a_card_of_a_mixed_node_is_held_while_it_is_used(port: Port, node: Node) -> None:
    port.until(lambda: port.usable() == ["held-0", "held-1", "held-2"])
    assert not node.holders()
    launch = port.launch("held-1")
    port.until(lambda: state(port, launch) == "running")
    assert node.holders() == [Hold(node.name, 1, 1).name]
    assert port.card_of(launch) == list(node.given[node.holders()[0]])
    assert [share.gpu for share in port.of(launch)[0].shares] == ["held-1"]
    port.ends(launch)
    port.until(lambda: not node.holders())


@mixed
def test_who_waits_for_a_card_that_others_have_is_lost_and_placed_anew(
    port: Port, node: Node
) -> None:
    port.until(lambda: len(port.usable()) == len(CARDS))
    for number in range(len(CARDS)):
        node.somebody_asks(f"stranger-{number}")
    port.until(lambda: len(node.foreign()) == len(CARDS))
    launch = port.launch("held-0")
    port.until(lambda: state(port, launch) == "failed")
    (pod,) = port.of(launch)
    assert pod.reason == Failure.LOST
    assert pod.said.startswith("no card could be held: its holder waits: no place for its pod")
    port.until(lambda: not node.holders() and not port.usable())


@mixed
def test_no_card_is_owned_twice_beside_pods_of_others(port: Port, node: Node) -> None:
    chance, running = random.Random(5), list[Launch]()
    port.until(lambda: len(port.usable()) == len(CARDS))
    for number in range(ROUNDS):
        node.somebody_asks(f"stranger-{number}")
        if usable := port.usable():
            running.append(port.launch(chance.choice(usable)))
        port.until(lambda: all(state(port, each) != "pending" for each in running))
        for each in [each for each in running if state(port, each) == "failed"]:
            port.ends(each)
            running.remove(each)
        ours = {card for each in running for card in port.card_of(each)}
        assert not ours & node.foreign()
        for name in [name for name in node.given if not name.startswith("gs-")]:
            if chance.random() < 0.6:
                node.kubelet.delete(name)
        for each in [each for each in running if chance.random() < 0.6]:
            port.ends(each)
            running.remove(each)
