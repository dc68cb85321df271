"""The manifests of canaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scheduler.clusters.kubernetes.inspection.canary import CANARY, canary, readable_nodes
from scheduler.clusters.kubernetes.pods import JOB
from scheduler.clusters.kubernetes.volumes import VolumeSource
from scheduler.core.model import Gpu, Node
from tests.doctor.found import CARDS, SHAPE, node

CHOSEN = Node("n1", CARDS)
SLOTS = Node("n1", (Gpu("slot-0", 0, "a100", 81_920),))


def made(on: Node | None, nodes: Sequence[Node] = (CHOSEN,), **shape: Any) -> dict[str, Any]:
    return canary(on, nodes, replace(SHAPE, **shape), "gs-canary-1", "visit", 300.0)


def test_a_canary_is_a_job_s_pod_that_belongs_to_no_job() -> None:
    pod = made(CHOSEN)
    assert pod["metadata"]["labels"][CANARY] == "visit"
    assert JOB not in pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert "KUBEPROFILER_TOKEN" not in environment
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["spec"]["activeDeadlineSeconds"] == 360


def test_a_canary_asks_for_its_gpu_in_the_way_of_the_settings() -> None:
    notes = made(CHOSEN, inject="annotation")["metadata"]["annotations"]
    assert list(notes.values()) == ["k8s.device-plugin.nvidia.com/gpu=GPU-1"]
    (container,) = made(SLOTS, (SLOTS,))["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_canary_has_the_folders_that_a_job_would_have() -> None:
    spec = made(None, custom=VolumeSource.parse("host:/home"), data=VolumeSource.parse("pvc:d"))[
        "spec"
    ]
    assert {"custom", "data"} < {each["name"] for each in spec["volumes"]}


def test_a_node_that_cannot_be_understood_has_none() -> None:
    strange = node("n2", annotations={"epoch-scheduler.io/gpus": "3"}, allocatable={})
    assert [each.name for each in readable_nodes([node(), strange])] == ["n1"]
