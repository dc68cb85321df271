"""Marks runs of jobs that have no row, as after the loss of the database, in observations. They are
not stopped (reconcile.py), and nothing is started on their GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set

import structlog

from scheduler.core.fast_replace import replace
from scheduler.core.model import Event, GpuKey, JobId, Node, Observed, RunKey
from scheduler.core.ports import Put

log = structlog.get_logger("scheduler.clusters.orphans")


class Orphans:
    """Marks orphans on the way from a cluster to the inbox; for one thread at a time."""

    def __init__(self, put: Put, known_jobs: Callable[[Collection[JobId]], Set[JobId]]) -> None:
        """`known_jobs` returns those of the jobs that have a row. A job has one before any pod."""
        self._put, self._ask = put, known_jobs
        self._known: Set[JobId] = frozenset()  # of the jobs in the last observation
        self._told: Set[RunKey] = frozenset()

    def put(self, event: Event) -> None:
        self._put(self._mark_orphans(event) if isinstance(event, Observed) else event)

    def _mark_orphans(self, look: Observed) -> Observed:
        shown = {pod.job_id for pod in look.pods}
        new = shown - self._known
        self._known = (self._known & shown) | (self._ask(new) if new else set())
        pods = tuple(
            pod if pod.job_id in self._known else replace(pod, orphan=True) for pod in look.pods
        )
        orphans = [pod for pod in pods if pod.orphan]
        self._log_new({(pod.job_id, pod.attempt) for pod in orphans})
        if not orphans:
            return look
        on = {share.key: pod.job_id for pod in orphans if pod.alive for share in pod.shares}
        nodes = tuple(_block_gpus(node, on) for node in look.nodes)
        return replace(look, nodes=nodes, pods=pods)

    def _log_new(self, orphans: Set[RunKey]) -> None:
        for job_id, attempt in sorted(orphans - self._told):
            log.warning(
                "orphan_found", job_id=job_id, attempt=attempt, note="it may continue to its end"
            )
        self._told = orphans


def _block_gpus(node: Node, on: Mapping[GpuKey, JobId]) -> Node:
    gpus = tuple(
        replace(
            gpu,
            fault=gpu.fault or f"job {job_id} is on it, but the database does not know that job",
        )
        if (job_id := on.get((node.name, gpu.uuid)))
        else gpu
        for gpu in node.gpus
    )
    return node if gpus == node.gpus else replace(node, gpus=gpus)
