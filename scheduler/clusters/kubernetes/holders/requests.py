"""The requests that create and delete holders, and what the server reports of them and of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.gpu_requests import RequestingPod
from scheduler.clusters.kubernetes.holders import holder as holding
from scheduler.clusters.kubernetes.holders.holder import (
    MIXED,
    HeldNodeSpec,
    Hold,
    Holder,
    HolderTemplate,
)
from scheduler.clusters.kubernetes.listing import Lister
from scheduler.clusters.kubernetes.pods import KubeNode, KubePod, Meta
from scheduler.clusters.kubernetes.requests import Runs
from scheduler.clusters.kubernetes.watch import Mirror
from scheduler.core.errors import Rejected

OF_JOBS = {"labelSelector": pods.SELECTOR}
RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

log = structlog.get_logger("scheduler.holders")


class HolderRequests:
    """Reads are for any thread; changes are for one thread at a time per holder."""

    def __init__(
        self,
        server: KubernetesClient,
        dress: HolderTemplate,
        mode: str,
        namespaces: Sequence[str],
        list_every_seconds: float = 30.0,
    ) -> None:
        """`mode` is that of nodes without a label. `namespaces` contain the pods of jobs."""
        self._server, self._dress, self._mode = server, dress, mode
        self._namespaces, self._every_seconds = namespaces, list_every_seconds
        self._path = f"/api/v1/namespaces/{dress.namespace}/pods"
        self._runs = Runs(server, dress.namespace)
        every, self._changed = list_every_seconds, _ignore
        self._nodes = Mirror(server, "/api/v1/nodes", "", KubeNode, self._hint, every)
        self._pods = Mirror(server, self._path, holding.SELECTOR, KubePod, self._hint, every)
        self._foreign: dict[str, int] = {}  # GPUs, by mixed node: replaced, never edited
        self._counted_at = 0.0
        self._nonsense: dict[str, str] = {}  # errors in labels and annotations, by node

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when the server has reported a change."""
        self._changed = changed
        self._nodes.start()
        self._pods.start()

    def stop(self) -> None:
        self._server.close()
        self._nodes.stop()
        self._pods.stop()

    def _hint(self) -> None:
        self._changed()

    # -- reads -----------------------------------------------------------------------------------

    def observe(self) -> tuple[Mapping[str, HeldNodeSpec], Mapping[str, Holder]] | None:
        """The nodes and holders by name; None before the first full list of both."""
        nodes, there = self._nodes.things(), self._pods.things()
        if nodes is None or there is None:
            return None
        sites = {name: site for name, kube in nodes.items() if (site := self._read_spec(kube))}
        holders = {name: each for name, kube in there.items() if (each := holding.holder_of(kube))}
        return sites, holders

    def _read_spec(self, kube: KubeNode) -> HeldNodeSpec | None:
        name = kube.metadata.name
        try:
            site = holding.site_of(kube, self._mode, self._foreign.get(name))
        except Rejected as error:
            if self._nonsense.get(name) != str(error):
                log.warning("node_not_understood", error=str(error))
            self._nonsense[name] = str(error)
            return None
        self._nonsense.pop(name, None)
        return site

    # -- requests --------------------------------------------------------------------------------

    def create(self, hold: Hold) -> None:
        made = holding.manifest(hold, self._dress)
        try:
            self._pods.saw(self._server.call("POST", self._path, body=made))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            answer = self._server.call("GET", f"{self._path}/{hold.name}")
            if holding.holder_of(msgspec.json.decode(answer, type=KubePod)) is None:
                raise ApiError(f"the name {hold.name} is taken", 403) from error
            self._pods.saw(answer)  # if it was made with other settings, it is replaced later

    def delete(self, holder: Holder) -> None:
        meta = Meta(name=holder.name, uid=holder.uid)
        answer = self._runs.delete("Pod", meta)
        if answer is None:
            self._pods.forget(meta)
        else:
            self._pods.saw(answer)

    def live(self) -> Mapping[str, set[str]]:
        """By node, the GPUs of live pods of jobs, from the server's disk, not from its cache."""
        found: dict[str, set[str]] = {}
        for namespace in self._namespaces:
            path = f"/api/v1/namespaces/{namespace}/pods"
            for kube in Lister(self._server, path, KubePod).read(OF_JOBS).items:
                claim = None if pods.is_over(kube) else pods.claim(kube.metadata)
                for share in claim.shares if claim else ():
                    found.setdefault(share.node, set()).add(share.gpu)
        return found

    def stale(self, sites: Mapping[str, HeldNodeSpec]) -> bool:
        """Whether it is time to count again."""
        mixed = _mixed_nodes(sites)
        late = time.monotonic() - self._counted_at >= self._every_seconds
        return bool(mixed) and (late or not mixed <= self._foreign.keys())

    def count(self, sites: Mapping[str, HeldNodeSpec]) -> bool:
        """Counts the GPUs that foreign pods have on mixed nodes. Returns whether that changed."""
        at, before, counted = time.monotonic(), self._foreign, dict.fromkeys(_mixed_nodes(sites), 0)
        all_pods = Lister(self._server, "/api/v1/pods", RequestingPod)
        for pod in all_pods.read({"fieldSelector": RUNNING}, {"resourceVersion": "0"}).items:
            if pod.spec.node_name in counted:
                counted[pod.spec.node_name] += holding.foreign(pod)
        self._foreign, self._counted_at = counted, at
        return counted != before


def _mixed_nodes(sites: Mapping[str, HeldNodeSpec]) -> set[str]:
    return {name for name, site in sites.items() if site.mode == MIXED}


def _ignore() -> None:
    """Stands for `changed` before `start`."""
