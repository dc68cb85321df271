"""The cluster of the tests is real: the features that other tests rely on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.kube.control import ControlPlane, Rule, token_file
from tests.support import eventually

LISTING: Rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


@contextmanager
def api(kubeconfig: Path) -> Iterator[client.CoreV1Api]:
    with config.new_client_from_config(str(kubeconfig)) as made:
        yield client.CoreV1Api(made)


def names(control: ControlPlane, kind: str, namespace: str) -> list[str]:
    found = control.get(kind, "--namespace", namespace)["items"]
    return [item["metadata"]["name"] for item in found]


def test_what_is_applied_is_there_also_when_the_api_server_was_killed(
    control: ControlPlane, namespace: str
) -> None:
    control.apply(POD, namespace)
    control.api.kill()
    control.start()
    assert names(control, "pods", namespace) == ["alone"]


def test_an_account_may_do_what_its_rules_say_and_nothing_else(
    control: ControlPlane, namespace: str
) -> None:
    control.namespace(f"{namespace}-other")
    path = control.account(namespace, "watcher", [LISTING])
    with api(path) as core:
        assert core.list_namespaced_pod(namespace).items == []
        for forbidden in (
            lambda: core.list_namespaced_pod(f"{namespace}-other"),
            lambda: core.list_namespaced_secret(namespace),
            lambda: core.delete_namespaced_pod("alone", namespace),
        ):
            with pytest.raises(client.ApiException) as caught:
                forbidden()
            assert caught.value.status == 403


def test_an_account_may_be_given_rules_for_the_whole_cluster(
    control: ControlPlane, namespace: str
) -> None:
    path = control.account(namespace, "watcher", cluster_rules=[LISTING])
    with api(path) as core:
        assert core.list_pod_for_all_namespaces(limit=1) is not None


def test_a_token_that_expired_or_is_nobodys_is_refused(
    control: ControlPlane, namespace: str
) -> None:
    path = control.account(namespace, "watcher", [LISTING])
    token_file(path).write_text("nobody's")
    with api(path) as core, pytest.raises(client.ApiException) as caught:
        core.list_namespaced_pod(namespace)
    assert caught.value.status == 401


@pytest.mark.usefixtures("controllers")
def test_with_controllers_who_loses_its_owner_goes(control: ControlPlane, namespace: str) -> None:
    control.apply(OWNER, namespace)
    owner = control.get("configmap", "owner", "--namespace", namespace)["metadata"]["uid"]
    control.apply(POD.replace("# owner", OWNED.format(uid=owner)), namespace)
    control.kubectl("delete", "configmap", "owner", "--namespace", namespace)
    eventually(lambda: names(control, "pods", namespace) == [])


@pytest.mark.usefixtures("controllers", "scheduler", "kwok")
def test_with_kwok_and_a_scheduler_a_pod_runs_on_a_node_that_is_played(
    control: ControlPlane, namespace: str
) -> None:
    control.apply(NODE)
    control.apply(POD, namespace)
    eventually(lambda: control.get("pod", "alone", "-n", namespace)["status"]["phase"] == "Running")
    control.kubectl("delete", "pod", "alone", "-n", namespace)
    control.kubectl("delete", "node", "played")
    assert names(control, "pods", namespace) == []


OWNER = "{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}"
OWNED = "ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]"
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: alone
  # owner
spec:
  containers: [{name: main, image: "none:1"}]
"""
NODE = """
apiVersion: v1
kind: Node
metadata:
  name: played
  annotations: {kwok.x-k8s.io/node: fake}
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "110"}
"""
