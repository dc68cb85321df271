"""scheduler-doctor at a real API server, under real permissions: each problem is one clear line.

The tests follow its advice as the administrator, and the problem disappears.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.inspection.canary import CANARY
from scheduler.clusters.kubernetes.permissions import FOR_THE_LEASE, IN_CLUSTER, IN_NAMESPACE, Rule
from scheduler.doctor.command import main
from tests.kube.control import RBAC, ControlPlane, token_file
from tests.kube.kubelet import Kubelet
from tests.kube.proxy import Answer, Proxy, Reset, Silence
from tests.support import DEADLINE_SECONDS, eventually

SETTINGS = """
cluster = "kubernetes"
[kubernetes]
kubeconfig = "{kubeconfig}"
namespace = "{namespace}"
service = "scheduler:7070"
image = "none:1"
runtime_class = ""
request_seconds = 5
"""
Found = list[dict[str, Any]]
ALL = (*IN_NAMESPACE, *FOR_THE_LEASE, *IN_CLUSTER)  # that a daemon must be allowed


class Doctor:
    def __init__(self, settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings, self._capsys = settings, capsys

    def add(self, text: str) -> None:
        self.settings.write_text(self.settings.read_text() + text)

    def says(self, *words: str | Path) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main(["--config", str(self.settings), *map(str, words)])
        out, err = self._capsys.readouterr()
        return code, out + err

    def finds(self, *words: str | Path) -> tuple[int, Found]:
        code, text = self.says("--json", *words)
        return code, json.loads(text)

    def troubles(self, *words: str | Path) -> Found:
        """The findings, without warnings about what the account may not see."""
        _, found = self.finds(*words)
        return [each for each in found if each["level"] != "ok" and each["what"] != "rest"]


@pytest.fixture
def doctor(
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    kubelet: Kubelet,
    capsys: pytest.CaptureFixture[str],
) -> Doctor:
    settings = tmp_path / "scheduler.toml"
    settings.write_text(SETTINGS.format(kubeconfig=kubeconfig, namespace=namespace))
    return Doctor(settings, capsys)


def follow(control: ControlPlane, findings: Found) -> None:
    """Follows the advice, as an administrator."""
    commands = [command for each in findings for command in each["commands"]]
    assert commands
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "kubectl"
        control.kubectl(*words)


# --- as it should be ----------------------------------------------------------------------------


def test_a_daemon_s_own_account_finds_all_well_and_says_what_it_may_not_see(
    doctor: Doctor, namespace: str, control: ControlPlane
) -> None:
    code, text = doctor.says()
    assert code == 0, text
    lines = text.splitlines()
    assert any(
        line.startswith(f"ok       server       {control.url}: Kubernetes v1.") for line in lines
    )
    who = f"system:serviceaccount:{namespace}:scheduler"
    verbs = sum(len(rule.verbs) for rule in ALL)
    needed = (
        f"ok       permissions  {who} has all permissions that the daemon needs ({verbs} verbs)"
    )
    assert needed in lines
    admitted = f"ok       namespace    {namespace}: a pod like those of jobs is admitted"
    assert admitted in lines
    (hidden,) = (line for line in lines if line.startswith("warning  rest"))
    assert f"quotas of {namespace}" in hidden
    assert lines[-1].startswith("1 warning, ")


def test_an_administrator_sees_all_of_it_and_asks_for_the_daemon_s_account(
    doctor: Doctor, namespace: str, control: ControlPlane
) -> None:
    words = ("--kubeconfig", control.admin, "--account", f"{namespace}/scheduler")
    code, found = doctor.finds(*words)
    assert code == 0
    assert "rest" not in {each["what"] for each in found}
    (may,) = (each for each in found if each["what"] == "permissions")
    assert may["words"].startswith(
        f"system:serviceaccount:{namespace}:scheduler has all permissions"
    )
    control.account(namespace, "modest")
    code, found = doctor.finds("--kubeconfig", control.admin, "--account", f"{namespace}/modest")
    assert code == 1
    lacks = [each for each in found if each["what"] == "permissions"]
    assert len(lacks) == len(ALL)


def test_nothing_is_left_of_a_look(doctor: Doctor, control: ControlPlane, namespace: str) -> None:
    doctor.says()
    assert (
        control.get("pods,configmaps,secrets", "--namespace", namespace, "--selector", CANARY)[
            "items"
        ]
        == []
    )
    assert control.get("pods", "--namespace", namespace)["items"] == []


# --- permissions --------------------------------------------------------------------------------


def test_each_verb_that_is_missing_is_named_with_the_rule_that_helps(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    admin = KubernetesClient(control.admin, 10.0)
    own = f"/apis/{RBAC}/namespaces/{namespace}/roles/scheduler"
    everywhere = f"/apis/{RBAC}/clusterroles/{namespace}-scheduler"
    for path, rules in ((own, (*IN_NAMESPACE, *FOR_THE_LEASE)), (everywhere, IN_CLUSTER)):
        role = json.loads(admin.call("GET", path))
        role["metadata"].pop("resourceVersion")
        role["metadata"].pop("managedFields")
        for rule in rules:
            for verb in rule.verbs:
                written = [_without(each, rule, verb).written() for each in rules]
                left = [each for each in written if each["verbs"]]
                admin.call("PUT", path, body={**role, "rules": left})
                _finds_only(doctor, f"may not {verb} {rule.resource}. ", verb)
        admin.call("PUT", path, body={**role, "rules": [rule.written() for rule in rules]})
        eventually(lambda: "has all permissions" in doctor.says()[1])


def _finds_only(doctor: Doctor, lacks: str, verb: str) -> None:
    """Waits, because the server may take a moment to apply the new rules."""
    seen: list[list[str]] = []

    def look() -> bool:
        seen.append([line for line in doctor.says()[1].splitlines() if line.startswith("wrong")])
        return any(lacks in line for line in seen[-1])

    eventually(look)
    (line,) = seen[-1]
    assert f"verbs: [{verb}]}}" in line


def _without(each: Rule, rule: Rule, verb: str) -> Rule:
    left = tuple(kept for kept in each.verbs if each != rule or kept != verb)
    return Rule(each.resource, left, each.group)


def test_the_printed_commands_give_what_is_missing(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    """Binds the account to the roles that deploy/ makes."""
    who = {"kind": "ServiceAccount", "name": "scheduler", "namespace": namespace}
    name = "epoch-scheduler"
    for kind, binding in (("Role", "RoleBinding"), ("ClusterRole", "ClusterRoleBinding")):
        meta = {"apiVersion": RBAC, "metadata": {"name": name}}
        other = Rule("limitranges", ("get",)).written()
        control.apply({**meta, "kind": kind, "rules": [other]}, namespace)
        reference = {"apiGroup": RBAC.partition("/")[0], "kind": kind, "name": name}
        bound = {**meta, "kind": binding, "subjects": [who], "roleRef": reference}
        control.apply(bound, namespace)
    control.kubectl("delete", "role", "scheduler", "--namespace", namespace)
    control.kubectl("delete", "clusterrole", f"{namespace}-scheduler")
    found: Found = []

    def all_is_lacking() -> bool:
        found[:] = [each for each in doctor.troubles() if each["what"] == "permissions"]
        return len(found) == len(ALL)

    eventually(all_is_lacking)
    follow(control, found)
    eventually(lambda: doctor.finds()[0] == 0)
    control.kubectl("delete", "clusterrole,clusterrolebinding", name)


# --- servers that cannot be reached --------------------------------------------------------------


def test_a_kubeconfig_that_is_not_there(doctor: Doctor, tmp_path: Path) -> None:
    code, text = doctor.says("--kubeconfig", tmp_path / "none")
    assert code == 2
    assert "kubeconfig" in text
    assert str(tmp_path / "none") in text
    assert len(text.splitlines()) == 1


def test_a_kubeconfig_that_is_none(doctor: Doctor, tmp_path: Path) -> None:
    for number, content in enumerate(
        ("{", "[]", "clusters: 3", "\0", "apiVersion: v1\nkind: Config")
    ):
        file = tmp_path / f"broken-{number}"
        file.write_text(content)
        code, text = doctor.says("--kubeconfig", file)
        assert (code, len(text.splitlines())) == (2, 1), text
        assert f"{file} is not a valid kubeconfig" in text


def test_a_token_that_has_expired(doctor: Doctor, kubeconfig: Path) -> None:
    token_file(kubeconfig).write_text("expired")
    code, text = doctor.says()
    assert code == 3
    assert text.startswith("wrong    server       https://127.0.0.1:")
    assert "it does not accept our credentials" in text
    assert "has expired" in text


def test_a_server_that_is_not_there(doctor: Doctor, control: ControlPlane) -> None:
    nowhere = control.kubeconfig("nowhere", "https://127.0.0.1:1")
    token_file(nowhere).write_text("a token")
    code, text = doctor.says("--kubeconfig", nowhere)
    assert code == 3
    first = text.splitlines()[0]
    assert first.startswith("wrong    server       https://127.0.0.1:1: ")
    assert "Connection refused" in first
    assert "urllib3" not in text


def test_a_server_that_falls_silent_or_breaks_off(
    doctor: Doctor, proxy: Proxy, kubeconfig: Path
) -> None:
    doctor.add("\n")
    reached = proxy.kubeconfig(kubeconfig)
    doctor.settings.write_text(doctor.settings.read_text().replace("seconds = 5", "seconds = 1"))
    for effect in (Silence(), Reset(), Answer(500)):
        proxy.inject(effect, path="/version")
        code, text = doctor.says("--kubeconfig", reached)
        assert code == 3, text
        assert text.startswith("wrong    server ")
    proxy.inject(Answer(503), path="/resourcequotas")
    code, text = doctor.says("--kubeconfig", reached)
    assert code == 1
    (line,) = (line for line in text.splitlines() if line.startswith("wrong"))
    assert "cannot be read: " in line


# --- namespaces ---------------------------------------------------------------------------------


def test_a_namespace_that_is_not_there_is_created_as_advised(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    text = doctor.settings.read_text()
    missing = f"{namespace}-missing"
    doctor.settings.write_text(
        text.replace(f'namespace = "{namespace}"', f'namespace = "{missing}"')
    )
    _, found = doctor.finds("--kubeconfig", control.admin)
    (trouble,) = (each for each in found if each["level"] == "wrong")
    assert (trouble["where"], trouble["words"]) == (missing, "it does not exist")
    follow(control, [trouble])
    control.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, missing
    )
    assert doctor.finds("--kubeconfig", control.admin)[0] == 0
    control.kubectl("delete", "namespace", missing, "--wait=false")
    eventually(lambda: "it is being deleted" in doctor.says("--kubeconfig", control.admin)[1])


def test_everybody_s_namespace_is_looked_at(doctor: Doctor, namespace: str) -> None:
    doctor.add('[users.ada]\nnamespace = "of-ada"\n')
    code, found = doctor.finds()
    assert code == 1
    lacks = {each["where"] for each in found if each["level"] == "wrong"}
    assert lacks == {"namespace of-ada"}


def test_a_level_of_security_that_refuses_is_named_once_and_set_as_advised(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    control.namespace(namespace, **{"pod-security.kubernetes.io/enforce": "restricted"})
    assert doctor.finds("--kubeconfig", control.admin)[0] == 0
    doctor.settings.write_text(doctor.settings.read_text() + 'data = "host:/srv"\n')
    (trouble,) = doctor.troubles("--kubeconfig", control.admin)
    assert "restricted, refuses node paths (kubernetes.data)" in trouble["words"]
    (seen_by_daemon,) = doctor.troubles()
    assert "violates PodSecurity" in seen_by_daemon["words"]
    follow(control, [trouble])
    assert doctor.finds("--kubeconfig", control.admin)[0] == 0


QUOTAS: list[tuple[str, dict[str, str], str]] = [
    ("full", {"pods": "0"}, "exceeded quota: full"),
    ("cpus", {"limits.cpu": "4"}, "must specify limits.cpu"),
    ("small", {"requests.cpu": "500m"}, "exceeded quota: small, requested: requests.cpu=1"),
]


@pytest.mark.parametrize(("name", "hard", "words"), QUOTAS, ids=[each[0] for each in QUOTAS])
def test_a_quota_that_refuses_is_quoted(
    name: str,
    hard: dict[str, str],
    words: str,
    doctor: Doctor,
    control: ControlPlane,
    namespace: str,
    controllers: None,
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
    control.apply({**quota, "spec": {"hard": hard}}, namespace)
    eventually(lambda: doctor.finds()[0] == 1)
    (trouble,) = doctor.troubles()
    assert words in trouble["words"]
    assert trouble["advice"]


def test_a_quota_of_cards_is_no_quota_of_shared_ones(
    doctor: Doctor, control: ControlPlane, namespace: str, controllers: None
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cards"}}
    control.apply({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}, namespace)
    eventually(lambda: doctor.troubles("--kubeconfig", control.admin))
    (trouble,) = doctor.troubles("--kubeconfig", control.admin)
    assert trouble["level"] == "warning"
    assert trouble["what"] == "quota"


def test_a_limit_range_that_refuses_is_quoted(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    limits = [{"type": "Container", "max": {"cpu": "500m"}}]
    range_ = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}}
    control.apply({**range_, "spec": {"limits": limits}}, namespace)
    eventually(lambda: doctor.troubles())
    (trouble,) = doctor.troubles()
    assert "maximum cpu usage per Container is 500m" in trouble["words"] or (
        "must be less than or equal to cpu limit" in trouble["words"]
    )


# --- classes ------------------------------------------------------------------------------------


def test_a_runtime_class_and_a_priority_class_that_are_not_there(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    doctor.settings.write_text(
        doctor.settings.read_text().replace(
            'runtime_class = ""', f'priority_class = "p-{namespace}"'
        )
    )
    (trouble,) = doctor.troubles()
    assert "RuntimeClass" in trouble["words"] or "PriorityClass" in trouble["words"]
    troubles = doctor.troubles("--kubeconfig", control.admin)
    assert {each["where"] for each in troubles if each["what"] != "namespace"} == {
        "RuntimeClass nvidia",
        f"PriorityClass p-{namespace}",
    }
    follow(control, [each for each in troubles if each["what"] == "priority"])
    control.apply(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "nvidia",
        }
    )
    eventually(lambda: doctor.finds("--kubeconfig", control.admin)[0] == 0)
    control.kubectl("delete", "runtimeclass", "nvidia")
    control.kubectl("delete", "priorityclass", f"p-{namespace}")


# --- nodes --------------------------------------------------------------------------------------


def test_nodes_whose_mode_nobody_has_set_are_labelled_as_proposed(
    doctor: Doctor, control: ControlPlane, kubelet: Kubelet
) -> None:
    def modes() -> Found:
        _, found = doctor.finds("--kubeconfig", control.admin)
        return [each for each in found if each["what"] == "modes"]

    doctor.add('holder_image = "holder:1"\n')
    (proposed,) = modes()
    follow(control, [proposed])
    assert modes() == []
    control.kubectl("label", "node", kubelet.node, "--overwrite", "epoch-scheduler.io/mode=mine")
    (trouble,) = modes()
    assert trouble["level"] == "wrong"
    follow(control, [trouble])
    assert modes() == []


def test_the_account_of_holders_is_created_as_advised(
    doctor: Doctor, control: ControlPlane, namespace: str
) -> None:
    def accounts() -> Found:
        _, found = doctor.finds("--kubeconfig", control.admin)
        return [each for each in found if each["what"] == "holders"]

    doctor.add('holder_image = "holder:1"\n')
    (missing,) = accounts()
    assert missing["where"] == f"service account {namespace}/epoch-scheduler-agent"
    follow(control, [missing])
    assert accounts() == []


def test_a_node_that_lies_about_its_cards_is_named(
    doctor: Doctor, control: ControlPlane, kubelet: Kubelet
) -> None:
    kubelet.annotate(kubelet.node, **{"epoch-scheduler.io/gpus": '[{"uuid": 3}]'})
    (trouble,) = doctor.troubles()
    assert trouble["where"] == f"node {kubelet.node}"
    assert trouble["level"] == "wrong"


# --- canaries -----------------------------------------------------------------------------------


def during(doctor: Doctor, kubelet: Kubelet, comes: Callable[[str], object]) -> Found:
    """The findings with canaries on a simulated node, which handles each canary once."""
    over = threading.Event()

    def play() -> None:
        while not over.wait(0.05):
            for pod in canaries(kubelet):
                name = pod["metadata"]["name"]
                with suppress(ApiError):  # it may have been deleted meanwhile
                    if "deletionTimestamp" in pod["metadata"]:
                        kubelet.forget(name)
                    elif "nodeName" not in pod["spec"]:
                        kubelet.bind(name)
                        comes(name)

    node = threading.Thread(target=play)
    node.start()
    try:
        return [each for each in doctor.finds("--canary")[1] if each["what"] == "canary"]
    finally:
        over.set()
        node.join()


def canaries(kubelet: Kubelet) -> list[dict[str, Any]]:
    return [pod for pod in kubelet.pods() if CANARY in pod["metadata"].get("labels", {})]


SONGS = [
    (0, "GPU-1\n", "ok", "a pod sees only the GPU that it was given (GPU-1)"),
    (0, "GPU-1\nGPU-2\n", "wrong", "a pod that was given GPU-1 sees GPU-1, GPU-2"),
    (0, "", "wrong", "a pod that was given GPU-1 sees none"),
    (127, "sh: nvidia-smi: not found", "wrong", "nothing was injected"),
    (9, "NVIDIA-SMI has failed", "wrong", "the pod failed: Error: NVIDIA-SMI has failed"),
]


@pytest.mark.parametrize(("code", "message", "level", "words"), SONGS)
def test_a_canary_tells_which_cards_it_sees_and_is_removed(
    code: int, message: str, level: str, words: str, doctor: Doctor, kubelet: Kubelet
) -> None:
    (found,) = during(doctor, kubelet, lambda name: kubelet.end(name, code, message=message))
    assert found["level"] == level
    assert words in found["words"]
    assert canaries(kubelet) == []


@pytest.mark.parametrize("mode", ["owned", "mixed"])
def test_where_cards_are_held_a_canary_names_one_that_another_has_told(
    mode: str, doctor: Doctor, kubelet: Kubelet, control: ControlPlane
) -> None:
    control.kubectl("annotate", "node", kubelet.node, "epoch-scheduler.io/gpus-")
    control.kubectl("label", "node", kubelet.node, f"epoch-scheduler.io/mode={mode}")
    two = {"nvidia.com/gpu": "2"}
    status = json.dumps({"status": {"capacity": two, "allocatable": two}})
    control.kubectl("patch", "node", kubelet.node, "--subresource=status", "--patch", status)
    doctor.add('holder_image = "holder:1"\n')

    def sees(name: str) -> None:
        (pod,) = (pod for pod in canaries(kubelet) if pod["metadata"]["name"] == name)
        (container,) = pod["spec"]["containers"]
        told = {each["name"]: each.get("value", "") for each in container["env"]}
        assert pods.GPU_RESOURCE not in container["resources"].get("limits", {})
        card = told["NVIDIA_VISIBLE_DEVICES"]
        kubelet.end(name, 0, message="GPU-7\nGPU-8\n" if card == "all" else card)

    (found,) = during(doctor, kubelet, sees)
    assert found["words"] == "a pod sees only the GPU that it was given (GPU-7)"
    assert canaries(kubelet) == []


def test_an_image_that_cannot_be_pulled_is_told_by_the_canary(
    doctor: Doctor, kubelet: Kubelet
) -> None:
    doctor.add("image_deadline_seconds = 10\n")
    words = ("ImagePullBackOff", "none:1 is nowhere")
    (found,) = during(doctor, kubelet, lambda name: kubelet.set_waiting(name, *words))
    assert found["words"] == (
        "the pod was not created: its image is not available from docker.io: ImagePullBackOff: "
        "none:1 is nowhere"
    )
    assert canaries(kubelet) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_canaries_are_removed_also_when_the_doctor_is_ended(
    number: signal.Signals, doctor: Doctor, kubelet: Kubelet
) -> None:
    program = Path(sys.executable).parent / "scheduler-doctor"
    words: list[str | Path] = [program, "--config", doctor.settings, "--canary"]
    visit = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        eventually(lambda: canaries(kubelet))
        visit.send_signal(number)
        out, _ = visit.communicate(timeout=DEADLINE_SECONDS)
        assert visit.returncode == 130, out
        assert "Traceback" not in out
    finally:
        visit.kill()
        visit.wait()
    eventually(lambda: all("deletionTimestamp" in pod["metadata"] for pod in canaries(kubelet)))
