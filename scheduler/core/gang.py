"""The pods of one run taken together: whether the run is over, and which pod ended it. Pure.

A run has one pod on each node where it has GPUs, and no pod is of use without the others: if one is
gone, the others fail sooner or later, and are not the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from scheduler.core.model import Failure, Pod, PodState, Run, RunKey

WORLD = (Failure.LOST, Failure.REFUSED)


def by_run(pods: Sequence[Pod]) -> dict[RunKey, tuple[Pod, ...]]:
    """The pods of each run, by rank."""
    runs: dict[RunKey, tuple[Pod, ...]] = {}
    for pod in sorted(pods, key=attrgetter("rank")):
        key = (pod.job_id, pod.attempt)
        runs[key] = (*runs.get(key, ()), pod)
    return runs


def is_broken(run: Run, pods: Sequence[Pod]) -> bool:
    """Whether one of the pods has failed or is missing."""
    return _lacks_one(run, pods) or PodState.FAILED in [pod.state for pod in pods]


def culprit(run: Run, pods: Sequence[Pod]) -> Pod | None:
    """Of a broken run: the pod that failed first, as far as can be told. None: the cause was a pod
    that has vanished, or that was deleted."""
    failed = [pod for pod in pods if pod.state is PodState.FAILED]
    first = min(failed, key=_likely, default=None)
    if first is None or first.reason in WORLD or first.exit_code is None:
        return first
    leaving = any(pod.state is PodState.TERMINATING for pod in pods)
    return None if leaving or _lacks_one(run, pods) else first


def _lacks_one(run: Run, pods: Sequence[Pod]) -> bool:
    count = len(pods)
    return count < len(run.shares) and count < len({share.node for share in run.shares})


def _likely(pod: Pod) -> tuple[bool, bool]:
    """Sort key, the likeliest cause first: pods that were lost or ran out of memory; then the
    lowest rank."""
    return pod.reason not in WORLD, pod.reason != Failure.OUT_OF_MEMORY
