"""The parts of deploy/kubernetes agree with each other, with the image, and with the settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.holders import holder as holding
from scheduler.clusters.kubernetes.holders.holder import TOKEN, Hold, HolderTemplate
from scheduler.clusters.kubernetes.permissions import (
    FOR_HOLDERS,
    FOR_MIXED_NODES,
    FOR_THE_LEASE,
    IN_CLUSTER,
    IN_NAMESPACE,
)
from scheduler.daemon.config import OFF, Config, listen_address, load
from scheduler.daemon.program_flags import read_version
from scheduler.gateway.command import LOOPBACK
from tests.deploy.manifests import DAEMON, FOLDERS, JOBS, container, containers, manifests, one

DOCKERFILE = (Path(__file__).parent.parent.parent / "deploy" / "Dockerfile").read_text()

NAME = "kubernetes.io/metadata.name"  # the label that every namespace has

pytestmark = [
    pytest.mark.kube,  # kubectl must be there
    pytest.mark.parametrize("folder", FOLDERS),
]


@pytest.fixture
def pod(folder: str) -> dict[str, Any]:
    template: dict[str, Any] = one(folder, "Deployment")["spec"]["template"]
    return template


@pytest.fixture
def config(folder: str, tmp_path: Path) -> Config:
    """The daemon's settings as the container would have them."""
    file = tmp_path / "epoch-scheduler.toml"
    file.write_text(one(folder, "ConfigMap")["data"]["epoch-scheduler.toml"])
    daemon = container(one(folder, "Deployment"))
    environment = {each["name"]: each["value"] for each in daemon.get("env", ())}
    return load(file, environment, {})


def daemon_of(pod: dict[str, Any]) -> dict[str, Any]:
    return container({"spec": {"template": pod}})


def gateways_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """One or none."""
    return [each for each in pod["spec"]["containers"] if each["name"] == "gateway"]


def test_there_is_one_daemon_and_never_two(folder: str) -> None:
    spec = one(folder, "Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


def test_whatever_selects_pods_selects_those_that_it_is_for(
    folder: str, pod: dict[str, Any]
) -> None:
    for manifest in manifests(folder):
        spec, labels = manifest.get("spec", {}), pod["metadata"]["labels"]
        match manifest["kind"]:
            case "Deployment" | "DaemonSet":
                selector = spec["selector"]["matchLabels"]
                labels = spec["template"]["metadata"]["labels"]
            case "Service":
                selector = spec["selector"]
            case "NetworkPolicy":
                selector = spec["podSelector"]["matchLabels"]
            case _:
                continue
        assert selector.items() <= labels.items(), manifest["metadata"]


def test_agents_report_to_the_daemon_by_the_account_that_it_hears(
    folder: str, config: Config
) -> None:
    for manifest in manifests(folder):
        if manifest["kind"] == "DaemonSet":
            (container,) = containers(manifest)
            assert container["command"] == ["scheduler-agent"]
            assert container["args"][:2] == ["--server", config.kubernetes.service]
            pod, namespace = manifest["spec"]["template"]["spec"], manifest["metadata"]["namespace"]
            assert config.kubernetes.agent_account == f"{namespace}/{pod['serviceAccountName']}"
            dress = HolderTemplate(container["image"], config.kubernetes.service)
            assert pod["serviceAccountName"] == dress.account == config.kubernetes.holder_account
            holder = holding.manifest(Hold("n1", 0, 1), dress)["spec"]
            assert pod["volumes"] == holder["volumes"]
            (mount,) = container["volumeMounts"]
            assert [mount] == holder["containers"][0]["volumeMounts"]
            variables = {each["name"]: each.get("value") for each in container["env"]}
            assert variables["SCHEDULER_TOKEN_FILE"] == f"{mount['mountPath']}/{TOKEN}"


def test_every_name_that_is_referred_to_is_there(folder: str, pod: dict[str, Any]) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests(folder)}
    namespaces = {each["metadata"].get("namespace", DAEMON) for each in manifests(folder)}
    wanted = {("Namespace", namespace) for namespace in namespaces}
    wanted.add(("ServiceAccount", pod["spec"]["serviceAccountName"]))
    for volume in pod["spec"]["volumes"]:
        if "configMap" in volume:
            wanted.add(("ConfigMap", volume["configMap"]["name"]))
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            wanted.add(("PersistentVolumeClaim", claim))
    for manifest in manifests(folder):
        if reference := manifest.get("roleRef"):
            wanted.add((reference["kind"], reference["name"]))
            wanted |= {(who["kind"], who["name"]) for who in manifest["subjects"]}
    assert wanted <= there


