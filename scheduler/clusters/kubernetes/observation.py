"""What the daemon is shown of a cluster: its pods and nodes as the model has them.

The same object again while nothing about it changed, which is how a look is compared with the one
before. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.pods import Claim, KubeNode, KubePod
from scheduler.core.errors import Rejected
from scheduler.core.model import Node, Pod, PodState, RunKey, Time

SILENT_SECONDS = 10.0  # on its way, before it is asked after what nobody says of a pod itself,
ASK_SECONDS = 30.0  # and again

log = structlog.get_logger("scheduler.kubernetes")


@dataclass(slots=True)
class _ObservedPod:
    kube: KubePod
    whose: Claim | None
    pod: Pod | None = None
    blamed: bool = False  # its job, for its not being started yet
    since: Time = 0.0  # in that state of affairs
    asked_at: Time = -ASK_SECONDS  # what its node warned of:
    warning: str = ""


class ClusterState:
    def __init__(self, image: str | None = None) -> None:
        """`image` is that of jobs that name none, where no image is ever pulled."""
        self._image = image
        self.nodes: tuple[Node, ...] = ()
        self._nodes: dict[str, tuple[KubeNode, Node]] = {}
        self._pods: dict[str, _ObservedPod] = {}  # by name
        self._runs: dict[RunKey, list[_ObservedPod]] = {}
        self._looked = False  # once at least: what comes later is met as it begins

    def look(
        self, kube_pods: Mapping[str, KubePod], kube_nodes: Mapping[str, KubeNode], now: Time
    ) -> None:
        self._nodes = {name: self._observe_node(kube) for name, kube in kube_nodes.items()}
        self.nodes = tuple(node for _, node in self._nodes.values())
        self._pods = {name: self._observe_pod(kube, now) for name, kube in kube_pods.items()}
        self._runs = {}
        for seen in self._pods.values():
            if seen.whose:
                self._runs.setdefault(seen.whose.key, []).append(seen)
        self._looked = True

    def pods(self) -> Iterable[Pod]:
        return (seen.pod for seen in self._pods.values() if seen.pod)

    def runs(self) -> Iterable[RunKey]:
        return self._runs

    def of(self, key: RunKey) -> list[KubePod]:
        return [seen.kube for seen in self._runs.get(key, ())]

    def owners(self) -> dict[str, RunKey]:
        """Whose each pod is, by its uid."""
        return {
            seen.kube.metadata.uid: seen.whose.key for seen in self._pods.values() if seen.whose
        }

    def shown(self, key: RunKey) -> list[Pod]:
        return [seen.pod for seen in self._runs.get(key, ()) if seen.pod]

    def ranks(self, key: RunKey) -> set[int]:
        return {seen.whose.rank for seen in self._runs.get(key, ()) if seen.whose}

    def overdue(
        self, now: Time, image_seconds: float, start_seconds: float
    ) -> Iterable[tuple[RunKey, KubePod]]:
        """Pods that have been on their way for too long."""
        for seen in self._pods.values():
            pending = seen.pod is not None and seen.pod.state is PodState.PENDING
            patience = image_seconds if seen.blamed else start_seconds
            if seen.whose and pending and now - seen.since > patience:
                yield seen.whose.key, seen.kube

    def silent(self, now: Time) -> Iterable[RunKey]:
        """Runs with a pod that is long on its way, and does not say what keeps it."""
        for seen in self._pods.values():
            long = now >= max(seen.since + SILENT_SECONDS, seen.asked_at + ASK_SECONDS)
            if seen.whose and long and _is_unexplained(seen):
                seen.asked_at = now
                yield seen.whose.key

    def warned(self, kube: KubePod, words: str) -> bool:
        """Whether this is news."""
        seen = self._pods.get(kube.metadata.name)
        if seen is None or seen.kube.metadata.uid != kube.metadata.uid or seen.warning == words:
            return False
        seen.warning = words
        if seen.pod and _is_unexplained(seen):
            seen.pod = replace(seen.pod, reason=words)
        return True

    def _observe_pod(self, kube: KubePod, now: Time) -> _ObservedPod:
        seen = self._pods.get(kube.metadata.name)
        if seen is None or seen.kube.metadata.uid != kube.metadata.uid:
            since = now if self._looked else pods.created_at(kube, now)
            seen = _ObservedPod(kube, pods.claim(kube.metadata), since=since)
            if seen.whose is None:
                log.warning("pod_not_understood", pod=kube.metadata.name)
        elif seen.kube is kube and kube.metadata.deletion_timestamp is None:
            return seen
        ended = seen.pod and pods.is_over(seen.kube)
        seen.kube = kube
        if seen.whose is None or ended:  # as it has ended, whatever is done to what is left of it
            return seen
        blamed = pods.hindrance(kube)[1]
        if blamed is not seen.blamed:
            seen.blamed, seen.since = blamed, now
        pod = pods.seen(kube, seen.whose, now, self._is_node_ready(kube.spec.node_name))
        if pod.state is PodState.PENDING and not pod.reason:
            pod = replace(pod, reason=seen.warning)
        seen.pod = seen.pod if pod == seen.pod else pod
        return seen

    def _observe_node(self, kube: KubeNode) -> tuple[KubeNode, Node]:
        before = self._nodes.get(kube.metadata.name)
        if before and before[0] is kube:
            return before
        try:
            node = pods.read_node(kube, self._image)
        except Rejected as error:
            if before is None or before[1].gpus:
                log.warning("node_not_understood", error=str(error))
            node = Node(kube.metadata.name, (), ready=pods.is_ready(kube))
        return kube, before[1] if before and before[1] == node else node

    def _is_node_ready(self, node: str) -> bool:
        return node in self._nodes and pods.is_ready(self._nodes[node][0])


def _is_unexplained(seen: _ObservedPod) -> bool:
    pending = seen.pod is not None and seen.pod.state is PodState.PENDING
    return pending and not pods.hindrance(seen.kube)[0]
