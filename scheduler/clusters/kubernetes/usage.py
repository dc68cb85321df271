"""Adds what agents report of the nodes to the observations of a cluster. Does no I/O.

A pod is known by its uid, even after the server has forgotten it: as long as a process of it is
observed, the pod is shown as lost, and keeps its GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    Event,
    Failure,
    Gpu,
    GpuKey,
    Node,
    Observed,
    Pod,
    PodState,
    RunKey,
    Share,
)
from scheduler.core.ports import Cluster, Put, Source
from scheduler.gpus.usage import GpuReport, Process, Usage, UsageLedger

Used = Mapping[RunKey, tuple[Share, ...]]


class InnerCluster(Cluster, Source, Protocol):
    """The cluster as its server reports it."""

    def observe(self) -> Observed: ...
    def owners(self) -> Mapping[str, RunKey]:
        """The run of each pod, by the pod's uid."""


class WatchedCluster(InnerCluster, Protocol):
    def nodes(self) -> tuple[Node, ...]:
        """The nodes as last observed."""


class ClusterWithUsage:
    """Ports Cluster and Source; safe for any thread."""

    def __init__(self, server: WatchedCluster, reports: Callable[[], Sequence[GpuReport]]) -> None:
        self._server, self._reports, self._books = server, reports, UsageLedger()
        self._owners: dict[str, RunKey] = {}  # by uid: of all pods that exist or have processes
        self._lock = threading.Lock()
        self.perform, self.stop, self.nodes = server.perform, server.stop, server.nodes

    @property
    def usage(self) -> Mapping[GpuKey, Usage]:
        """The last observed usage of each GPU, for display."""
        return self._books.usage

    def observe(self) -> Observed:
        return self._add_usage(self._server.observe())

    def start(self, put: Put) -> None:
        def news(event: Event) -> None:
            put(self._add_usage(event) if isinstance(event, Observed) else event)

        self._server.start(news)

    def _add_usage(self, look: Observed) -> Observed:
        with self._lock:
            return self._with_reports(look, self._server.owners())

    def _with_reports(self, look: Observed, owners: Mapping[str, RunKey]) -> Observed:
        reports = self._reports()
        traces = {p.pod for report in reports for gpu in report.cards for p in gpu.processes}
        left = {uid: key for uid, key in self._owners.items() if uid in traces}
        self._owners = {**left, **owners}
        granted = {(pod.job_id, pod.attempt): pod.shares for pod in look.pods if pod.alive}
        gpus, used = self._books.enter(reports, self._run_of, granted)
        nodes = tuple(_with_gpus(node, gpus) for node in look.nodes)
        pods = tuple(_with_processes(pod, used) for pod in look.pods)
        return replace(look, nodes=nodes, pods=(*pods, *_lost_pods(look.pods, used)))

    def _run_of(self, process: Process) -> RunKey | None:
        return self._owners.get(process.pod)


def _with_gpus(node: Node, seen: Mapping[GpuKey, Gpu]) -> Node:
    """The names of a node's GPUs are the server's, their state is that of the driver."""
    gpus = tuple(_merge_gpu(gpu, seen.get((node.name, gpu.uuid), gpu)) for gpu in node.gpus)
    return node if gpus == node.gpus else replace(node, gpus=gpus)


def _merge_gpu(gpu: Gpu, seen: Gpu) -> Gpu:
    fault = seen.fault or gpu.fault
    return replace(seen, type=gpu.type, index=gpu.index, fault=fault, whole=gpu.whole)


def _with_processes(pod: Pod, used: Used) -> Pod:
    """A run has one pod on a node."""
    there = {share.node for share in pod.shares}
    takes = used.get((pod.job_id, pod.attempt), ())
    own = tuple(share for share in takes if share.node in there)
    return replace(pod, used=own) if own else pod


def _lost_pods(pods: Sequence[Pod], used: Used) -> Iterator[Pod]:
    """Pods that are gone, but have processes left."""
    there = {(pod.job_id, pod.attempt) for pod in pods}
    for key, shares in sorted(used.items()):
        if key not in there:
            yield Pod(*key, PodState.FAILED, shares, reason=Failure.LOST, used=shares)
