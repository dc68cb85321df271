"""Agents with tokens that a real API server has issued to their pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from scheduler.access.agent_tokens import AUDIENCE
from scheduler.access.reviewed_tokens import TokenOwner
from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.holders.holder import Hold
from scheduler.clusters.kubernetes.token_review import review
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.kube.control import ControlPlane
from tests.kube.kubelet import Kubelet
from tests.serving import DENIED, refused
from tests.support import Daemon

ACCOUNT = "agents"


@pytest.fixture
def token(control: ControlPlane, namespace: str, kubelet: Kubelet) -> str:
    """That of an agent in a pod on the kubelet's node."""
    control.account(namespace, ACCOUNT)
    return token_of_pod(control, namespace, ACCOUNT, kubelet.node)


def token_of_pod(control: ControlPlane, namespace: str, account: str, node: str) -> str:
    """As the kubelet requests it for a projected volume."""
    name = f"pod-of-{account}"
    spec = {
        "serviceAccountName": account,
        "nodeName": node,
        "containers": [{"name": "agent", "image": "none:1"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    control.apply(pod, namespace)
    uid = control.get("pod", name, "--namespace", namespace)["metadata"]["uid"]
    bound = f"--bound-object-kind=Pod --bound-object-name={name} --bound-object-uid={uid}".split()
    words = (f"--audience={AUDIENCE}", f"--namespace={namespace}")
    return control.kubectl("create", "token", account, *bound, *words).strip()


@pytest.fixture
def daemon(kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[Daemon]:
    settings = tmp_path / "scheduler.toml"
    settings.write_text(f"""
        cluster = "kubernetes"
        [kubernetes]
        kubeconfig = "{kubeconfig}"
        namespace = "{namespace}"
        service = "127.0.0.1:7070"
        agent_account = "{namespace}/{ACCOUNT}"
    """)
    made = Daemon(tmp_path / "state", "0", "--config", str(settings)).start()
    yield made
    made.end()


def report(daemon: Daemon, node: str, token: str) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        pb_grpc.AgentsStub(channel).ReportNode(
            pb.AgentReport(node=node, keeps="watchdog"),
            metadata=[("authorization", f"Bearer {token}")],
            timeout=10,
        )


def test_kubernetes_says_on_which_node_the_pod_with_a_token_is(
    control: ControlPlane, namespace: str, kubeconfig: Path, kubelet: Kubelet, token: str
) -> None:
    server, name = KubernetesClient(kubeconfig, 5.0), f"system:serviceaccount:{namespace}:{ACCOUNT}"
    assert review(server, AUDIENCE, token) == TokenOwner(name, kubelet.node)
    unbound = control.token(namespace, ACCOUNT, AUDIENCE)
    assert review(server, AUDIENCE, unbound) == TokenOwner(name)


def test_an_agent_reports_its_own_node_and_is_no_user(
    control: ControlPlane,
    namespace: str,
    daemon: Daemon,
    kubelet: Kubelet,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report(daemon, kubelet.node, token)
    report(daemon, Hold(kubelet.node, 3, 1).name, token)
    for other in ("other", Hold("other", 3, 1).name):
        with refused(DENIED, f"of the agent on '{kubelet.node}', which may not report '{other}'"):
            report(daemon, other, token)
    with refused(DENIED, "this token is not bound to a pod on a node"):
        report(daemon, kubelet.node, control.token(namespace, ACCOUNT, AUDIENCE))
    with refused(DENIED, f"is not the service account of agents ({namespace}/{ACCOUNT})"):
        of_job = token_of_pod(control, namespace, "default", kubelet.node)
        report(daemon, kubelet.node, of_job)
    with refused(grpc.StatusCode.UNAUTHENTICATED, "this is not a token of a node"):
        report(daemon, kubelet.node, daemon.token("agent"))
    monkeypatch.setenv("SCHEDULER_TOKEN", token)
    done = daemon.run("scheduler-state")
    assert (done.returncode, "not issued for the audience epoch-scheduler" in done.stderr) == (
        4,
        True,
    )
