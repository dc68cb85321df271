"""The survey of a healthy cluster; tests change one thing about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from scheduler.clusters.kubernetes.inspection.found import (
    Heartbeat,
    KubeNamespace,
    Survey,
    SurveyedNamespace,
    SurveyedNode,
    SurveyedNodeSpec,
    SurveyedNodeStatus,
    Taint,
    Version,
)
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.permissions import IN_CLUSTER, IN_NAMESPACE, Rule
from scheduler.clusters.kubernetes.pods import GPUS, Meta, gpus_annotation
from scheduler.core.model import Gpu
from scheduler.doctor.findings import Finding, Level

NOW = 1_000_000.0
CARDS = (Gpu("GPU-1", 0, "a100", 81_920), Gpu("GPU-2", 1, "a100", 81_920))
SHAPE = PodTemplate("scheduler:7070", "jobs", "trainer:1", runtime_class="nvidia")


def may(rules: Sequence[Rule]) -> dict[Rule, bool]:
    return {Rule(rule.resource, (verb,), rule.group): True for rule in rules for verb in rule.verbs}


SPACE = SurveyedNamespace("jobs", KubeNamespace(Meta(name="jobs")), (), (), None)


def node(
    name: str = "n1",
    labels: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    ready: str = "True",
    beat: float = NOW,
    cards: Sequence[Gpu] = CARDS,
    annotations: dict[str, str] | None = None,
    mode: str | None = "owned",
) -> SurveyedNode:
    """A node with two GPUs, which its device plugin offers; an owned one also lists them in its
    annotation."""
    beats = datetime.fromtimestamp(beat, UTC)
    offered = {"nvidia.com/gpu": "2"} if allocatable is None else allocatable
    said = {} if mode is None else {"epoch-scheduler.io/mode": mode}
    own = {GPUS: gpus_annotation(cards)} if cards and mode == "owned" else {}
    return SurveyedNode(
        Meta(
            name=name,
            labels={**said, **(labels or {})},
            annotations={**own, **(annotations or {})},
        ),
        SurveyedNodeSpec(unschedulable=unschedulable, taints=taints),
        SurveyedNodeStatus(
            allocatable=offered,
            capacity=offered if capacity is None else capacity,
            conditions=(Heartbeat("Ready", ready, last_heartbeat_time=beats),),
        ),
    )


WELL = Survey(
    url="https://api:6443",
    at=NOW,
    server_at=NOW,
    version=Version("v1.36.1", "1", "36"),
    user="ada",
    permissions={"jobs": may(IN_NAMESPACE), "": may(IN_CLUSTER)},
    spaces=(SPACE,),
    runtime_class=None,
    priority_class=None,
    accounts={},
    nodes=(node(),),
    lease_renewed_at={"n1": NOW - 5},
    foreign_gpus={},
)


def but(**changed: Any) -> Survey:
    return replace(WELL, **changed)


def bad(findings: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """Level, place and text of all findings that are not ok."""
    return [
        (str(each.level), each.where, each.words) for each in findings if each.level is not Level.OK
    ]
