"""A holder: how it is made, and how it is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.gpu_requests import RequestingPod
from scheduler.clusters.kubernetes.holders.holder import (
    EXCLUSIVE,
    HOLDS,
    LABEL_MAX,
    MIXED,
    MODE,
    NODE,
    OWNED,
    Hold,
    Holder,
    HolderTemplate,
    foreign,
    holder_of,
    manifest,
    mode_of,
    site_of,
    speaks_for,
    spec_hash,
)
from scheduler.clusters.kubernetes.pods import KubeNode, KubePod
from scheduler.core.errors import Rejected
from scheduler.core.model import PodState

HOLD = Hold("n1", 0, 4)
DRESS = HolderTemplate("agent:1", "scheduler:7070")


def shown(
    hold: Hold = HOLD, phase: str = "Running", metadata: Mapping[str, Any] | None = None
) -> KubePod:
    """The created pod as the API server shows it."""
    made = manifest(hold, DRESS)
    told = {**made["metadata"], "uid": "u1", **(metadata or {})}
    return msgspec.convert({**made, "metadata": told, "status": {"phase": phase}}, KubePod)


def machine(labels: Mapping[str, str] | None = None, gpus: int = 2) -> KubeNode:
    told = {
        "metadata": {"name": "n1", "uid": "u2", "labels": labels or {}},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "capacity": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(told, KubeNode)


def test_what_was_made_is_known_again() -> None:
    assert holder_of(shown()) == Holder(HOLD, "u1", PodState.RUNNING, spec_hash(HOLD, DRESS))


def test_the_same_hold_has_always_the_same_name_and_no_other_has_it() -> None:
    assert HOLD.name == Hold("n1", 0, 1).name, "a second creation is the same pod"
    others = {Hold("n1", 1, 4).name, Hold("n2", 0, 4).name}
    assert HOLD.name not in others
    assert len(others) == 2


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {}},
        {"annotations": {HOLDS: "{}"}},
        {"annotations": {HOLDS: '{"node": "n2", "number": 0, "count": 4}'}},
        {"annotations": {HOLDS: '{"node": "n1", "number": -1, "count": 4}'}},
        {"name": "something"},
    ],
)
def test_what_is_not_as_we_make_it_is_no_holder(metadata: dict[str, Any]) -> None:
    assert holder_of(shown(metadata=metadata)) is None


@pytest.mark.parametrize(
    ("phase", "metadata", "state"),
    [
        ("Pending", {}, PodState.PENDING),
        ("Running", {}, PodState.RUNNING),
        ("Running", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, PodState.TERMINATING),
        ("Failed", {}, PodState.FAILED),
        ("Succeeded", {}, PodState.FAILED),
    ],
)
def test_a_holder_is_over_when_its_gpus_are_the_kubelets_again(
    phase: str, metadata: dict[str, Any], state: PodState
) -> None:
    found = holder_of(shown(phase=phase, metadata=metadata))
    assert found
    assert found.state is state
    assert found.over == (state is PodState.FAILED)


def test_it_asks_for_its_gpus_on_its_node_and_for_no_right() -> None:
    made = manifest(HOLD, DRESS)
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert '"n1"' in msgspec.json.encode(made["spec"]["affinity"]).decode()
    assert made["spec"]["automountServiceAccountToken"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_its_agent_has_a_token_of_its_own_that_kubernetes_issues() -> None:
    made = manifest(HOLD, DRESS)
    (container,), (volume,) = made["spec"]["containers"], made["spec"]["volumes"]
    (mount,) = container["volumeMounts"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "epoch-scheduler-agent"
    file = f"{mount['mountPath']}/{source['serviceAccountToken']['path']}"
    assert {"name": "SCHEDULER_TOKEN_FILE", "value": file} in container["env"]
    assert "secret" not in msgspec.json.encode(made).decode()


def test_an_agent_speaks_for_its_node_and_for_holders_there_and_for_no_other() -> None:
    for name in ("n1", HOLD.name, Hold("n1", 17, 1).name):
        assert speaks_for("n1", name)
    for name in ("n2", "n11", "", Hold("n2", 0, 4).name, Hold("n11", 0, 4).name, f"{HOLD.name}x"):
        assert not speaks_for("n1", name)
    assert not speaks_for("n1", HOLD.name.removesuffix("0"))


def test_another_way_to_make_it_is_noticed() -> None:
    for other in (
        replace(DRESS, image="agent:2"),
        replace(DRESS, host_pid=True),
        replace(DRESS, priority_class="high"),
        replace(DRESS, runtime_class="nvidia"),
        replace(DRESS, pull_policy="Never"),
        replace(DRESS, account="another"),
        replace(DRESS, pull_secrets=("s",)),
    ):
        assert spec_hash(HOLD, other) != spec_hash(HOLD, DRESS)


def test_a_name_that_is_too_long_for_a_label_is_cut() -> None:
    long = Hold("n" * (LABEL_MAX - 1) + "-with-more", 0, 1)
    label = manifest(long, DRESS)["metadata"]["labels"][NODE]
    assert label == "n" * (LABEL_MAX - 1)


def test_a_node_is_held_as_its_label_says_or_as_all_are() -> None:
    assert mode_of(machine(), OWNED) == OWNED
    assert mode_of(machine({MODE: MIXED}), OWNED) == MIXED
    with pytest.raises(Rejected, match="is not a valid mode"):
        mode_of(machine({MODE: "mine"}), OWNED)


def test_an_exclusive_node_has_no_holders() -> None:
    assert site_of(machine(), EXCLUSIVE, 0) is None


def test_no_gpu_is_free_before_foreign_pods_are_counted() -> None:
    known, unknown = site_of(machine(), MIXED, 1), site_of(machine(), MIXED, None)
    assert known
    assert unknown
    assert (known.count, known.foreign) == (2, 1)
    assert unknown.foreign == unknown.count


def test_our_holders_are_not_foreign_and_all_other_pods_are() -> None:
    made = manifest(HOLD, DRESS)
    ours = msgspec.convert({**made, "metadata": {**made["metadata"], "uid": "u"}}, RequestingPod)
    assert foreign(ours) == 0
    stripped = {"name": made["metadata"]["name"], "uid": "u", "labels": {pods.MANAGED_BY: "x"}}
    assert foreign(msgspec.convert({**made, "metadata": stripped}, RequestingPod)) == 4
