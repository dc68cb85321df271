"""Our port to Kubernetes on a real API server, under a real token of a service account."""

from __future__ import annotations

import json
import threading
import time
import uuid
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.cluster import LaunchTimeouts
from scheduler.clusters.kubernetes.manifests import PodTemplate, manifests
from scheduler.clusters.kubernetes.pods import KubePod
from scheduler.clusters.kubernetes.relay_sidecar import RelayTemplate
from scheduler.clusters.kubernetes.requests import Runs
from scheduler.core.errors import ConfigError, Unavailable
from scheduler.core.model import Event, Failure, Gpu, JobId, Launch, PodState, Remove, Share
from tests.kube.cluster import (
    CLUSTER_RULES,
    RULES,
    StartedCluster,
    launch_on,
    pods_of,
    started_cluster,
    wait_until,
    wait_until_over,
    with_fields,
)
from tests.kube.control import RBAC, ControlPlane
from tests.kube.kubelet import GPUS, Kubelet
from tests.kube.processes import free_port
from tests.support import eventually

NAMESPACE = "ports"
SHAPE = PodTemplate("scheduler:7070", NAMESPACE, "none:1")


@pytest.fixture
def made(kubeconfig: Path, kubelet: Kubelet) -> Iterator[StartedCluster]:
    with started_cluster(kubeconfig, NAMESPACE) as made:
        yield made


def running(made: StartedCluster, kubelet: Kubelet, **fields: Any) -> Launch:
    """A launch that runs."""
    launch = with_fields(launch_on(made), **fields)
    made.perform(launch)
    wait_until(made, kubelet, lambda seen: pods_of(launch, seen)[0].state is PodState.RUNNING)
    return launch


def name(launch: Launch, rank: int = 0) -> str:
    return pods.pod_name((launch.job_id, launch.attempt), rank)


# --- what became of a pod -----------------------------------------------------------------------


def test_a_pod_that_ends_tells_how(made: StartedCluster, kubelet: Kubelet) -> None:
    well, badly, full, refused = (running(made, kubelet) for _ in range(4))
    kubelet.end(name(well), 0)
    kubelet.end(name(badly), 3)
    kubelet.end(name(full), 1, message="torch.OutOfMemoryError: CUDA out of memory.")
    kubelet.refuses(name(refused), "UnexpectedAdmissionError", "Allocate failed")
    assert wait_until_over(made, well).state is PodState.SUCCEEDED
    assert wait_until_over(made, badly).reason == "exit code 3"
    assert wait_until_over(made, full).reason == Failure.OUT_OF_MEMORY
    assert wait_until_over(made, refused).reason == Failure.REFUSED


def test_a_job_is_known_by_the_address_of_its_pod_as_long_as_that_lives(
    made: StartedCluster, kubelet: Kubelet
) -> None:
    launch, other = running(made, kubelet), running(made, kubelet)
    kubelet.set_address(name(launch), "10.1.0.1")
    kubelet.set_address(name(other), "10.1.0.2")
    eventually(lambda: made.cluster.jobs_at("10.1.0.1") == {launch.job_id})
    eventually(lambda: made.cluster.jobs_at("10.1.0.2") == {other.job_id})
    assert made.cluster.jobs_at("::ffff:10.1.0.1") == {launch.job_id}
    assert made.cluster.jobs_at("10.1.0.3") == frozenset()
    kubelet.end(name(launch), 0)
    eventually(lambda: not made.cluster.jobs_at("10.1.0.1"))


def test_a_pod_that_somebody_deletes_is_gone_and_leaves_nothing(
    made: StartedCluster, kubelet: Kubelet
) -> None:
    launch = running(made, kubelet)
    kubelet.delete(name(launch))
    wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
    eventually(lambda: not kubelet.owners())


