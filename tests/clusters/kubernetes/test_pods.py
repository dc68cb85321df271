"""Pods and nodes, read from JSON as servers and kubelets write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.pods import KubeNode, KubePod
from scheduler.core.errors import Rejected
from scheduler.core.model import Failure, Gpu, Pod, PodState, Share

JOB = "0badcafe-0000-4000-8000-000000000000"
NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
LABELS = {pods.JOB: JOB, pods.ATTEMPT: "2", pods.RANK: "1"}
ALLOC = '{"node":"n1","gpus":{"GPU-1":9216},"epoch":4}'


def kube(status: dict[str, Any], **meta: Any) -> KubePod:
    told = {"name": "gs", "labels": LABELS, "annotations": {pods.ALLOC: ALLOC}, **meta}
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    return msgspec.convert({"metadata": told, "spec": spec, "status": status}, KubePod)


def seen(status: dict[str, Any], now: float = NOW, answers: bool = True, **meta: Any) -> Pod:
    pod = kube(status, **meta)
    claim = pods.claim(pod.metadata)
    assert claim is not None
    return pods.observe_pod(pod, claim, now, answers)


def ended(code: int, phase: str = "Failed", **more: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "finishedAt": "2027-01-15T07:59:00Z", **more}}
    return {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}


LEAVING: dict[str, Any] = {
    "deletionTimestamp": "2027-01-15T07:59:30Z",
    "deletionGracePeriodSeconds": 30,
}


def test_a_pod_tells_its_run_and_what_it_holds() -> None:
    pod = seen({"phase": "Running"})
    assert (pod.job_id, pod.attempt, pod.rank, pod.state) == (JOB, 2, 1, "running")
    assert pod.shares == (Share("n1", "GPU-1", 9216),)


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {}},
        {"labels": {**LABELS, pods.ATTEMPT: "two"}},
        {"labels": {**LABELS, pods.RANK: ""}},
        {"annotations": {pods.ALLOC: "{"}},
        {"annotations": {pods.ALLOC: '{"gpus": [1]}'}},
    ],
)
def test_labels_that_we_did_not_write_are_no_claim(meta: dict[str, Any]) -> None:
    assert pods.claim(kube({}, **meta).metadata) is None


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, PodState.PENDING),
        ({"phase": "Pending"}, PodState.PENDING),
        ({"phase": "Running"}, PodState.RUNNING),
        ({"phase": "Unknown"}, PodState.RUNNING),
        (ended(0, "Succeeded"), PodState.SUCCEEDED),
        (ended(1), PodState.FAILED),
    ],
)
def test_each_phase_is_a_state(status: dict[str, Any], state: PodState) -> None:
    assert seen(status).state is state


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (ended(1), "exit code 1"),
        (ended(137), "killed by SIGKILL"),
        (ended(255), "exit code 255"),
        (ended(137, reason="OOMKilled"), "killed: it used more main memory"),
        (ended(128, reason="StartError", message="exec: no"), "cannot start: exec: no"),
    ],
)
def test_an_ending_that_is_the_jobs_own_is_told_in_words(
    status: dict[str, Any], reason: str
) -> None:
    assert seen(status).reason.startswith(reason)
    assert seen(status).at == NOW - 60


def test_a_full_gpu_is_told_from_a_full_machine() -> None:
    said = "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    pod = seen(ended(1, message=said))
    assert pod.reason == Failure.OUT_OF_MEMORY
    assert pod.said.startswith("torch.OutOfMemoryError")


def test_an_old_library_that_could_not_reach_the_scheduler_is_not_the_jobs_fault() -> None:
    said = '  File "/x/kubernetesdlprofile/kubeprofiler.py", line 9, in measure\n'
    said += "requests.exceptions.ConnectionError: Max retries exceeded\n"
    pod = seen(ended(1, message=said))
    assert pod.reason == Failure.LOST
    assert pod.said.startswith("its old library could not reach the scheduler: requests")


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "NodeLost"},
        {**ended(137), "reason": "OutOfcpu"},
        {"phase": "Failed"},
        {**ended(137), "reason": "Evicted", "message": "The node was low on resource: memory."},
        ended(137, reason="ContainerStatusUnknown"),
        {
            **ended(143),
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preemption"}],
        },
    ],
)
def test_an_ending_that_is_the_worlds_costs_no_retry(status: dict[str, Any]) -> None:
    assert (seen(status).state, seen(status).reason) == (PodState.FAILED, Failure.LOST)


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"},
        {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough"},
        {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"},
        {"phase": "Failed", "reason": "NodeAffinity"},
        {"phase": "Failed", "reason": "TaintToleration"},
    ],
)
def test_what_its_node_would_not_have_never_began(status: dict[str, Any]) -> None:
    assert (seen(status).state, seen(status).reason) == (PodState.FAILED, Failure.REFUSED)


def test_a_pod_that_is_deleted_holds_its_gpus_until_it_is_gone() -> None:
    assert seen({"phase": "Running"}, **LEAVING).state is PodState.TERMINATING
    assert seen({"phase": "Pending"}, **LEAVING).state is PodState.TERMINATING


@pytest.mark.parametrize("code", [0, 143])
def test_whatever_it_makes_of_a_deletion_it_is_lost(code: int) -> None:
    late = ended(code, "Failed" if code else "Succeeded", finishedAt="2027-01-15T07:59:10Z")
    assert seen(late, **LEAVING).reason == Failure.LOST


def test_what_had_ended_before_the_deletion_keeps_its_ending() -> None:
    early = ended(0, "Succeeded", finishedAt="2027-01-15T07:58:59Z")
    assert seen(early, **LEAVING).state is PodState.SUCCEEDED


def test_a_pod_leaves_a_node_that_does_not_answer_when_its_time_is_over() -> None:
    running = {"phase": "Running"}
    assert seen(running, answers=False).state is PodState.RUNNING
    assert seen(running, NOW, answers=False, **LEAVING).state is PodState.TERMINATING
    assert seen(running, NOW + 3600, answers=True, **LEAVING).state is PodState.TERMINATING
    lost = seen(running, NOW + 3600, answers=False, **LEAVING)
    assert (lost.reason, lost.said) == (Failure.LOST, "node n1 does not answer")


@pytest.mark.parametrize(
    ("status", "words", "blamed"),
    [
        ({"phase": "Pending"}, "", False),
        (waiting("ContainerCreating"), "", False),
        (waiting("ImagePullBackOff", "Back-off\n  pulling x"), "ImagePullBackOff: Back-off", True),
        (waiting("ErrImagePull"), "its image is not available from docker.io: ErrImagePull", True),
        (waiting("CreateContainerConfigError", 'secret "x" not found'), "cannot start", True),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/2 nodes are available",
                    }
                ],
            },
            "its pod cannot be scheduled: Unschedulable: 0/2 nodes",
            False,
        ),
    ],
)
def test_what_keeps_a_pod_from_starting_has_words_and_somebody_to_blame(
    status: dict[str, Any], words: str, blamed: bool
) -> None:
    said, blames = pods.hindrance(kube(status))
    assert words in said
    assert blames is blamed


# --- nodes --------------------------------------------------------------------------------------


def node(
    ready: str = "True",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    images: Sequence[list[str] | None] | None = None,
    **spec: Any,
) -> KubeNode:
    meta = {"name": "n1", "annotations": annotations or {}, "labels": labels or {}}
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "allocatable": allocatable or {},
        **({} if images is None else {"images": [{"names": names} for names in images]}),
    }
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, KubeNode)


gpus_of_nodes = st.builds(
    Gpu,
    uuid=st.text(min_size=1, max_size=40),
    index=st.integers(0, 63),
    type=st.sampled_from(["t4", "a100", "pretended"]),
    memory_mib=st.integers(1, 200_000),
    reserved_mib=st.integers(0, 2_000),
    strange_mib=st.integers(0, 2_000),
    fault=st.sampled_from(["", "XID 79"]),
    lost=st.booleans(),
)


@given(st.lists(gpus_of_nodes, max_size=8, unique_by=(lambda gpu: gpu.uuid, lambda gpu: gpu.index)))
def test_what_is_declared_is_what_is_read(gpus: list[Gpu]) -> None:
    read = pods.gpus_of(node(annotations={pods.GPUS: pods.gpus_annotation(gpus)}))
    assert read == tuple(sorted(gpus, key=lambda gpu: gpu.index))


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("[", "Input data was truncated"),
        ('{"uuid": "GPU-1"}', "Expected `array`"),
        ('[{"uuid": "", "index": 0, "type": "t4", "memory_mib": 1}]', "length >= 1"),
        ('[{"uuid": "a", "index": 0, "type": "t4", "memory_mib": -1}]', ">= 1"),
        (
            '[{"uuid": "a", "index": 0, "type": "t4", "memory_mib": 1},'
            ' {"uuid": "a", "index": 1, "type": "t4", "memory_mib": 1}]',
            "two GPUs have the same uuid",
        ),
    ],
)
def test_a_node_that_lies_is_named_in_one_line(listed: str, words: str) -> None:
    with pytest.raises(Rejected, match=words) as refusal:
        pods.read_node(node(annotations={pods.GPUS: listed}))
    assert "node n1" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@given(st.lists(gpus_of_nodes, max_size=8, unique_by=(lambda gpu: gpu.uuid, lambda gpu: gpu.index)))
def test_no_gpu_is_chosen_where_the_kubelet_hands_them_out(gpus: list[Gpu]) -> None:
    there = node(
        allocatable={pods.GPU_RESOURCE: "2"}, annotations={pods.GPUS: pods.gpus_annotation(gpus)}
    )
    assert [gpu.uuid for gpu in pods.gpus_of(there)] == ["slot-0", "slot-1"]


def test_without_a_declaration_a_node_has_the_gpus_that_its_kubelet_hands_out() -> None:
    labels = {pods.GPU_PRODUCT: "Tesla-T4", pods.GPU_MEMORY: "15360"}
    gpus = pods.gpus_of(node(labels=labels, allocatable={pods.GPU_RESOURCE: "2"}))
    assert gpus == tuple(Gpu(f"slot-{n}", n, "t4", 15_360, whole=True) for n in (0, 1))
    assert pods.gpus_of(node()) == ()


@pytest.mark.parametrize(
    ("count", "mib", "words"),
    [
        ("1000000000", "15360", "1000000000 GPUs"),
        ("9" * 60, "15360", "9 GPUs"),
        ("1", "9" * 63, "9 MiB"),
        ("0", str(2**31), "2147483648 MiB"),
    ],
)
def test_a_node_with_more_than_there_can_be_is_named(count: str, mib: str, words: str) -> None:
    told = node(labels={pods.GPU_MEMORY: mib}, allocatable={pods.GPU_RESOURCE: count})
    with pytest.raises(Rejected, match=words) as refusal:
        pods.read_node(told)
    assert "node n1" in str(refusal.value)


def test_a_node_is_ready_when_it_answers_and_may_be_used() -> None:
    assert pods.read_node(node()).ready
    assert not pods.read_node(node(ready="Unknown")).ready
    assert not pods.read_node(node(unschedulable=True)).ready
    assert pods.is_ready(node(unschedulable=True))


@pytest.mark.parametrize(
    ("state", "ready"),
    [
        ("", True),
        ("upgrade-done", True),
        ("upgrade-required", True),
        ("cordon-required", False),
        ("wait-for-jobs-required", False),
        ("pod-deletion-required", False),
        ("upgrade-failed", False),
    ],
)
def test_nothing_is_started_where_the_driver_is_being_replaced(state: str, ready: bool) -> None:
    labels = {pods.UPGRADE: state} if state else {}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    told = {"metadata": {"name": "n1", "labels": labels}, "status": status}
    node = pods.read_node(msgspec.convert(told, KubeNode))
    assert (node.ready, node.leave) == (ready, "" if ready else "its driver is being replaced")


PAUSE = ["registry.k8s.io/pause@sha256:" + 64 * "0", "registry.k8s.io/pause:3.10"]
X = ["docker.io/lab/x:1"]


@pytest.mark.parametrize(
    ("told", "images"),
    [
        ([PAUSE, X], {*PAUSE, *X}),
        ([["lab/x:1"]], set(X)),  # an unusual name
        ([[], X], set(X)),  # an old image whose name another one has now
        ([None, X], set(X)),  # the same, as a kubelet writes it
        ([PAUSE, ["docker.io/library/none:1"]], {*PAUSE, "docker.io/library/none:1", ""}),
        (None, None),  # the field is missing
        ([], None),  # the kubelet could not read its images
        ([[f"docker.io/lab/x:{number}"] for number in range(50)], None),  # there may be more
        ([[f"docker.io/lab/x:{number}" for number in range(5)]], None),  # and more names
    ],
)
def test_where_nothing_is_pulled_a_node_has_the_images_that_it_tells_of(
    told: list[list[str] | None] | None, images: set[str] | None
) -> None:
    there = pods.read_node(node(images=told), "none:1").images
    assert there == (None if images is None else frozenset(images))
    assert pods.read_node(node(images=told)).images is None


def test_without_an_image_of_its_own_no_job_is_made_from_it() -> None:
    assert pods.read_node(node(images=[X]), "").images == frozenset(X)


# --- with a relay beside the training -----------------------------------------------------------


def beside(relay: dict[str, Any], training: dict[str, Any], phase: str) -> dict[str, Any]:
    """Where kubelets know no sidecars."""
    statuses = [{"name": "relay", "state": relay}, {"name": "main", "state": training}]
    return {"phase": phase, "containerStatuses": statuses}


def exited(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": "2027-01-15T07:59:00Z"}}


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        (beside({"running": {}}, exited(0), "Running"), PodState.SUCCEEDED, 0),
        (beside({"running": {}}, exited(85), "Running"), PodState.FAILED, 85),
        (beside(exited(1), {"running": {}}, "Running"), PodState.RUNNING, None),
        (beside(exited(1), exited(0), "Failed"), PodState.SUCCEEDED, 0),
        (beside(exited(0), exited(3), "Failed"), PodState.FAILED, 3),
        # A pod is pending until all of its containers have run.
        (
            beside({"waiting": {"reason": "ImagePullBackOff"}}, {"running": {}}, "Pending"),
            PodState.RUNNING,
            None,
        ),
    ],
)
def test_how_a_training_ends_does_not_depend_on_its_relay(
    status: dict[str, Any], state: PodState, code: int | None
) -> None:
    pod = seen(status)
    assert (pod.state, pod.exit_code) == (state, code)
    assert pods.is_over(kube(status)) is (state is not PodState.RUNNING)


def test_a_sidecar_that_does_not_start_is_named_and_the_job_is_not_blamed() -> None:
    waits = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    status = {
        **waiting("PodInitializing"),
        "initContainerStatuses": [{"name": "relay", "state": waits}],
    }
    words = "its relay does not start: ErrImagePull: no such image"
    assert pods.relay_trouble(kube(status)) == words
    assert pods.hindrance(kube(status)) == (words, False)
    assert seen(status).reason == words
    begins = {"waiting": {"reason": "PodInitializing"}}
    status["initContainerStatuses"] = [{"name": "relay", "state": begins}]
    assert pods.relay_trouble(kube(status)) == ""


def test_a_foreign_pod_is_over_when_all_of_it_is() -> None:
    status = beside({"running": {}}, exited(0), "Running")
    assert not pods.is_over(kube(status, labels={}))


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (1, "cannot start: its package of code: it is gone", ""),
        (75, Failure.LOST, "cannot start: its package of code: it is gone"),
        (137, Failure.LOST, "cannot start: its package of code: it is gone"),
    ],
)
def test_a_package_that_did_not_come_is_told_and_who_is_to_blame(
    code: int, reason: str, said: str
) -> None:
    terminated = {"terminated": {"exitCode": code, "message": "it is gone\n"}}
    status = {
        **waiting("PodInitializing"),
        "phase": "Failed",
        "initContainerStatuses": [{"name": "code", "state": terminated}],
    }
    pod = seen(status)
    assert (pod.state, pod.reason, pod.said) == (PodState.FAILED, reason, said)


def test_a_package_that_is_on_its_way_is_no_ending() -> None:
    status = {
        **waiting("PodInitializing"),
        "initContainerStatuses": [{"name": "code", "state": {"running": {}}}],
    }
    assert (seen(status).state, seen(status).reason) == (PodState.PENDING, "")
    waits = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    status["initContainerStatuses"] = [{"name": "code", "state": waits}]
    assert seen(status).reason == (
        "what fetches its package does not start: ErrImagePull: no such image"
    )
