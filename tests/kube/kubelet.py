"""Simulates the scheduler and the kubelet, for tests with an API server but no nodes.

It writes into pods only what those would write, so a watcher sees no difference. Real nodes are in
the tests that `make test-node` runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.core.model import Gpu
from tests.kube.control import ControlPlane

GPUS = (Gpu("GPU-1", 0, "t4", 16_384, 300), Gpu("GPU-2", 1, "t4", 16_384, 300))


class Kubelet:
    def __init__(self, control: ControlPlane, namespace: str) -> None:
        self._server = KubernetesClient(control.admin, 10.0)
        self.node = f"node-of-{namespace}"
        self._namespace = f"/api/v1/namespaces/{namespace}"
        self._pods = f"{self._namespace}/pods"

    @contextmanager
    def at_work(self) -> Iterator[Kubelet]:
        """With a node that is empty before and after."""
        self.add_node(self.node)
        try:
            yield self
        finally:
            self.remove_node(self.node)
            self.clear()

    # --- nodes ------------------------------------------------------------------------------

    def add_node(self, node: str, cards: Sequence[Gpu] = GPUS, **annotations: str) -> None:
        listed = {pods.GPUS: pods.gpus_annotation(cards)} if cards else {}
        meta = {"name": node, "annotations": {**listed, **annotations}}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        self._server.call("POST", "/api/v1/nodes", body=made)
        self.set_ready(node)

    def set_ready(self, node: str, answers: bool = True) -> None:
        there = self._get(f"/api/v1/nodes/{node}")
        ready = {"type": "Ready", "status": str(answers), "reason": "Kubelet", "message": ""}
        ready["lastHeartbeatTime"] = _now()
        kept = {name: there["status"].get(name) for name in ("allocatable", "images", "nodeInfo")}
        there["status"] = {"conditions": [ready], **kept}
        self._server.call("PUT", f"/api/v1/nodes/{node}/status", body=there)

    def annotate(self, node: str, **annotations: str) -> None:
        there = self._get(f"/api/v1/nodes/{node}")
        there["metadata"]["annotations"] |= annotations
        self._server.call("PUT", f"/api/v1/nodes/{node}", body=there)

    def set_images(self, node: str, *images: str) -> None:
        """Makes these nodes the only ones."""
        there = self._get(f"/api/v1/nodes/{node}")
        there["status"]["images"] = [{"names": [image], "sizeBytes": 1} for image in images]
        self._server.call("PUT", f"/api/v1/nodes/{node}/status", body=there)

    def set_version(self, node: str, version: str) -> None:
        there = self._get(f"/api/v1/nodes/{node}")
        there["status"]["nodeInfo"] = {**there["status"]["nodeInfo"], "kubeletVersion": version}
        self._server.call("PUT", f"/api/v1/nodes/{node}/status", body=there)

    def remove_node(self, node: str) -> None:
        self._server.call("DELETE", f"/api/v1/nodes/{node}")

    # --- pods -------------------------------------------------------------------------------

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get(self._pods)["items"]
        return found

    def owners(self) -> list[dict[str, Any]]:
        """The ConfigMaps of runs."""
        found = self._get(f"{self._namespace}/configmaps")["items"]
        return [each for each in found if pods.JOB in each["metadata"].get("labels", {})]

    def step(self) -> None:
        """Starts the pods that should run, ends those that should end."""
        for pod in self.pods():
            try:
                if "deletionTimestamp" in pod["metadata"]:
                    self.forget(pod["metadata"]["name"])
                elif pod["status"]["phase"] == "Pending":
                    self.run(pod["metadata"]["name"])
            except ApiError as error:
                if error.code not in (404, 409):  # another process was faster
                    raise

    def run(self, name: str) -> None:
        self.bind(name)
        self._write(name, phase="Running", containerStatuses=[_status(running={})])

    def bind(self, name: str, node: str = "") -> None:
        pod = self._get(f"{self._pods}/{name}")
        if "nodeName" in pod["spec"]:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": node or _wanted(pod["spec"])}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        self._server.call("POST", f"{self._pods}/{name}/binding", body=binding | {"target": target})

    def set_waiting(self, name: str, reason: str, message: str) -> None:
        (pod,) = (pod for pod in self.pods() if pod["metadata"]["name"] == name)
        image = pod["spec"]["containers"][0]["image"]
        status = {**_status(waiting={"reason": reason, "message": message}), "image": image}
        self._write(name, phase="Pending", containerStatuses=[status])

    def set_relay(self, name: str, **state: Any) -> None:
        """Of a sidecar."""
        self._write(name, initContainerStatuses=[{**_status(**state), "name": pods.RELAY}])

    def end_training(self, name: str, exit_code: int) -> None:
        """Its relay is still there, and so the pod."""
        ended = {"exitCode": exit_code, "reason": "Completed", "finishedAt": _now()}
        self._write(name, containerStatuses=[_status(terminated=ended)])

    def warn(self, name: str, reason: str, message: str) -> None:
        """Creates an event, as a kubelet does when something keeps a pod from starting."""
        pod = self._get(f"{self._pods}/{name}")
        about = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.1"},
            "involvedObject": {"kind": "Pod", **about},
            "type": "Warning",
            "reason": reason,
            "message": message,
        }
        self._server.call("POST", f"{self._namespace}/events", body=event)

    def set_address(self, name: str, address: str) -> None:
        self._write(name, podIP=address, podIPs=[{"ip": address}])

    def end(self, name: str, exit_code: int, reason: str = "", message: str = "") -> None:
        ended = {
            "exitCode": exit_code,
            "reason": reason or ("Error" if exit_code else "Completed"),
            "message": message,
            "finishedAt": _now(),
        }
        phase = "Failed" if exit_code else "Succeeded"
        self._write(name, phase=phase, containerStatuses=[_status(terminated=ended)])

    def refuses(self, name: str, reason: str, message: str) -> None:
        """Refuses the pod at its admission, for good."""
        self._write(name, phase="Failed", reason=reason, message=message)

    def forget(self, name: str) -> None:
        self._server.call("DELETE", f"{self._pods}/{name}", body={"gracePeriodSeconds": 0})

    def delete(self, name: str) -> None:
        """Deletes a pod as `kubectl delete pod` does."""
        self._server.call("DELETE", f"{self._pods}/{name}")

    def clear(self) -> None:
        """Deletes all pods and objects."""
        for kind in ("configmaps", "secrets", "services", "pods"):
            now = {"gracePeriodSeconds": 0}
            self._server.call("DELETE", f"{self._namespace}/{kind}", body=now)

    def _write(self, name: str, **status: Any) -> None:
        pod = self._get(f"{self._pods}/{name}")
        pod["status"] |= status
        self._server.call("PUT", f"{self._pods}/{name}/status", body=pod)

    def _get(self, path: str) -> Any:
        return json.loads(self._server.call("GET", path))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(**state: Any) -> dict[str, Any]:
    told = {"name": "main", "image": "none:1", "imageID": "", "ready": False, "restartCount": 0}
    return {**told, "state": state}


def _wanted(spec: dict[str, Any]) -> str:
    """The node that its affinity names."""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (node,) = required["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    return str(node)
