"""What the daemon observes of a cluster: its pods and nodes as the model has them.

An object stays the same one as long as nothing about it changed; that is how an observation is
compared with the one before. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.pods import Claim, KubeNode, KubePod
from scheduler.core.errors import Rejected
from scheduler.core.model import JobId, Node, Pod, PodState, RunKey, Time

SILENT_SECONDS = 10.0  # that a pod may be pending without a reason before its events are read,
ASK_SECONDS = 30.0  # and between two such reads

log = structlog.get_logger("scheduler.kubernetes")


@dataclass(slots=True)
class _ObservedPod:
    kube: KubePod
    claim: Claim | None
    pod: Pod | None = None
    blamed: bool = False  # whether its job is to blame that it does not start
    since: Time = 0.0  # since when `blamed` has this value
    asked_at: Time = -ASK_SECONDS  # when its warnings were last read
    warning: str = ""


class ClusterState:
    def __init__(self, image: str | None = None) -> None:
        """`image` is that of jobs that name none, if no image is ever pulled."""
        self._image = image
        self.nodes: tuple[Node, ...] = ()
        self._nodes: dict[str, tuple[KubeNode, Node]] = {}
        self._pods: dict[str, _ObservedPod] = {}  # by name
        self._runs: dict[RunKey, list[_ObservedPod]] = {}
        self._looked = False  # at least once: later pods are observed from their beginning

    def look(
        self, kube_pods: Mapping[str, KubePod], kube_nodes: Mapping[str, KubeNode], now: Time
    ) -> None:
        self._nodes = {name: self._observe_node(kube) for name, kube in kube_nodes.items()}
        self.nodes = tuple(node for _, node in self._nodes.values())
        self._pods = {name: self._observe_pod(kube, now) for name, kube in kube_pods.items()}
        self._runs = {}
        for seen in self._pods.values():
            if seen.claim:
                self._runs.setdefault(seen.claim.key, []).append(seen)
        self._looked = True

    def pods(self) -> Iterable[Pod]:
        return (seen.pod for seen in self._pods.values() if seen.pod)

    def runs(self) -> Iterable[RunKey]:
        return self._runs

    def of(self, key: RunKey) -> list[KubePod]:
        return [seen.kube for seen in self._runs.get(key, ())]

    def jobs_at(self, address: str) -> Iterable[JobId]:
        """The jobs of live pods with this address."""
        for seen in self._pods.values():
            there = address in (each.ip for each in seen.kube.status.addresses)
            if there and seen.claim and not pods.is_over(seen.kube):
                yield seen.claim.key[0]

    def owners(self) -> dict[str, RunKey]:
        """The run of each pod, by the pod's uid."""
        return {
            seen.kube.metadata.uid: seen.claim.key for seen in self._pods.values() if seen.claim
        }

    def shown(self, key: RunKey) -> list[Pod]:
        return [seen.pod for seen in self._runs.get(key, ()) if seen.pod]

    def ranks(self, key: RunKey) -> set[int]:
        return {seen.claim.rank for seen in self._runs.get(key, ()) if seen.claim}

    def overdue(
        self, now: Time, image_seconds: float, start_seconds: float
    ) -> Iterable[tuple[RunKey, KubePod]]:
        """Pods that have been pending for too long."""
        for seen in self._pods.values():
            pending = seen.pod is not None and seen.pod.state is PodState.PENDING
            short = seen.blamed or pods.relay_trouble(seen.kube)
            patience = image_seconds if short else start_seconds
            if seen.claim and pending and now - seen.since > patience:
                yield seen.claim.key, seen.kube

    def silent(self, now: Time) -> Iterable[RunKey]:
        """Runs with a pod that has been pending for a while without a reason."""
        for seen in self._pods.values():
            long = now >= max(seen.since + SILENT_SECONDS, seen.asked_at + ASK_SECONDS)
            if seen.claim and long and _is_unexplained(seen):
                seen.asked_at = now
                yield seen.claim.key

    def warned(self, kube: KubePod, words: str) -> bool:
        """Notes a warning about a pod. Returns whether it is new."""
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
            if seen.claim is None:
                log.warning("pod_not_understood", pod=kube.metadata.name)
        elif seen.kube is kube and kube.metadata.deletion_timestamp is None:
            return seen
        ended = seen.pod and pods.is_over(seen.kube)
        seen.kube = kube
        if seen.claim is None or ended:  # its end stays as it was; later changes do not matter
            return seen
        blamed = pods.hindrance(kube)[1]
        if blamed is not seen.blamed:
            seen.blamed, seen.since = blamed, now
        pod = pods.observe_pod(kube, seen.claim, now, self._is_node_ready(kube.spec.node_name))
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
