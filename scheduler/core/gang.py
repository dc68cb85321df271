"""The pods of one run, seen together: whether it is over, and which of them ended it. Pure.

A run has one pod for each node that it has GPUs on, and none of them is of use without the others:
where one is gone, the others fail sooner or later, and are not to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from scheduler.core.model import Failure, Pod, PodState, Run, RunKey

WORLD = (Failure.LOST, Failure.REFUSED)


def by_run(pods: Sequence[Pod]) -> dict[RunKey, tuple[Pod, ...]]:
    """Each run's, by rank."""
    runs: dict[RunKey, tuple[Pod, ...]] = {}
    for pod in sorted(pods, key=attrgetter("rank")):
        key = (pod.job_id, pod.attempt)
        runs[key] = (*runs.get(key, ()), pod)
    return runs


def is_broken(run: Run, pods: Sequence[Pod]) -> bool:
    """Whether one of its pods has failed, or is not there."""
    return _lacks_one(run, pods) or PodState.FAILED in [pod.state for pod in pods]


def culprit(run: Run, pods: Sequence[Pod]) -> Pod | None:
    """Of a broken run: the pod that has failed first, as far as can be told. None: it was one that
    has vanished, or that somebody has asked to leave."""
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
    """The smallest first: who was lost, or had no memory; of equals, the lowest rank."""
    return pod.reason not in WORLD, pod.reason != Failure.OUT_OF_MEMORY