def test_a_run_on_a_node_that_does_not_answer_is_lost_when_its_time_is_over(
    kubeconfig: Path, kubelet: Kubelet
) -> None:
    now = [1.8e9]
    with started_cluster(kubeconfig, NAMESPACE, clock=lambda: now[0]) as made:
        launch = running(made, kubelet)
        kubelet.set_ready(kubelet.node, False)
        kubelet.delete(name(launch))
        eventually(lambda: pods_of(launch, made.observe())[0].state is not PodState.RUNNING)
        now[0] += 1e9
        assert wait_until_over(made, launch).said == f"node {kubelet.node} does not answer"


# --- a relay beside the training ----------------------------------------------------------------


RELAY = RelayTemplate("scheduler:1", "http://gateway:7071")


@pytest.mark.parametrize("version", ["v1.34.1", "v1.28.1"])
def test_a_run_is_over_when_its_training_is_and_its_pod_is_deleted_then(
    kubeconfig: Path, kubelet: Kubelet, version: str
) -> None:
    kubelet.set_version(kubelet.node, version)
    with started_cluster(kubeconfig, NAMESPACE, shape={"relay": RELAY}) as made:
        launch = launch_on(made)
        made.perform(launch)
        eventually(kubelet.pods)
        spec = kubelet.pods()[0]["spec"]
        sidecars = [each["restartPolicy"] for each in spec.get("initContainers", ())]
        names = [each["name"] for each in spec["containers"]]
        new = version == "v1.34.1"
        assert (sidecars, names) == (["Always"], ["main"]) if new else ([], ["main", "relay"])
        kubelet.run(name(launch))
        wait_until(made, kubelet, lambda seen: pods_of(launch, seen)[0].state is PodState.RUNNING)
        kubelet.end_training(name(launch), 85)
        ended = wait_until_over(made, launch)
        assert (ended.state, ended.exit_code) == (PodState.FAILED, 85)
        assert kubelet.pods()[0]["status"]["phase"] == "Running"
        made.perform(Remove(launch.job_id, 1))
        wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))


def test_a_relay_that_does_not_start_is_left_out_of_the_next_run(
    kubeconfig: Path, kubelet: Kubelet
) -> None:
    kubelet.set_version(kubelet.node, "v1.34.1")
    patience = LaunchTimeouts(1.0, 60.0)
    with started_cluster(kubeconfig, NAMESPACE, shape={"relay": RELAY}, timeouts=patience) as made:
        launch = launch_on(made)
        made.perform(launch)
        eventually(kubelet.pods)
        kubelet.bind(name(launch))
        kubelet.set_waiting(name(launch), "PodInitializing", "")
        kubelet.set_relay(name(launch), waiting={"reason": "ErrImagePull", "message": "no"})
        eventually(lambda: "deletionTimestamp" in kubelet.pods()[0]["metadata"])
        kubelet.step()
        ended = wait_until_over(made, launch)
        assert (ended.reason, "its relay does not start: ErrImagePull" in ended.said) == (
            Failure.LOST,
            True,
        )
        made.perform(Remove(launch.job_id, 1))
        wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
        again = replace(launch, attempt=2)
        made.perform(again)
        eventually(lambda: [each["metadata"]["name"] for each in kubelet.pods()] == [name(again)])
        assert "initContainers" not in kubelet.pods()[0]["spec"]
        told = {each["name"] for each in kubelet.pods()[0]["spec"]["containers"][0]["env"]}
        assert "KUBEPROFILER_RELAY" not in told


# --- what never comes to run --------------------------------------------------------------------


