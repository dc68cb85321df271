"""S17: a project has a namespace, and storage that is made once and outlives its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # without types

from scheduler.clusters.kubernetes.permissions import FOR_STORAGE, IN_NAMESPACE
from tests.kube.conftest import ROOT
from tests.kube.control import ControlPlane
from tests.kube.kubelet import Kubelet
from tests.support import Daemon, eventually

PROJECT = "My_Project.X"
Claims = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def space(control: ControlPlane, namespace: str) -> Iterator[str]:
    """The namespace that an admin makes for the project, for the account of this daemon."""
    name = f"{namespace}-my-project-x"
    control.namespace(name)  # with the account that no controller makes here
    text = (ROOT / "deploy" / "kubernetes" / "project.yaml").read_text()
    for manifest in yaml.safe_load_all(text.replace("my-project-x", name)):
        if manifest["kind"] == "Role":
            assert manifest["rules"] == [rule.written() for rule in (*IN_NAMESPACE, *FOR_STORAGE)]
        if manifest["kind"] == "RoleBinding":
            (subject,) = manifest["subjects"]
            subject |= {"name": "scheduler", "namespace": namespace}
        control.apply(manifest, manifest["metadata"].get("namespace", ""))
    yield name
    control.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def daemon(
    kubeconfig: Path, namespace: str, space: str, kubelet: Kubelet, tmp_path: Path
) -> Iterator[Daemon]:
    settings = tmp_path / "scheduler.toml"
    settings.write_text(f"""
        cluster = "kubernetes"
        [kubernetes]
        kubeconfig = "{kubeconfig}"
        namespace = "{namespace}"
        service = "127.0.0.1:7070"
        shared_uids = true
        storage_claim = "storage"
        registry_secrets = ["lab"]
        volumes = ["pvc:datasets:ro", "host:/srv/lab"]
        [projects."{PROJECT}"]
        namespace = "{space}"
        users = ["ada", "bob"]
    """)
    daemon = Daemon(tmp_path / "state", "0", "--config", str(settings)).start()
    yield daemon
    daemon.end()


@pytest.fixture
def claims(control: ControlPlane, space: str) -> Claims:
    def found() -> list[dict[str, Any]]:
        listed = control.kubectl("get", "pvc", "--namespace", space, "--output", "json")
        return list(json.loads(listed)["items"])

    return found


WORDS = ("--image", "none:1", "--num_gpus", "0", "--project", PROJECT)


def test_a_project_has_its_namespace_and_storage_that_is_made_once(
    daemon: Daemon, control: ControlPlane, space: str, kubelet: Kubelet, claims: Claims
) -> None:
    words = (*WORDS, "--storage", "/storage")
    trial = daemon.run("run-scheduler", *words, "--dry_run", "j", "--", "true", user="ada")
    assert trial.returncode == 0, trial.stderr
    assert "STORAGE_DIR=/storage" in trial.stdout
    assert claims() == []

    daemon.submit(*words, "--registry_secret", "lab", "first", "--", "true", user="ada")
    (claim,) = claims()
    assert claim["metadata"]["name"] == "storage"
    assert claim["spec"]["resources"]["requests"] == {"storage": "40Gi"}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "ownerReferences" not in claim["metadata"]

    daemon.submit(*words, "--default_pvc_size", "9Gi", "second", "--", "true", user="bob")
    assert [each["metadata"]["uid"] for each in claims()] == [claim["metadata"]["uid"]]
    assert claims()[0]["spec"] == claim["spec"]

    there = Kubelet(control, space)
    eventually(lambda: len(there.pods()) == 2)
    pod = next(
        pod
        for pod in there.pods()
        if pod["metadata"]["annotations"]["epoch-scheduler.io/name"] == "first"
    )
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert {"name": "storage", "mountPath": "/storage"} in container["volumeMounts"]
    assert {"name": "storage", "persistentVolumeClaim": {"claimName": "storage"}} in spec["volumes"]
    assert spec["imagePullSecrets"] == [{"name": "lab"}]
    assert kubelet.pods() == []

    daemon.submit("--image", "none:1", "--num_gpus", "0", "other", "--", "true", user="ada")
    eventually(lambda: len(kubelet.pods()) == 1)

    cancelled = daemon.run("scheduler-cancel-job", "first", "second", user="ada")
    assert cancelled.returncode == 1, "one of them is not ada's"
    assert daemon.run("scheduler-cancel-job", "second", user="bob").returncode == 0
    assert [each["metadata"]["uid"] for each in claims()] == [claim["metadata"]["uid"]]


def test_volumes_are_the_storage_of_the_project_and_what_an_admin_allows(
    daemon: Daemon, control: ControlPlane, space: str, claims: Claims
) -> None:
    """S17, as it is written: `--volume storage:/storage`."""
    own, folder = ("--volume", "storage/out:/storage"), ("--volume", "/srv/lab/x:/lab")
    words = (*WORDS, *own, *folder, "--dry_run", "j", "--", "true")
    trial = daemon.run("run-scheduler", *words, user="ada")
    assert trial.returncode == 0, trial.stderr
    assert claims() == []
    for wanted, told in (
        ("datasets:/d", f"--volume datasets:/d: namespace {space} has no claim datasets"),
        ("scheduler:/d", "an admin can allow it with pvc:scheduler in kubernetes.volumes"),
        ("/srv:/d", "an admin can allow it with host:/srv in kubernetes.volumes"),
    ):
        these = (*WORDS, "--volume", wanted, "j", "--", "true")
        refused = daemon.run("run-scheduler", *these, user="ada")
        assert refused.returncode == 4, wanted
        assert told in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert claims() == []

    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "datasets"},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    control.apply(claim, space)
    daemon.submit(*WORDS, *own, "--volume", "datasets:/d", "j", "--", "true", user="ada")
    assert sorted(each["metadata"]["name"] for each in claims()) == ["datasets", "storage"]
    there = Kubelet(control, space)
    eventually(there.pods)
    (pod,) = there.pods()
    (container,) = pod["spec"]["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    by_name = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert mounts["/storage"]["subPath"] == "out"
    assert mounts["/d"]["readOnly"]
    assert "readOnly" not in mounts["/storage"]
    assert by_name[mounts["/d"]["name"]]["persistentVolumeClaim"] == {
        "claimName": "datasets",
        "readOnly": True,
    }


def test_a_quota_is_quoted_and_counts_for_new_storage_only(
    daemon: Daemon, control: ControlPlane, space: str, claims: Claims
) -> None:
    hard = {"requests.storage": "10Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "lab"}}
    control.apply({**quota, "spec": {"hard": hard}}, space)
    status = json.dumps({"status": {"hard": hard, "used": {"requests.storage": "0"}}})
    control.kubectl(
        *("patch", "resourcequota", "lab", "--namespace", space, "--subresource", "status"),
        *("--type", "merge", "--patch", status),
    )
    words = (*WORDS, "--storage", "/storage", "j", "--", "true")
    for more in ((), ("--dry_run",)):
        refused = daemon.run("run-scheduler", *more, *words, user="ada")
        assert refused.returncode == 4
        assert refused.stderr == (
            'run-scheduler: --storage: persistentvolumeclaims "storage" is forbidden: exceeded '
            "quota: lab, requested: requests.storage=40Gi, used: requests.storage=0, limited: "
            "requests.storage=10Gi\n"
        )
    assert daemon.state_of()["jobs"] == []
    daemon.submit("--default_pvc_size", "10Gi", *words, user="ada")
    assert len(claims()) == 1
    daemon.submit(*words, user="ada")  # the quota is used up, and the storage is there


def test_what_is_not_allowed_is_said_and_makes_nothing(daemon: Daemon, claims: Claims) -> None:
    words = (*WORDS, "--storage", "/storage")
    for more, user, told in (
        (words, "eve", f"--project {PROJECT}: eve is not among its users"),
        ((*WORDS, "--registry_secret", "x"), "ada", "--registry_secret x: an admin must add it to"),
    ):
        refused = daemon.run("run-scheduler", *more, "j", "--", "true", user=user)
        assert refused.returncode == 4
        assert told in refused.stderr
    for path in ("/", "/custom", "/snapshots/x", "/dev/shm", "relative"):
        refused = daemon.run("run-scheduler", *WORDS, "--storage", path, "j", "--", "true")
        assert refused.returncode == 2, path
        assert f"--storage '{path}'" in refused.stderr
    assert claims() == []


def test_an_image_that_cannot_be_pulled_names_the_registry(
    daemon: Daemon, control: ControlPlane, space: str, tmp_path: Path
) -> None:
    contexts = tmp_path / "config" / "epoch-scheduler" / "config.yaml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text(
        "current_context: lab\ncontexts:\n  lab: {registry_url: 'https://jfrog.com/'}\n"
    )
    contexts.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        words = ("--image", "crisptrain:0.1.0", "--num_gpus", "0", "--project", PROJECT)
        job = daemon.submit(*words, "j", "--", "true", user="ada")
    there = Kubelet(control, space)
    eventually(there.pods)
    (pod,) = there.pods()
    assert pod["spec"]["containers"][0]["image"] == "jfrog.com/crisptrain:0.1.0"
    said = 'Back-off pulling image "crisptrain:0.1.0": unauthorized'
    there.set_waiting(pod["metadata"]["name"], "ImagePullBackOff", said)
    whole = f"its image is not available from jfrog.com: ImagePullBackOff: {said}"
    eventually(
        lambda: whole in json.dumps(daemon.job_of(job), ensure_ascii=False).replace("\\", "")
    )
