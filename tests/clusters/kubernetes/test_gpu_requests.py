"""The number of GPUs that a pod was given, foreign or not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.clusters.kubernetes.gpu_requests import RequestingPod, requested_gpus


def gpus(*containers: str, first: tuple[str, ...] = (), phase: str = "Running", **more: Any) -> int:
    def told(count: str) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": count, "cpu": "2"}}}

    spec = {"containers": list(map(told, containers)), "initContainers": list(map(told, first))}
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": {"phase": phase}, **more}
    return requested_gpus(msgspec.convert(pod, RequestingPod))


def test_a_pod_has_what_its_containers_have_together() -> None:
    assert gpus("1", "2") == 3
    assert gpus() == 0


def test_init_containers_run_one_after_the_other_before_the_others() -> None:
    assert gpus("1", first=("2", "4")) == 4
    assert gpus("3", first=("1", "1")) == 3


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_has_none(phase: str) -> None:
    assert gpus("2", phase=phase) == 0


def test_one_that_has_not_started_has_them_already() -> None:
    assert gpus("2", phase="Pending") == 2


@pytest.mark.parametrize("count", ["", "many", "-1", "1.5"])
def test_what_is_no_number_is_none(count: str) -> None:
    assert gpus(count) == 0
