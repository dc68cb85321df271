"""Several namespaces of a Kubernetes cluster as one: a job's project, or else its user, decides
where its pods are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from scheduler.clusters.kubernetes.cluster import KubernetesCluster
from scheduler.core.model import Action, Event, JobSpec, Launch, Node, Observed, RunKey
from scheduler.core.ports import Put


class Namespaces:
    """Ports Cluster and Source; safe for any thread."""

    def __init__(
        self,
        default: KubernetesCluster,
        others: Sequence[KubernetesCluster],
        of: Callable[[JobSpec], KubernetesCluster],
    ) -> None:
        """`of`: in which of them the pods of a job are."""
        self._everybody, self._of = default, of
        self._all = [default, *others]
        self._lock = threading.Lock()

    def perform(self, action: Action) -> None:
        if isinstance(action, Launch):
            self._of(action.spec).perform(action)
            return
        for each in self._all:  # harmless in a namespace without that run
            each.perform(action)

    def observe(self) -> Observed:
        """Raises Unavailable before every namespace has been observed."""
        seen = [each.observe() for each in self._all]
        pods = tuple(pod for one in seen for pod in one.pods)
        # The time of the first, because runs launched during these observations may be missing.
        return Observed(seen[0].at, seen[0].nodes, pods)

    def start(self, put: Put) -> None:
        def news(_: Event) -> None:
            with self._lock:  # so that no observation is delivered after a later one
                put(self.observe())

        for each in self._all:
            each.start(news)

    def stop(self) -> None:
        for each in self._all:
            each.stop()

    def owners(self) -> dict[str, RunKey]:
        return {uid: key for each in self._all for uid, key in each.owners().items()}

    def nodes(self) -> tuple[Node, ...]:
        return self._everybody.nodes()
