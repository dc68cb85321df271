"""The daemon itself on a real API server, from a command to a pod and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.kubelet import Kubelet
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


@pytest.fixture
def daemon(kubeconfig: Path, namespace: str, kubelet: Kubelet, tmp_path: Path) -> Iterator[Daemon]:
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(kubeconfig=kubeconfig, namespace=namespace))
    daemon = Daemon(tmp_path / "state", "0", "--config", str(file))
    yield daemon.start()
    daemon.end()


def only(kubelet: Kubelet) -> str:
    """The pod, as soon as there is one."""
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
    kubelet.runs(pod)
    daemon.wait_state(j="RUNNING")
    kubelet.ends(pod, 0)
    daemon.wait_state(j="FINISHED")
    eventually(lambda: nothing_left(kubelet))


def test_a_daemon_that_was_killed_finds_its_pods_and_a_cancelled_job_leaves_none(
    daemon: Daemon, kubelet: Kubelet
) -> None:
    job_id = daemon.submit("j", "--", "sleep", "1000")
    pod = only(kubelet)
    kubelet.runs(pod)
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
    kubelet.runs(pod)
    daemon.wait_state(j="RUNNING")
    kubelet.refuses(pod, "Evicted", "The node was low on resource: memory.")
    eventually(lambda: "Evicted: The node was low" in daemon.job_of(job_id)["reason"])
    names = {pod}

    def again() -> bool:
        kubelet.step()
        names.update(pod["metadata"]["name"] for pod in kubelet.pods())
        return f"gs-{job_id[:8]}-a2-r0" in names

    eventually(again)