def test_every_port_that_is_named_is_one_that_the_daemon_listens_on(
    folder: str, pod: dict[str, Any], config: Config
) -> None:
    daemon = daemon_of(pod)
    listening = {"grpc": listen_address(config.listen)[1]}
    if config.tls.listen:
        listening["tls"] = listen_address(config.tls.listen)[1]
    if config.legacy.listen:
        listening["legacy"] = listen_address(config.legacy.listen)[1]
    if config.metrics.token_file:
        listening["metrics"] = listen_address(config.metrics.listen)[1]
    assert {each["name"]: each["containerPort"] for each in daemon["ports"]} == listening
    for gateway in gateways_of(pod):
        (port,) = gateway["ports"]
        flags = dict(flag.split("=", 1) for flag in gateway["args"])
        assert listen_address(flags["--listen"])[1] == port["containerPort"]
        assert listen_address(flags["--server"]) == ("127.0.0.1", listening["grpc"])
        listening[port["name"]] = port["containerPort"]
    for manifest in manifests(folder):
        if manifest["kind"] == "Service":
            assert {each["targetPort"] for each in manifest["spec"]["ports"]} <= set(listening)
    admitted = one(folder, "NetworkPolicy")["spec"]["ingress"]
    assert {each["port"] for rule in admitted for each in rule["ports"]} == set(listening)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert daemon[probe]["grpc"]["port"] == listening["grpc"]  # probes cannot do TLS


def test_a_pod_that_has_nothing_to_do_with_us_can_only_call_the_encrypted_port(
    folder: str, config: Config
) -> None:
    ours = {pods.MANAGED_BY: pods.OURS}
    people: tuple[dict[str, str], dict[str, str]]
    prometheus: tuple[dict[str, str], dict[str, str]]
    jobs, agents, people = (
        (ours, {NAME: JOBS}),
        ({"app.kubernetes.io/name": f"{DAEMON}-agent"}, {NAME: f"{DAEMON}-agents"}),
        ({}, {NAME: "lab", "epoch-scheduler.io/people": "true"}),
    )
    prometheus = {}, {NAME: "monitoring", "epoch-scheduler.io/metrics": "true"}
    holders = ours, {NAME: config.kubernetes.holder_namespace}
    held = bool(config.kubernetes.holder_image)
    for port, admitted in (
        ("grpc", [jobs, people, *([agents, holders] if held else [])]),
        ("legacy", [jobs] if config.legacy.listen else []),
        ("metrics", [prometheus] if config.metrics.token_file else []),
    ):
        for pod in admitted:
            assert may_call(folder, port, *pod), (port, pod)
        for pod in (({}, {NAME: JOBS}), (ours, {NAME: "lab"}), ({}, {NAME: "kube-system"})):
            assert not may_call(folder, port, *pod), (port, pod)
    assert may_call(folder, "tls", {}, {NAME: "lab"}) is bool(config.tls.listen)
    pages = bool(gateways_of(one(folder, "Deployment")["spec"]["template"]))
    assert may_call(folder, "https", {}, {NAME: "lab"}) is pages


def may_call(folder: str, port: str, pod: dict[str, str], namespace: dict[str, str]) -> bool:
    """As a network reads the policy: any rule, any peer, both selectors."""
    return any(
        not rule.get("from")
        or any(
            _selects(peer.get("podSelector", {}), pod)
            and _selects(peer["namespaceSelector"], namespace)
            for peer in rule["from"]
        )
        for rule in one(folder, "NetworkPolicy")["spec"]["ingress"]
        if port in {each["port"] for each in rule["ports"]}
    )


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )


def test_the_settings_fit_what_is_installed(
    folder: str, pod: dict[str, Any], config: Config
) -> None:
    daemon = daemon_of(pod)
    assert config.cluster == "kubernetes"
    assert config.kubernetes.namespace == JOBS
    service = one(folder, "Service")
    inside, (port,) = service["metadata"], service["spec"]["ports"]
    reached = f"{inside['name']}.{inside['namespace']}.svc:{port['port']}"
    assert config.kubernetes.service == reached
    if config.legacy.listen:
        service = one(folder, "Service", f"{DAEMON}-legacy")
        inside, (port,) = service["metadata"], service["spec"]["ports"]
        reached = f"{inside['name']}.{inside['namespace']}.svc:{port['port']}"
        assert config.legacy.service == reached
    assert one(folder, "PriorityClass", config.kubernetes.priority_class)
    mounted = {each["mountPath"] for each in daemon["volumeMounts"]}
    assert {str(config.state_dir), "/etc/epoch-scheduler.toml"} <= mounted
    files = config.tls.certificate, config.tls.key, config.metrics.token_file
    for file in filter(None, files):
        assert str(file.parent) in mounted