def test_an_image_that_cannot_be_had_is_given_up_with_the_reason(
    kubeconfig: Path, kubelet: Kubelet
) -> None:
    with started_cluster(kubeconfig, NAMESPACE, timeouts=LaunchTimeouts(1.0, 60.0)) as made:
        launch = launch_on(made)
        made.perform(launch)
        eventually(kubelet.pods)
        kubelet.bind(name(launch))
        kubelet.set_waiting(name(launch), "ImagePullBackOff", "pull access denied for none")
        eventually(lambda: "deletionTimestamp" in kubelet.pods()[0]["metadata"])
        assert pods_of(launch, made.observe())[0].alive
        kubelet.step()
        ended = wait_until_over(made, launch)
        said = "its image is not available from docker.io: ImagePullBackOff: pull access denied"
        assert said in ended.reason
        shown = [bool(pods_of(launch, look)) for look in made.told]
        assert shown == sorted(shown), "it was never missing, once it was there"
        made.perform(Remove(launch.job_id, 1))
        eventually(lambda: not pods_of(launch, made.observe()) and not kubelet.owners())


def test_the_end_of_a_pod_that_was_given_up_does_not_hide_the_reason(
    kubeconfig: Path, kubelet: Kubelet
) -> None:
    """A kubelet reports it as failed before it is gone, and says nothing of why."""
    with started_cluster(kubeconfig, NAMESPACE, timeouts=LaunchTimeouts(1.0, 60.0)) as made:
        launch = launch_on(made)
        made.perform(launch)
        eventually(kubelet.pods)
        kubelet.bind(name(launch))
        kubelet.set_waiting(name(launch), "CreateContainerConfigError", "failed to prepare subPath")
        eventually(lambda: "deletionTimestamp" in kubelet.pods()[0]["metadata"])
        kubelet.refuses(name(launch), "", "")
        mirror = made.cluster._pods
        eventually(lambda: (seen := mirror.get(name(launch))) and seen.status.phase == "Failed")
        assert pods_of(launch, made.observe())[0].alive
        kubelet.step()
        assert "failed to prepare subPath" in wait_until_over(made, launch).reason
        ends = {pod.reason for look in made.told for pod in pods_of(launch, look) if not pod.alive}
        assert Failure.LOST not in ends, "then it would be tried again"


def test_a_pod_that_is_on_its_way_says_what_its_node_warned_of(
    kubeconfig: Path, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.observation.SILENT_SECONDS", 0.0)
    monkeypatch.setattr("scheduler.clusters.kubernetes.observation.ASK_SECONDS", 0.5)
    with started_cluster(kubeconfig, NAMESPACE) as made:
        launch = launch_on(made)
        made.perform(launch)
        eventually(kubelet.pods)
        kubelet.bind(name(launch))
        kubelet.warn(name(launch), "FailedMount", "hostPath type check failed: /nowhere")
        words = "about its pod: FailedMount: hostPath type check failed: /nowhere"
        eventually(
            lambda: any(
                words in pod.reason for look in made.told[-1:] for pod in pods_of(launch, look)
            )
        )
        assert pods_of(launch, made.observe())[0].state is PodState.PENDING
        wait_until(made, kubelet, lambda seen: pods_of(launch, seen)[0].state is PodState.RUNNING)
        assert pods_of(launch, made.observe())[0].reason == ""


def test_a_pod_that_does_not_start_is_lost_with_what_its_node_says(
    kubeconfig: Path, kubelet: Kubelet
) -> None:
    with started_cluster(kubeconfig, NAMESPACE, timeouts=LaunchTimeouts(60, 2.0)) as made:
        launch = launch_on(made)
        made.perform(launch)
        eventually(kubelet.pods)
        kubelet.bind(name(launch))
        kubelet.warn(name(launch), "FailedMount", "hostPath type check failed: /nowhere")
        eventually(lambda: "deletionTimestamp" in kubelet.pods()[0]["metadata"])
        kubelet.step()
        ended = wait_until_over(made, launch)
        assert ended.reason == Failure.LOST
        assert "FailedMount: hostPath type check failed: /nowhere" in ended.said


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"env": (("A:B", "x"),)}, "A:B"),
        (
            {"ports": ((22, 80),)},
            "--port_mapping 22:80: this cluster opens only the ports 30000-32767",
        ),
        ({"snapshots_dir": "/snapshots"}, "--snapshots_dir /snapshots: this cluster has no volume"),
    ],
)
def test_what_can_never_be_created_is_the_jobs_own_fault(
    made: StartedCluster, fields: dict[str, Any], words: str
) -> None:
    launch = launch_on(made)
    made.perform(with_fields(launch, **fields))
    ended = wait_until_over(made, launch)
    assert ended.reason.startswith("cannot start: ")
    assert words in ended.reason


