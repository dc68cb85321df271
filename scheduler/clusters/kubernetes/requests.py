"""The requests that create and delete a run's objects. Stateless."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.manifests import Manifest, owned, ports_name
from scheduler.core.model import RunKey

PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services", "Pod": "pods"}
INVALID = (400, 413, 422)  # the request is invalid, on this cluster or any other
PORT_TAKEN = "already allocated"  # part of the message that refuses a port in use


class _Events(pods.Struct, frozen=True):
    items: tuple[pods.ContainerWaiting, ...] = ()  # an event has a reason and a message as well


class Runs:
    """For any thread, but for one at a time per run. All errors are ApiErrors."""

    def __init__(self, server: KubernetesClient, namespace: str) -> None:
        self._server = server
        self._path = f"/api/v1/namespaces/{namespace}"

    def create(self, made: list[Manifest], saw: Callable[[bytes], None]) -> None:
        """Creates the objects of a run that do not exist yet. `saw` is called with each pod."""
        owner: dict[str, Any] | None = None
        for manifest in made:
            answer = self._create(owned(manifest, owner) if owner else manifest)
            owner = owner or msgspec.json.decode(answer)
            if manifest["kind"] == "Pod":
                saw(answer)

    def delete(self, kind: str, meta: pods.Meta) -> bytes | None:
        """Deletes exactly this object, and returns it as it is then. None: it does not exist."""
        body = {"preconditions": {"uid": meta.uid}, "propagationPolicy": "Background"}
        try:
            return self._server.call("DELETE", f"{self._named(kind)}/{meta.name}", body=body)
        except ApiError as error:
            if error.code == 404:
                return None
            if error.code != 409:
                raise
            conflict = error
        there = self._found(kind, meta.name)  # another one by now; or a real conflict
        if there and there.uid == meta.uid:
            raise conflict
        return None

    def delete_pods(self, key: RunKey) -> bool:
        """Deletes all pods of a run, known to the daemon or not. False: there were none."""
        labels = ",".join(f"{name}={value}" for name, value in pods.labels_of(key).items())
        gone = self._server.call("DELETE", self._named("Pod"), {"labelSelector": labels})
        return bool(msgspec.json.decode(gone)["items"])

    def delete_ports(self, owner: pods.Meta) -> None:
        """Deletes the Service of the run that this ConfigMap owns, at once: the garbage collector
        may be too late for the next attempt."""
        there = self._found("Service", ports_name(owner.name))
        if there and _has_labels(there, owner.labels):
            self.delete("Service", there)

    def warning(self, meta: pods.Meta) -> str:
        """The newest warning of its node, or of the cluster's scheduler, about a pod."""
        about = f"involvedObject.uid={meta.uid},type=Warning"
        told = self._server.call("GET", f"{self._path}/events", {"fieldSelector": about})
        events = msgspec.json.decode(told, type=_Events).items
        return pods.sentence(events[-1].reason, events[-1].message) if events else ""

    def _create(self, manifest: Manifest) -> bytes:
        path = self._named(manifest["kind"])
        try:
            return self._server.call("POST", path, body=manifest)
        except ApiError as error:
            # An existing Service is refused for its ports, before the server checks its name.
            taken = error if PORT_TAKEN in str(error) else None
            if error.reason != "AlreadyExists" and not taken:
                raise
        named = f"{path}/{manifest['metadata']['name']}"
        if manifest["kind"] == "Secret":  # its name says that it has the same values
            return b""
        try:
            there = self._server.call("GET", named)
        except ApiError as error:
            if taken and error.code == 404:  # another Service has them: the job is not to blame
                raise ApiError(str(taken), 403, taken.reason) from taken
            raise
        return self._adopted(manifest, there)

    def _adopted(self, manifest: Manifest, answer: bytes) -> bytes:
        """An object with that name exists. Returns it if an earlier request created it and the
        answer was lost; deletes it if it is of another launch of the run."""
        there, wanted = (
            msgspec.json.decode(answer, type=pods.KubeObject).metadata,
            manifest["metadata"],
        )
        if not _has_labels(there, wanted["labels"]):
            raise ApiError(f"the name {there.name} is taken by another job", 403, "AlreadyExists")
        hashed = pods.SPEC_HASH
        if there.annotations.get(hashed) == wanted["annotations"][hashed]:
            return answer
        self.delete(manifest["kind"], there)
        raise ApiError(f"{there.name} belongs to another launch, and must be deleted first", 409)

    def _found(self, kind: str, name: str) -> pods.Meta | None:
        try:
            there = self._server.call("GET", f"{self._named(kind)}/{name}")
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return msgspec.json.decode(there, type=pods.KubeObject).metadata

    def _named(self, kind: str) -> str:
        return f"{self._path}/{PLURALS[kind]}"


def _has_labels(meta: pods.Meta, labels: Mapping[str, str]) -> bool:
    return all(meta.labels.get(name) == value for name, value in labels.items())
