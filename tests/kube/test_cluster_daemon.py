"""The daemon itself on a real API server, from a command to a pod and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters.kubernetes.pods import ALLOC
from tests.kube.kubelet import GPUS, Kubelet
from tests.support import Daemon, eventually

SETTINGS = """
cluster = "kubernetes"
[kubernetes]
kubeconfig = "{kubeconfig}"
namespace = "{namespace}"
service = "scheduler.jobs.svc:7070"
image = "none:1"
runtime_class = ""
"""
PAUSE = "registry.k8s.io/pause:3.10"


@pytest.fixture
def daemon(kubeconfig: Path, namespace: str, kubelet: Kubelet, tmp_path: Path) -> Iterator[Daemon]:
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(kubeconfig=kubeconfig, namespace=namespace))
    daemon = Daemon(tmp_path / "state", "0", "--config", str(file))
    yield daemon.start()
    daemon.end()


def only(kubelet: Kubelet) -> str:
    """Waits for the pod of a job."""
    eventually(kubelet.pods)
    (pod,) = kubelet.pods()
    return str(pod["metadata"]["name"])


def nothing_left(kubelet: Kubelet) -> bool:
    kubelet.step()
    return not (kubelet.pods() or kubelet.owners())


def test_a_job_becomes_a_pod_and_what_becomes_of_that_becomes_of_it(
    daemon: Daemon, kubelet: Kubelet
) -> None:
    job_id = daemon.submit("j", "--estimated_memory", "1000", "--", "sleep", "1000")
    pod = only(kubelet)
    assert pod == f"gs-{job_id[:8]}-a1-r0"
    kubelet.run(pod)
    daemon.wait_state(j="RUNNING")
    kubelet.end(pod, 0)
    daemon.wait_state(j="FINISHED")
    eventually(lambda: nothing_left(kubelet))


def test_a_daemon_that_was_killed_finds_its_pods_and_a_cancelled_job_leaves_none(
    daemon: Daemon, kubelet: Kubelet
) -> None:
    job_id = daemon.submit("j", "--", "sleep", "1000")
    pod = only(kubelet)
    kubelet.run(pod)
    daemon.wait_state(j="RUNNING")
    daemon.kill()
    daemon.start()
    daemon.wait_state(j="RUNNING")
    assert only(kubelet) == pod
    daemon.run("scheduler-cancel-job", job_id)
    eventually(lambda: nothing_left(kubelet))
    daemon.wait_state(j="CANCELED")


def test_a_pod_that_was_evicted_is_tried_again_and_says_why(
    daemon: Daemon, kubelet: Kubelet
) -> None:
    job_id = daemon.submit("j", "--", "sleep", "1000")
    pod = only(kubelet)
    kubelet.run(pod)
    daemon.wait_state(j="RUNNING")
    kubelet.refuses(pod, "Evicted", "The node was low on resource: memory.")
    eventually(lambda: "Evicted: The node was low" in daemon.job_of(job_id)["reason"])
    names = {pod}

    def again() -> bool:
        kubelet.step()
        names.update(pod["metadata"]["name"] for pod in kubelet.pods())
        return f"gs-{job_id[:8]}-a2-r0" in names

    eventually(again)


def test_where_nothing_is_pulled_a_job_goes_to_the_node_that_has_its_image(
    kubeconfig: Path, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    z, other, third = "docker.io/lab/z:1", f"other-{kubelet.node}", f"third-{kubelet.node}"
    file = tmp_path / "settings.toml"
    settings = SETTINGS.format(kubeconfig=kubeconfig, namespace=namespace)
    file.write_text(f'{settings}image_pull_policy = "Never"\n')
    daemon = Daemon(tmp_path / "state", "0", "--config", str(file))
    kubelet.set_images(kubelet.node, PAUSE, z, "docker.io/library/none:1")
    kubelet.add_node(other, [replace(card, uuid=f"{card.uuid}-there") for card in GPUS])
    kubelet.set_images(other, PAUSE, z)
    kubelet.add_node(third, ())
    kubelet.set_images(third, PAUSE)
    try:
        daemon.start()
        usual = daemon.submit("usual", "--disable_gpu_sharing", "--", "sleep", "1000")
        job_id = daemon.submit("j", "--image_name", "lab/x:1", "--", "sleep", "1000")
        said = "no node with GPUs has lab/x:1, and it may not be pulled"
        eventually(lambda: said in daemon.job_of(job_id)["reason"])
        kubelet.set_images(other, PAUSE, z, "docker.io/lab/x:1")
        eventually(lambda: len(kubelet.pods()) == 2)
        assert nodes(kubelet) == {usual[:8]: kubelet.node, job_id[:8]: other}
        without = "--num_gpus", "0", "--image_name"
        daemon.submit("anywhere but there", *without, "lab/z:1", "--", "sleep", "1000")
        eventually(lambda: {kubelet.node, other} in map(allowed, kubelet.pods()))
    finally:
        daemon.end()
        kubelet.remove_node(other)
        kubelet.remove_node(third)


def allowed(pod: dict[str, Any]) -> set[str]:
    """The nodes that its affinity allows."""
    affinity = pod["spec"].get("affinity", {"nodeAffinity": {}})["nodeAffinity"]
    (selector,) = affinity.values() or ({"nodeSelectorTerms": []},)
    fields = (field for term in selector["nodeSelectorTerms"] for field in term["matchFields"])
    return {value for field in fields for value in field["values"]}


def nodes(kubelet: Kubelet) -> dict[str, str]:
    """The nodes of pods, by the beginning of their jobs' ids."""
    return {
        pod["metadata"]["name"][3:11]: json.loads(pod["metadata"]["annotations"][ALLOC])["node"]
        for pod in kubelet.pods()
    }