def test_a_card_that_has_left_meanwhile_is_not_the_jobs_fault(made: StartedCluster) -> None:
    launch = launch_on(made)
    (share,) = launch.shares
    made.perform(replace(launch, shares=(replace(share, gpu="GPU-9"),)))
    ended = wait_until_over(made, launch)
    assert (ended.reason, ended.said[:9]) == (Failure.REFUSED, "GPU GPU-9")


def test_a_pod_that_finds_no_place_in_time_was_refused(kubeconfig: Path, kubelet: Kubelet) -> None:
    with started_cluster(kubeconfig, NAMESPACE, timeouts=LaunchTimeouts(60, 2.0)) as made:
        launch = launch_on(made)
        made.perform(launch)
        assert wait_until_over(made, launch).reason == Failure.REFUSED


def test_a_port_that_somebody_else_has_is_told_and_costs_no_retry(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.cluster.REFUSED_SECONDS", 0.0)
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31_348}]}
    theirs = {"kind": "Service", "metadata": {"name": "theirs"}, "spec": spec}
    control.apply({"apiVersion": "v1", **theirs}, NAMESPACE)
    launch = with_fields(launch_on(made), ports=((31_348, 6006),))
    made.perform(launch)
    ended = wait_until_over(made, launch)
    assert ended.reason == Failure.REFUSED
    assert "31348: provided port is already allocated" in ended.said


def test_the_next_attempt_has_the_ports_of_the_last_one_at_once(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane
) -> None:
    """Although there is no garbage collector here."""
    launch = running(made, kubelet, ports=((31_349, 6006),))
    made.perform(Remove(launch.job_id, 1))
    wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
    again = replace(launch, attempt=2)
    made.perform(again)
    wait_until(made, kubelet, lambda seen: pods_of(again, seen)[0].state is PodState.RUNNING)
    (service,) = control.get("services", "--namespace", NAMESPACE)["items"]
    assert service["metadata"]["name"] == f"{pods.run_name((launch.job_id, 2))}-ports"


