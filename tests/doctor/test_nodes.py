"""What nodes say of themselves, and what it means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.clusters.kubernetes.inspection.found import Refusal, SurveyedNode, Taint
from scheduler.clusters.kubernetes.pods import GPUS, gpus_annotation
from scheduler.doctor.findings import Finding, Level
from scheduler.doctor.nodes import examine
from tests.doctor.found import CARDS, NOW, SHAPE, bad, but, node


def of(*nodes: SurveyedNode, **found: object) -> list[Finding]:
    return examine(but(nodes=nodes, **found), SHAPE, "exclusive")


NONE: dict[str, str] = {}
SLICED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
MIG = {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}
NO_MIG = "kubectl label node n1 nvidia.com/mig.config=all-disabled --overwrite"
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
TABLE: list[tuple[SurveyedNode, str, str, str]] = [
    (node(ready="False"), "warning", "it is not ready", ""),
    (node(unschedulable=True), "warning", "it is cordoned", "kubectl uncordon n1"),
    (
        node(taints=(Taint("team", "NoSchedule", "vision"),)),
        "warning",
        "its taint team:NoSchedule keeps jobs away",
        "kubectl taint node n1 team:NoSchedule-",
    ),
    (node(labels=SLICED), "wrong", "several times (time-slicing, 4 times each)", ""),
    (
        node(labels={**SLICED, "nvidia.com/device-plugin.config": "x"}),
        "wrong",
        "several times",
        "kubectl label node n1 nvidia.com/device-plugin.config-",
    ),
    (node(labels={"nvidia.com/gpu.sharing-strategy": "mps"}), "wrong", "several times (mps)", ""),
    (node(labels={"nvidia.com/gpu.replicas": "2"}), "wrong", "(time-slicing, 2 times each)", ""),
    (node(labels={"nvidia.com/gpu.product": "Tesla-T4-SHARED"}), "wrong", "several times", ""),
    (node(allocatable={"nvidia.com/gpu.shared": "8"}), "wrong", "several times", ""),
    (
        node(labels=MIG, cards=()),
        "warning",
        "divided by MIG",
        NO_MIG,
    ),
    (
        node(allocatable={"nvidia.com/mig-1g.5gb": "7"}, cards=()),
        "warning",
        "7 MIG slices",
        NO_MIG,
    ),
    (node(labels={UPGRADE: "upgrade-failed"}), "wrong", "upgrade of its driver failed", ""),
    (
        node(labels={"nvidia.com/gpu.present": "true"}, allocatable=NONE, cards=()),
        "wrong",
        "it has GPUs, but its device plugin offers none",
        "",
    ),
    (
        node(capacity={"nvidia.com/gpu": "2"}, allocatable=NONE, cards=()),
        "wrong",
        "offers none",
        "",
    ),
    (
        node(capacity={"nvidia.com/gpu": "2"}, allocatable={"nvidia.com/gpu": "1"}),
        "warning",
        "1 of its 2 GPUs are unhealthy",
        "",
    ),
    (
        node(allocatable={"nvidia.com/gpu": "8"}),
        "wrong",
        "its annotation epoch-scheduler.io/gpus lists 2 GPUs, its device plugin 8",
        "kubectl annotate node n1 epoch-scheduler.io/gpus-",
    ),
    (
        node(mode="exclusive", annotations={GPUS: gpus_annotation(CARDS)}),
        "warning",
        "is ignored: its device plugin gives GPUs to other pods too",
        "kubectl annotate node n1 epoch-scheduler.io/gpus-",
    ),
    (
        node(annotations={GPUS: "[{}]"}),
        "wrong",
        "Correct this value",
        "",
    ),
    (
        node(labels={UPGRADE: "drain-required"}),
        "warning",
        "No job is started there, running jobs are preempted",
        "",
    ),
    (
        node(mode="all mine"),
        "wrong",
        "must be one of owned, mixed, exclusive",
        "kubectl label node n1 epoch-scheduler.io/mode=owned --overwrite",
    ),
]


@pytest.mark.parametrize(("there", "level", "words", "command"), TABLE)
def test_each_trouble_of_a_node_is_one_line(
    there: SurveyedNode, level: str, words: str, command: str
) -> None:
    findings = [each for each in of(there, node("n2")) if each.level is not Level.OK]
    (trouble,) = findings
    assert (trouble.level, trouble.where) == (level, "node n1")
    assert words in trouble.line
    assert trouble.commands == ((command,) if command else ())


WELL = [
    node(labels={UPGRADE: "upgrade-done"}),
    node(labels={UPGRADE: "upgrade-required"}),
    node(labels={"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}),
    node(labels={"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "Tesla-T4"}),
    node(taints=(Taint("nvidia.com/gpu", "NoSchedule"), Taint("x", "PreferNoSchedule"))),
    node(taints=(Taint("epoch-scheduler.io/owned", "NoExecute"),)),
    node(allocatable=NONE),
    node(cards=()),
    node(cards=(), allocatable=NONE),
    node(cards=(), allocatable=NONE, taints=(Taint("control-plane", "NoSchedule"),)),
]


@pytest.mark.parametrize("there", WELL)
def test_what_is_well_is_not_spoken_of(there: SurveyedNode) -> None:
    findings = of(there, node("n2"))
    assert bad(findings) == []
    assert findings[0].where == "n1, n2"


def test_past_the_cluster_s_scheduler_only_taints_that_evict_matter() -> None:
    found = but(nodes=(node(taints=(Taint("team", "NoSchedule"),)),))
    assert bad(examine(found, replace(SHAPE, binding="node_name"), "owned")) == []
    found = but(nodes=(node(taints=(Taint("team", "NoExecute"),)),))
    assert len(bad(examine(found, replace(SHAPE, binding="node_name"), "owned"))) == 1


def test_of_many_nodes_that_are_well_there_is_one_line() -> None:
    many = [node(f"n{number:03}") for number in range(250)]
    (line,) = (each.line for each in of(*many))
    assert "n000, n001, n002, n003, n004 and 245 more: ready, 500 GPUs in all" in line


def test_a_cluster_without_gpus_is_reported() -> None:
    (trouble,) = bad(of(node(cards=(), allocatable=NONE), node("n2", cards=(), allocatable=NONE)))
    assert trouble == ("warning", "", "none of 2 has a GPU")


def test_gpus_that_no_plugin_offers_are_reported_once() -> None:
    there = node(labels={"nvidia.com/gpu.present": "true"}, cards=(), allocatable=NONE)
    assert [words for _, _, words in bad(of(there))] == [
        "it has GPUs, but its device plugin offers none"
    ]
    strange = node(annotations={GPUS: "[{}]"})
    assert len(bad(of(strange))) == 1


CLOCKS = [
    ({"n1": NOW + 9}, NOW, "its clock is 9 s ahead of the API server's"),
    ({"n1": NOW - 90}, NOW, "its clock is 90 s behind the API server's"),
    (Refusal("no", 403), NOW + 9, "its clock is 9 s ahead of the API server's"),
]


@pytest.mark.parametrize(("renewed", "beat", "words"), CLOCKS)
def test_a_clock_that_is_wrong_shows_in_a_lease_or_else_in_heartbeats(
    renewed: object, beat: float, words: str
) -> None:
    assert bad(of(node(beat=beat), lease_renewed_at=renewed)) == [("warning", "node n1", words)]


def test_old_heartbeats_and_nodes_that_are_away_say_nothing_of_clocks() -> None:
    assert bad(of(node(beat=NOW - 290), lease_renewed_at=Refusal("no", 403))) == []
    away = of(node(ready="Unknown"), lease_renewed_at={"n1": NOW - 3000})
    assert bad(away) == [("warning", "node n1", "it is not ready")]


def proposed(*nodes: SurveyedNode, default: str, **found: object) -> list[tuple[str, ...]]:
    findings = examine(but(nodes=nodes, **found), SHAPE, default)
    assert bad(findings) == []
    return [each.commands for each in findings if each.what == "modes"]


def test_modes_other_than_the_default_are_proposed_by_the_present_pods() -> None:
    unsaid = [node(name, mode=None) for name in ("n1", "n2", "n3")]
    owned = tuple(f"kubectl label node {n} epoch-scheduler.io/mode=owned" for n in ("n1", "n3"))
    mixed = ("kubectl label node n2 epoch-scheduler.io/mode=mixed",)
    foreign = {"n2": 1, "n3": 0}
    assert proposed(*unsaid, default="exclusive", foreign_gpus=foreign) == [owned, mixed]
    assert proposed(*unsaid, default="owned", foreign_gpus=foreign) == [mixed]
    assert proposed(*unsaid, default="mixed", foreign_gpus=foreign) == [owned]
    assert proposed(*unsaid, default="exclusive", foreign_gpus=Refusal("no", 403)) == []


def test_without_holders_modes_have_no_effect() -> None:
    assert proposed(node(mode="all mine"), node("n2", mode=None), default="") == [()]


def test_nodes_that_may_not_be_seen_are_not_judged() -> None:
    assert examine(but(nodes=Refusal("no", 403)), SHAPE, "owned") == []