def test_the_daemon_is_the_image_s_user_and_may_nothing(pod: dict[str, Any]) -> None:
    found = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M)
    assert found
    everybody = pod["spec"]["securityContext"]
    assert (everybody["runAsUser"], everybody["runAsGroup"]) == tuple(map(int, found.groups()))
    for each in pod["spec"]["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_gateway_sees_nothing_of_the_daemon_and_takes_its_place(
    pod: dict[str, Any], config: Config
) -> None:
    for gateway in gateways_of(pod):
        assert config.gateway.listen == OFF
        assert gateway["image"] == daemon_of(pod)["image"]
        assert "env" not in gateway
        mount, series = gateway["volumeMounts"]
        shared = {each["name"] for each in daemon_of(pod)["volumeMounts"]}
        assert not shared & {mount["name"], series["name"]}
        flags = dict(flag.split("=", 1) for flag in gateway["args"])
        for flag in ("--certificate", "--key"):
            assert flags[flag].startswith(f"{mount['mountPath']}/")
        assert flags["--folder"] == series["mountPath"]
        for probe in ("readinessProbe", "livenessProbe"):
            assert gateway[probe]["httpGet"]["scheme"] == "HTTPS"
            (host,) = gateway[probe]["httpGet"]["httpHeaders"]
            assert host["value"] in LOOPBACK


def test_the_image_is_of_this_version(pod: dict[str, Any]) -> None:
    daemon = daemon_of(pod)
    name, _, tag = daemon["image"].rpartition(":")
    assert name.rpartition("/")[2] == "epoch-scheduler"
    assert tag == read_version()
    assert f"epoch-scheduler:{read_version()}" in DOCKERFILE


def test_the_daemon_may_do_just_what_is_in_the_one_list(folder: str, config: Config) -> None:
    """The tests' daemons run under the same rules: see tests/kube/cluster.py."""
    role, everywhere = one(folder, "Role"), one(folder, "ClusterRole")
    assert role["metadata"]["namespace"] == JOBS
    assert role["rules"] == [rule.written() for rule in (*IN_NAMESPACE, *FOR_THE_LEASE)]
    assert everywhere["rules"] == [rule.written() for rule in IN_CLUSTER]
    if config.kubernetes.holder_image:
        role = one(folder, "Role", f"{DAEMON}-holders")
        assert role["metadata"]["namespace"] == config.kubernetes.holder_namespace
        assert role["rules"] == [rule.written() for rule in FOR_HOLDERS]
        mixed = one(folder, "ClusterRole", f"{DAEMON}-mixed-nodes")
        assert mixed["rules"] == [rule.written() for rule in FOR_MIXED_NODES]


def test_holders_are_of_the_same_image_and_stay_when_others_want_cards(
    folder: str, pod: dict[str, Any], config: Config
) -> None:
    wanted = config.kubernetes
    if wanted.holder_image:
        daemon = daemon_of(pod)
        assert wanted.holder_image == daemon["image"]
        assert one(folder, "PriorityClass", wanted.holder_priority_class)["value"] > 0
        (agents,) = (each for each in manifests(folder) if each["kind"] == "DaemonSet")
        assert wanted.holder_namespace == agents["metadata"]["namespace"]


def test_packages_are_fetched_by_the_same_image(pod: dict[str, Any], config: Config) -> None:
    assert config.kubernetes.code_image in ("", daemon_of(pod)["image"])


def test_relays_are_of_the_same_image_and_reach_the_gateway(
    folder: str, pod: dict[str, Any], config: Config
) -> None:
    wanted = config.kubernetes
    assert bool(wanted.relay_image) is bool(gateways_of(pod))
    if not wanted.relay_image:
        return
    daemon, (gateway,) = daemon_of(pod), gateways_of(pod)
    assert wanted.relay_image == daemon["image"]
    address = urlsplit(wanted.relay_gateway)
    assert f"--host={address.hostname}" in gateway["args"]
    name, namespace, _ = str(address.hostname).split(".")
    (port,) = one(folder, "Service", name)["spec"]["ports"]
    assert (namespace, port["port"]) == (DAEMON, address.port)
    (mount,) = (each for each in daemon["volumeMounts"] if each["name"] == "gateway-certificate")
    assert wanted.relay_certificate == Path(mount["mountPath"], "tls.crt")
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
    assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt"], "not the key"