def test_a_quota_that_refuses_is_told_and_costs_no_retry(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.cluster.REFUSED_SECONDS", 0.0)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    hard = {"hard": {"pods": "0"}}
    control.apply({**quota, "spec": hard}, NAMESPACE)
    patch = json.dumps({"status": {**hard, "used": {"pods": "0"}}})  # as its controller does
    words = ("--namespace", NAMESPACE, "--subresource", "status", "--type", "merge")
    control.kubectl("patch", "resourcequota", "none", *words, "--patch", patch)
    try:
        launch = launch_on(made)
        made.perform(launch)
        ended = wait_until_over(made, launch)
        assert ended.reason == Failure.REFUSED
        assert "forbidden" in ended.said
        assert "quota" in ended.said
    finally:
        control.kubectl("delete", "resourcequota", "none", "--namespace", NAMESPACE)


def test_a_namespace_that_is_not_there_is_told(
    control: ControlPlane, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.cluster.REFUSED_SECONDS", 0.0)
    with started_cluster(control.admin, "nowhere") as made:
        made.namespace = NAMESPACE
        launch = launch_on(made)
        made.perform(launch)
        assert 'namespaces "nowhere" not found' in wait_until_over(made, launch).said


# --- names --------------------------------------------------------------------------------------


def test_a_name_that_another_job_has_is_left_to_it(
    made: StartedCluster, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.cluster.REFUSED_SECONDS", 0.0)
    first = running(made, kubelet)
    alike = replace(first, job_id=JobId(first.job_id[:8] + str(uuid.uuid4())[8:]))
    made.perform(alike)
    assert "is taken by another job" in wait_until_over(made, alike).said
    made.perform(Remove(alike.job_id, 1))
    eventually(lambda: not pods_of(alike, made.observe()))
    assert pods_of(first, made.observe())[0].state is PodState.RUNNING
    assert len(kubelet.owners()) == 1


def test_what_another_launch_left_under_its_name_has_to_leave(
    made: StartedCluster, kubelet: Kubelet, kubeconfig: Path
) -> None:
    nodes, launch = made.observe().nodes, launch_on(made)
    made.cluster.stop()
    runs, seen = Runs(KubernetesClient(kubeconfig, 5.0), NAMESPACE), list[bytes]()
    older = manifests(replace(launch, epochs_done=1), nodes, SHAPE)
    runs.create(older, seen.append)
    runs.create(older, seen.append)  # the same launch, so it exists already
    for left in ("configmaps", "pods"):
        with pytest.raises(ApiError, match="belongs to another launch") as refusal:
            runs.create(manifests(launch, nodes, SHAPE), seen.append)
        assert refusal.value.passing, left
        kubelet.step()
    runs.create(manifests(launch, nodes, SHAPE), seen.append)
    first, again, now = (msgspec.json.decode(each, type=KubePod).metadata.uid for each in seen)
    assert first == again != now


def test_what_a_user_keeps_secret_is_in_no_object_but_a_secret_that_the_daemon_cannot_read(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane, kubeconfig: Path
) -> None:
    launch = running(made, kubelet, env=(("PASSWORD", "pass+word"),))
    selector = ("--selector", pods.SELECTOR, "--namespace", NAMESPACE)
    shown = json.dumps(control.get("pods,configmaps,services", *selector))
    assert launch.job_id in shown
    assert "pass+word" not in shown
    assert launch.token not in shown
    (secret,) = control.get("secrets", *selector)["items"]
    assert b64decode(secret["data"]["PASSWORD"]) == b"pass+word"
    (pod,) = kubelet.pods()
    (source,) = pod["spec"]["containers"][0]["envFrom"]
    assert source["secretRef"]["name"] == secret["metadata"]["name"]
    daemon = KubernetesClient(kubeconfig, 5.0)
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret['metadata']['name']}"
    for verb in ("GET", "PUT", "DELETE"):
        with pytest.raises(ApiError, match="is forbidden"):
            daemon.call(verb, path, body=secret if verb == "PUT" else None)


# --- daemons that come later -------------------------------------------------------------------


def test_another_daemon_knows_all_runs_by_their_labels(
    made: StartedCluster, kubelet: Kubelet, kubeconfig: Path
) -> None:
    launches = [running(made, kubelet) for _ in range(3)]
    made.cluster.stop()
    with started_cluster(kubeconfig, NAMESPACE) as second:
        seen = second.observe()
        assert {pod.job_id: pod.shares for pod in seen.pods} == {
            launch.job_id: launch.shares for launch in launches
        }
        second.perform(launches[0])
        second.perform(Remove(launches[1].job_id, 1))
        wait_until(second, kubelet, lambda seen: len(seen.pods) == 2)
        assert len(kubelet.pods()) == 2


def test_it_tells_of_every_change_without_being_asked(
    made: StartedCluster, kubelet: Kubelet
) -> None:
    launch = running(made, kubelet)
    eventually(lambda: made.told and pods_of(launch, made.told[-1]))
    kubelet.end(name(launch), 0)
    eventually(lambda: pods_of(launch, made.told[-1])[0].state is PodState.SUCCEEDED)
    assert [seen.at for seen in made.told] == sorted(seen.at for seen in made.told)


def test_it_stops_without_waiting_for_what_could_be_told(
    kubeconfig: Path, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.cluster.GLANCE_SECONDS", 300.0)
    with started_cluster(kubeconfig, NAMESPACE) as made:
        eventually(lambda: made.told)
        began_at = time.monotonic()
    assert time.monotonic() - began_at < 300


def test_a_bug_of_whoever_is_told_is_logged_and_the_next_is_told(
    kubeconfig: Path, kubelet: Kubelet
) -> None:
    made, bugs = StartedCluster(kubeconfig, NAMESPACE), [RuntimeError("a database that is locked")]

    def put(event: Event) -> None:
        if bugs:
            raise bugs.pop()
        made.put(event)

    with structlog.testing.capture_logs() as logs:
        made.cluster.start(put)
        try:
            eventually(lambda: made.told)
        finally:
            made.cluster.stop()
    assert [line["event"] for line in logs] == ["bug"]


def test_a_node_that_lies_has_no_cards_and_is_told_of_once(
    made: StartedCluster, kubelet: Kubelet
) -> None:
    with structlog.testing.capture_logs() as logs:
        kubelet.annotate(kubelet.node, **{pods.GPUS: "nonsense"})
        eventually(lambda: not made.observe().nodes[0].gpus)
        kubelet.annotate(kubelet.node, **{pods.GPUS: pods.gpus_annotation(GPUS)})
        eventually(lambda: made.observe().nodes[0].gpus == GPUS)
    said = [line for line in logs if line["event"] == "node_not_understood"]
    assert len(said) == 1
    assert kubelet.node in said[0]["error"]


# --- gangs, and what else there is --------------------------------------------------------------


def test_a_gang_is_a_pod_for_each_node_under_one_service(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane
) -> None:
    other = f"second-{kubelet.node}"
    kubelet.add_node(other, (Gpu("GPU-8", 0, "t4", 16_384),))
    try:
        eventually(lambda: len(made.observe().nodes) == 2)
        launch = launch_on(made)
        shares = (*launch.shares, Share(other, "GPU-8", 2000))
        gang = replace(launch, shares=tuple(sorted(shares)))
        made.perform(gang)
        seen = wait_until(
            made,
            kubelet,
            lambda seen: [pod.state for pod in pods_of(gang, seen)] == ["running"] * 2,
        )
        assert sorted(pod.rank for pod in pods_of(gang, seen)) == [0, 1]
        held = {share for pod in pods_of(gang, seen) for share in pod.shares}
        assert held == set(gang.shares)
        (service,) = control.get("services", "--namespace", NAMESPACE)["items"]
        assert service["spec"]["clusterIP"] == "None"
        made.perform(Remove(gang.job_id, 1))
        wait_until(made, kubelet, lambda seen: not pods_of(gang, seen))
    finally:
        kubelet.remove_node(other)
        control.kubectl("delete", "services", "--all", "--namespace", NAMESPACE)


def test_a_run_that_was_removed_leaves_nothing_where_garbage_is_collected(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane, controllers: None
) -> None:
    launch = running(made, kubelet, ports=((31_346, 6006),))
    made.perform(Remove(launch.job_id, 1))
    wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
    selector = ("--selector", pods.SELECTOR, "--namespace", NAMESPACE)
    eventually(lambda: not control.get("pods,configmaps,secrets,services", *selector)["items"])


def test_who_deletes_the_owner_ends_the_run(
    made: StartedCluster, kubelet: Kubelet, control: ControlPlane, controllers: None
) -> None:
    launch = running(made, kubelet)
    owner = pods.run_name((launch.job_id, 1))
    control.kubectl("delete", "configmap", owner, "--namespace", NAMESPACE)
    wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))


# --- without permissions ------------------------------------------------------------------------


NEEDED = [
    (verb, resource)
    for rules in (RULES, CLUSTER_RULES)
    for rule in rules
    for resource in rule["resources"]
    for verb in rule["verbs"]
]
USUAL = [
    (verb, resource)
    for verb, resource in NEEDED
    if verb in ("list", "watch", "create", "delete")
    and resource in ("pods", "configmaps", "secrets", "nodes")
]


@contextmanager
def without(verb: str, resource: str, control: ControlPlane) -> Iterator[None]:
    """The daemon may not do this to such resources meanwhile."""

    def grant(missing: str) -> None:
        for kind, title, rules in (
            ("Role", "scheduler", RULES),
            ("ClusterRole", f"{NAMESPACE}-scheduler", CLUSTER_RULES),
        ):
            told = [
                {**rule, "verbs": [each for each in rule["verbs"] if each != missing]}
                if resource in rule["resources"]
                else rule
                for rule in rules
            ]
            left = [rule for rule in told if rule["verbs"]]
            made = {"apiVersion": RBAC, "kind": kind, "metadata": {"name": title}, "rules": left}
            control.apply(made, NAMESPACE)

    grant(missing=verb)
    try:
        yield
    finally:
        grant(missing="")


@pytest.mark.parametrize(("verb", "resource"), USUAL)
def test_a_verb_that_is_missing_is_named(
    verb: str, resource: str, kubeconfig: Path, kubelet: Kubelet, control: ControlPlane
) -> None:
    with (
        without(verb, resource, control),
        structlog.testing.capture_logs() as logs,
        started_cluster(kubeconfig, NAMESPACE) as made,
    ):
        if verb == "create":
            made.perform(launch_on(made))
        if verb == "delete":
            launch = running(made, kubelet)
            made.perform(Remove(launch.job_id, 1))
            if resource == "configmaps":
                wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
        words = f'cannot {verb} resource "{resource}"'
        eventually(lambda: any(words in str(line.get("error")) for line in logs))


def test_pods_that_are_gone_are_not_shown_if_their_configmap_stays(
    kubeconfig: Path, kubelet: Kubelet, control: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run is removed before its launch has been answered. This is told at once, not
    with the next list."""
    removed, call = threading.Event(), KubernetesClient.call

    def answer_late(self: KubernetesClient, verb: str, path: str, *args: Any, **more: Any) -> bytes:
        answer = call(self, verb, path, *args, **more)
        if verb == "POST" and path.endswith("/pods"):
            removed.wait()
        return answer

    monkeypatch.setattr(KubernetesClient, "call", answer_late)
    with (
        without("delete", "configmaps", control),
        started_cluster(kubeconfig, NAMESPACE, list_every_seconds=300.0) as made,
    ):
        launch = running(made, kubelet)
        made.perform(Remove(launch.job_id, 1))
        removed.set()
        wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
        eventually(lambda: not pods_of(launch, made.told[-1]))


# --- where to find it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read"),
        ("[", "is not a valid kubeconfig"),
        ("just words", "is not a valid kubeconfig"),
        ("", "is not a valid kubeconfig"),
        ('{"apiVersion": "v1", "kind": "Config"}', "is not a valid kubeconfig"),
        ('{"current-context": "x", "contexts": []}', "is not a valid kubeconfig"),
        (
            '{"current-context": "x", "contexts": 7, "clusters": {}, "users": 1}',
            "is not a valid kubeconfig",
        ),
    ],
)
def test_a_kubeconfig_that_is_none_is_named_in_one_line(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "mine"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words) as refusal:
        KubernetesClient(path, 1.0)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_server_that_is_not_there_is_told_of_once(
    control: ControlPlane, kubelet: Kubelet, tmp_path: Path
) -> None:
    told = json.loads(control.admin.read_text())
    told["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    (tmp_path / "config").write_text(json.dumps(told))
    with (
        structlog.testing.capture_logs() as logs,
        started_cluster(tmp_path / "config", NAMESPACE) as made,
    ):
        eventually(lambda: len(logs) >= 3)
        with pytest.raises(Unavailable):
            made.cluster.observe()
    assert {line["event"] for line in logs} == {"cluster_does_not_answer"}
