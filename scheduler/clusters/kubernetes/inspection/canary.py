"""A canary: a pod like that of a job, on one GPU of a node, that lists the GPUs it sees. Pure.

It is made by the same code as the pods of jobs, so a fault that keeps a job from its GPU, or shows
it other GPUs, affects the canary too. Its list is in its termination message, so the doctor needs
neither the permission to read logs nor a node that it can reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.manifests import Manifest, PodTemplate, manifests
from scheduler.core.errors import Rejected
from scheduler.core.fast_replace import replace
from scheduler.core.model import JobId, JobSpec, Launch, Node, Share

CANARY = f"{pods.DOMAIN}/canary"  # a label: which of the doctor's visits it belongs to
LIST_GPUS = "nvidia-smi --query-gpu=uuid --format=csv,noheader > /dev/termination-log 2>&1"
EVERY = "all"
NO_SUCH_PROGRAM = 127  # the exit code of a shell
BEYOND_SECONDS = 60  # after which the kubelet ends a canary that was not deleted


def canary(
    node: Node | None,
    nodes: Sequence[Node],
    shape: PodTemplate,
    name: str,
    visit: str,
    seconds: float,
) -> Manifest:
    """Returns a canary for the first GPU of this node; without a GPU, and on any node, if None."""
    gpu = node.gpus[0] if node and node.gpus else None
    shares = (Share(node.name, gpu.uuid, 1),) if node and gpu else ()
    custom = shape.custom.root if shape.custom.kind else ""
    spec = JobSpec(name=name, user="", command=("sh", "-c", LIST_GPUS), custom_dir=custom)
    launch = Launch(JobId(name), 1, spec, shares, 0, 1, "")
    (made,) = (each for each in manifests(launch, nodes, shape) if each["kind"] == "Pod")
    (container,) = made["spec"]["containers"]
    # There is no Secret, because the canary reports to no daemon.
    del container["envFrom"]
    made["spec"] |= {
        "activeDeadlineSeconds": int(seconds) + BEYOND_SECONDS,
        "terminationGracePeriodSeconds": 1,
    }
    notes = made["metadata"]["annotations"]
    made["metadata"] = {
        "name": name,
        # Not a job's, so no daemon takes it for one.
        "labels": {pods.MANAGED_BY: pods.OURS, CANARY: visit},
        "annotations": {key: notes[key] for key in notes if not key.startswith(pods.DOMAIN)},
    }
    return made


def with_all_gpus(node: Node) -> Node:
    """The node with one GPU named EVERY, so that a canary on it requests all of its GPUs."""
    return replace(node, gpus=(replace(node.gpus[0], uuid=EVERY, whole=False),))


def read_visible_gpus(kube: pods.KubePod) -> tuple[int | None, list[str], str]:
    """The exit code, the GPUs, and the message. Without a code, it has not run to its end."""
    for status in kube.status.container_statuses:
        if ended := status.state.terminated:
            lines = [line.strip() for line in ended.message.splitlines() if line.strip()]
            if ended.exit_code == 0:
                return 0, lines, ""
            return ended.exit_code, [], pods.sentence(ended.reason, ended.message)
    return None, [], pods.sentence(kube.status.reason, kube.status.message)


def readable_nodes(kube_nodes: Sequence[pods.KubeNode]) -> list[Node]:
    """The nodes with valid labels and annotations about their GPUs."""
    found = []
    for kube in kube_nodes:
        try:
            found.append(pods.read_node(kube))
        except Rejected:
            continue
    return found
