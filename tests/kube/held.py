"""Our port with holders, and a node's GPUs: which pods they were given to, as far as visible."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.cluster import KubernetesCluster
from scheduler.clusters.kubernetes.holders.cluster import HoldingCluster
from scheduler.clusters.kubernetes.holders.holder import HolderTemplate
from scheduler.clusters.kubernetes.holders.holders import Holders, HolderTimeouts
from scheduler.clusters.kubernetes.holders.requests import HolderRequests
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.core.errors import Unavailable
from scheduler.core.model import Gpu, JobId, JobSpec, Launch, Observed, Pod, Remove, Share
from scheduler.gpus.usage import GpuReading, GpuReport
from tests.kube.control import ControlPlane
from tests.support import eventually

GPUS = ("GPU-a", "GPU-b", "GPU-c")
TIMEOUTS = HolderTimeouts(idle_seconds=1.0, held_seconds=10.0, again_seconds=2.0)


class HeldNode:
    """A node with these GPUs; its pods are started elsewhere."""

    def __init__(self, control: ControlPlane, namespace: str, name: str) -> None:
        self.name, self._server = name, KubernetesClient(control.admin, 10.0)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self.given: dict[str, tuple[str, ...]] = {}  # GPUs, by the name of a pod

    def step(self) -> None:
        """Does everything that is due."""
        raise NotImplementedError

    def reports(self) -> list[GpuReport]:
        """The reports of the agents in holders."""
        return [
            GpuReport(name, time.time(), tuple(GpuReading(gpu(card)) for card in cards))
            for name, cards in dict(self.given).items()
            if name.startswith("gs-hold-")
        ]

    def add_foreign_pod(self, name: str, image: str = "none:1", *command: str) -> None:
        limits = {"limits": {pods.GPU_RESOURCE: "1"}}
        container = {"name": "main", "image": image, "resources": limits}
        container |= {"command": command, "imagePullPolicy": "IfNotPresent"}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        made = {"metadata": {"name": name}, "spec": spec}
        self._server.call("POST", self._path, body={"apiVersion": "v1", "kind": "Pod", **made})

    def delete_foreign_pod(self, name: str) -> None:
        self._server.call("DELETE", f"{self._path}/{name}")

    def foreign_gpus(self) -> set[str]:
        """The GPUs that foreign pods have."""
        theirs = [cards for name, cards in self.given.items() if not name.startswith("gs-")]
        return {card for cards in theirs for card in cards}

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._server.call("GET", self._path))["items"]
        return found

    def holders(self) -> list[str]:
        names = [pod["metadata"]["name"] for pod in self.pods()]
        return [name for name in names if name.startswith("gs-hold-")]


def gpu(card: str) -> Gpu:
    return Gpu(card, GPUS.index(card), "t4", 16_384, 300)


class HoldingPort:
    """Our port, connected to the API server."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        node: HeldNode,
        image: str = "none:1",
        request_seconds: float = 5.0,
    ) -> None:
        shape = PodTemplate(
            "scheduler:7070",
            namespace,
            image,
            cpu="10m",
            grace_seconds=1,
            pull_policy="IfNotPresent",
        )
        dress = HolderTemplate(
            image, "scheduler:7070", namespace, "default", pull_policy="IfNotPresent"
        )
        holders = Holders(dress, TIMEOUTS)
        below = KubernetesCluster(
            KubernetesClient(kubeconfig, request_seconds), shape, time.time, by_uuid=holders.by_uuid
        )
        server = KubernetesClient(kubeconfig, request_seconds)
        keeping = HolderRequests(server, dress, "exclusive", [namespace], 10.0)
        self.node, self.told = node, list[Observed]()
        self.held = HoldingCluster(
            below, keeping, holders, node.reports, time.time, below.look_again
        )

    def launch(self, *cards: str) -> Launch:
        spec = JobSpec(name="j", user="ada", command=("sleep", "1000"), max_epochs=3)
        shares = tuple(Share(self.node.name, card, 1000) for card in cards)
        launch = Launch(JobId(str(uuid.uuid4())), 1, spec, shares, 0, 3, "secret-of-the-job")
        self.held.perform(launch)
        assert self.pods_of(launch), "what was asked for shows at once"
        return launch

    def observe(self) -> Observed:
        seen: list[Observed] = []

        def looked() -> bool:
            try:
                seen.append(self.held.observe())
            except Unavailable:
                return False
            return True

        eventually(looked)
        return seen[0]

    def pods_of(self, launch: Launch) -> list[Pod]:
        return [pod for pod in self.observe().pods if pod.job_id == launch.job_id]

    def usable_gpus(self) -> list[str]:
        nodes = [node for node in self.observe().nodes if node.name == self.node.name]
        return [gpu.uuid for node in nodes for gpu in node.usable]

    def state(self, launch: Launch) -> str:
        return next((str(pod.state) for pod in self.pods_of(launch)), "gone")

    def wait_until(self, true: Callable[[], object]) -> None:
        def stepped() -> object:
            self.node.step()
            return true()

        eventually(stepped)

    def gpus_of(self, launch: Launch) -> list[str]:
        """The GPU that it really has: the one in its pod's annotation."""
        name = pods.pod_name((launch.job_id, 1), 0)
        (pod,) = (p for p in self.node.pods() if p["metadata"]["name"] == name)
        return list(json.loads(pod["metadata"]["annotations"][pods.ALLOC])["gpus"])

    def end(self, launch: Launch) -> None:
        self.held.perform(Remove(launch.job_id, 1))
        self.wait_until(lambda: not self.pods_of(launch))


def run_rounds(port: HoldingPort, count: int, image: str = "none:1", *command: str) -> None:
    """Foreign pods and jobs start and end at random; each step checks which has which GPU."""
    chance, running, node = random.Random(5), list[Launch](), port.node
    for number in range(count):
        node.add_foreign_pod(f"stranger-{number}", image, *command)
        if usable := port.usable_gpus():
            running.append(port.launch(chance.choice(usable)))
        port.wait_until(lambda: all(port.state(each) != "pending" for each in running))
        for each in [each for each in running if port.state(each) == "failed"]:
            port.end(each)
            running.remove(each)
        ours = {card for each in running for card in port.gpus_of(each)}
        assert not ours & node.foreign_gpus()
        for name in [name for name in node.given if not name.startswith("gs-")]:
            if chance.random() < 0.6:
                node.delete_foreign_pod(name)
        for each in [each for each in running if chance.random() < 0.6]:
            port.end(each)
            running.remove(each)
