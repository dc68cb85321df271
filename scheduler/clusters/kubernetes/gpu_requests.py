"""The number of GPUs that a kubelet gave to a pod, foreign or not. Pure.

The daemon and scheduler-doctor count with the same function, so the doctor proposes what the daemon
would do.
"""

from __future__ import annotations

import msgspec

from scheduler.clusters.kubernetes.pods import GPU_RESOURCE, Meta, PodStatus, Struct


class _Limits(msgspec.Struct, rename="camel", frozen=True):
    limits: dict[str, str] = {}


class _Container(msgspec.Struct, rename="camel", frozen=True):
    resources: _Limits = _Limits()


class _PodSpec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] = []


class RequestingPod(Struct, frozen=True):
    """Any pod, and what it requests."""

    metadata: Meta
    spec: _PodSpec = _PodSpec()
    status: PodStatus = PodStatus()


def requested_gpus(pod: RequestingPod) -> int:
    """The GPUs of its node that the pod has: those of its containers, or of its largest init
    container, which runs before them. A pod that has ended has none."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return 0
    first = max((_gpus(each) for each in pod.spec.init_containers), default=0)
    return max(first, sum(map(_gpus, pod.spec.containers)))


def _gpus(container: _Container) -> int:
    count = container.resources.limits.get(GPU_RESOURCE, "0")
    return int(count) if count.isdecimal() else 0
