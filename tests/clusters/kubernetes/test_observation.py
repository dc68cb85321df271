"""What the daemon observes, from one observation to the next."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.observation import ClusterState
from scheduler.clusters.kubernetes.pods import KubeNode, KubePod
from scheduler.core.model import Gpu, JobId, Pod, PodState

RUN = (JobId("0badcafe-0000-4000-8000-000000000000"), 1)
NODE_READY = [{"type": "Ready", "status": "True"}]
NODE = msgspec.convert(
    {
        "metadata": {
            "name": "n1",
            "annotations": {pods.GPUS: pods.gpus_annotation((Gpu("g", 0, "t4", 9),))},
        },
        "status": {"conditions": NODE_READY},
    },
    KubeNode,
)
FAILED = {"phase": "Failed", "reason": "Evicted"}


def kube(status: dict[str, Any], uid: str = "u1", **meta: Any) -> KubePod:
    told = {"name": "gs", "uid": uid, "labels": pods.labels_of(RUN), **meta}
    made = {"metadata": told, "spec": {"nodeName": "n1"}, "status": status}
    return msgspec.convert(made, KubePod)


def look(sight: ClusterState, *seen: KubePod, now: float = 0.0) -> list[Pod]:
    sight.look({pod.metadata.name: pod for pod in seen}, {"n1": NODE}, now)
    return list(sight.pods())


def waits(reason: str) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}


def test_what_did_not_change_is_the_same_object_also_when_it_was_listed_again() -> None:
    sight = ClusterState()
    (first,) = look(sight, kube({"phase": "Running"}))
    nodes = sight.nodes
    (second,) = look(sight, kube({"phase": "Running"}), now=9.0)
    assert second is first
    assert sight.nodes[0] is nodes[0]


def test_what_has_ended_stays_as_it_has() -> None:
    sight = ClusterState()
    (first,) = look(sight, kube({"phase": "Succeeded"}))
    leaving = {"deletionTimestamp": "2026-11-18T00:00:00Z"}
    (second,) = look(sight, kube({"phase": "Succeeded"}, **leaving))
    assert second is first
    (other,) = look(sight, kube({"phase": "Running"}, uid="u2"))
    assert other.state is PodState.RUNNING


def test_labels_that_cannot_be_read_are_no_run() -> None:
    sight = ClusterState()
    assert look(sight, kube({"phase": "Running"}, labels={pods.JOB: "x"})) == []
    assert list(sight.runs()) == []


def test_a_restarted_daemon_counts_from_the_creation_of_what_it_finds() -> None:
    created = {"creationTimestamp": "1970-01-01T00:01:40Z"}  # 100
    found = ClusterState()
    look(found, kube({"phase": "Pending"}, **created), now=107.0)
    assert list(found.overdue(107.0, 5.0, 10.0)) == []
    assert [key for key, _ in found.overdue(111.0, 5.0, 10.0)] == [RUN]
    made = ClusterState()
    look(made, now=50.0)
    look(made, kube({"phase": "Pending"}, **created), now=107.0)
    assert list(made.overdue(111.0, 5.0, 10.0)) == [], "which is by its own clock, where it can be"
    blamed = ClusterState()
    look(blamed, kube(waits("ErrImagePull"), **created), now=107.0)
    assert list(blamed.overdue(111.0, 5.0, 10.0)) == [], "it is not known since when"
    ahead = ClusterState()
    look(ahead, kube({"phase": "Pending"}, **created), now=90.0)
    assert [key for key, _ in ahead.overdue(101.0, 5.0, 10.0)] == [RUN]


def test_how_long_a_pod_has_waited_begins_again_with_another_hindrance() -> None:
    sight = ClusterState()
    look(sight, kube({"phase": "Pending"}), now=0.0)
    assert [key for key, _ in sight.overdue(11.0, 5.0, 10.0)] == [RUN]
    look(sight, kube(waits("ErrImagePull")), now=11.0)
    assert list(sight.overdue(12.0, 5.0, 10.0)) == []
    look(sight, kube(waits("ImagePullBackOff")), now=14.0)
    assert [key for key, _ in sight.overdue(17.0, 5.0, 10.0)] == [RUN]
    look(sight, kube({"phase": "Running"}), now=17.0)
    assert list(sight.overdue(1e9, 5.0, 10.0)) == []


def test_the_images_of_a_node_are_the_same_object_while_they_did_not_change() -> None:
    def told(*names: str, **meta: Any) -> KubeNode:
        status = {"conditions": NODE_READY, "images": [{"names": [name]} for name in names]}
        return msgspec.convert({"metadata": {"name": "n1", **meta}, "status": status}, KubeNode)

    sight = ClusterState("lab/x:1")
    sight.look({}, {"n1": told("lab/x:1", "lab/y:1")}, 0.0)
    (first,) = sight.nodes
    assert first.images is not None
    assert "" in first.images
    sight.look({}, {"n1": told("lab/y:1", "lab/x:1", uid="heard of again")}, 1.0)
    assert sight.nodes[0] is first
    sight.look({}, {"n1": told("lab/y:1")}, 2.0)
    assert sight.nodes[0].images == frozenset({"docker.io/lab/y:1"})
