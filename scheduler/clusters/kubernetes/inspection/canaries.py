"""Runs canaries: creates them, watches them until they have ended, and deletes them in any case."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.inspection.canary import CANARY
from scheduler.clusters.kubernetes.inspection.found import Refusal
from scheduler.clusters.kubernetes.listing import Lister
from scheduler.clusters.kubernetes.manifests import Manifest
from scheduler.clusters.kubernetes.pods import KubePod
from scheduler.clusters.kubernetes.requests import Runs

LOOK_EVERY_SECONDS = 0.5
LEAVE_SECONDS = 60.0
TRIES = 5  # to delete, even after an interrupt, while the user waits
ENDED = "status.phase!=Pending,status.phase!=Running"


class Canaries:
    """The canaries of one visit. Canaries left by an earlier visit have ended; they are deleted
    first."""

    def __init__(self, server: KubernetesClient, namespace: str, visit: str) -> None:
        self._server, self._runs = server, Runs(server, namespace)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = {"labelSelector": f"{CANARY}={visit}"}

    def run(self, made: Mapping[str, Manifest], seconds: float) -> Mapping[str, KubePod | Refusal]:
        """Returns the outcome of each canary, by node. For one that has not ended in time it is a
        Refusal with the reason, or with its node's warning."""
        with suppress(ApiError):
            query = {"labelSelector": CANARY, "fieldSelector": ENDED}
            self._server.call("DELETE", self._path, query)
        try:
            return self._watch(made, time.monotonic() + seconds)
        finally:
            self._delete()

    def wait_until_gone(self) -> bool:
        """Waits for their deletion for a while. Returns whether none is left."""
        until = time.monotonic() + LEAVE_SECONDS
        while time.monotonic() < until:
            with suppress(ApiError):
                if not self._list():
                    return True
                self._delete()
            time.sleep(LOOK_EVERY_SECONDS)
        return False

    def _watch(self, made: Mapping[str, Manifest], until: float) -> Mapping[str, KubePod | Refusal]:
        names = {manifest["metadata"]["name"]: node for node, manifest in made.items()}
        found = dict(self._create(made))
        late = False
        while not late:
            late = time.monotonic() > until  # and then one last list
            with suppress(ApiError):
                seen = {kube.metadata.name: kube for kube in self._list()}
                found |= {names[name]: kube for name, kube in seen.items()}
                if all(isinstance(one, Refusal) or pods.is_over(one) for one in found.values()):
                    return found
            time.sleep(LOOK_EVERY_SECONDS)
        return {node: self._explain(one) for node, one in found.items()}

    def _create(self, made: Mapping[str, Manifest]) -> Iterator[tuple[str, KubePod | Refusal]]:
        for node, manifest in made.items():
            try:
                answer = self._server.call("POST", self._path, body=manifest)
            except ApiError as error:
                yield node, Refusal(str(error), error.code)
            else:
                yield node, msgspec.json.decode(answer, type=KubePod)

    def _list(self) -> list[KubePod]:
        return Lister(self._server, self._path, KubePod).read(self._selector).items

    def _explain(self, one: KubePod | Refusal) -> KubePod | Refusal:
        if isinstance(one, Refusal) or pods.is_over(one):
            return one
        words = pods.hindrance(one)[0]
        with suppress(ApiError):
            words = words or self._runs.warning(one.metadata)
        return Refusal(words or "it did not end in time")

    def _delete(self) -> None:
        """Deletes all of this visit, also one that was created although the answer was lost."""
        for _ in range(TRIES):
            try:
                self._server.call("DELETE", self._path, self._selector)
                return
            except ApiError:
                time.sleep(LOOK_EVERY_SECONDS)
