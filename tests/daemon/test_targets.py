"""Which cluster the settings name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.access.identity import user_name
from scheduler.core.errors import ConfigError, Impossible
from scheduler.core.model import JobId
from scheduler.daemon.config import load
from scheduler.daemon.targets import KubernetesTarget, LocalTarget, target_of
from scheduler.job_secrets import JobSecrets
from tests.builders import spec

SERVICE = {"kubernetes.service": "scheduler.jobs.svc:7070"}
RELAY = {"kubernetes.relay_image": "scheduler:1"}


def made(tmp_path: Path, flags: dict[str, str]) -> object:
    config = load(None, {}, {"state_dir": str(tmp_path), "gpus": "1x16384", **flags})
    return target_of(config, time.time, "0.0.0.0:7070", "", JobSecrets(tmp_path))


def test_it_is_this_machine_unless_another_is_named(tmp_path: Path) -> None:
    here = made(tmp_path, {})
    assert isinstance(here, LocalTarget)
    assert here.about()["gpus"] == "pretended 16384 MiB"


def test_a_preview_tells_all_but_the_token(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    job_id, wish = JobId("job-1"), spec("a", script_path="/custom/train.py", image="torch")
    here = made(tmp_path, {})
    assert isinstance(here, LocalTarget)
    wish = replace(wish, user=user_name(os.geteuid()), memory_mib=4000, custom_dir=str(tmp_path))
    preview = here.preview(job_id, wish, here.cluster.observe().nodes)
    assert preview.command[-1] == str(tmp_path / "train.py")
    assert (preview.environment["NUM_GPUS"], preview.environment["RESERVED_MEM"]) == ("1", "4000")
    assert "KUBEPROFILER_TOKEN" not in preview.environment
    assert any("image torch is not used" in note for note in preview.notes)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "kubernetes.service is missing"),
        ({**SERVICE, "kubernetes.namespace": "Jobs"}, "'Jobs' is not a valid namespace name"),
        ({**SERVICE, "kubernetes.custom": "/home"}, "kubernetes.custom: '/home' is not host:/PATH"),
        ({**SERVICE, "kubernetes.node_mode": "mixed"}, "kubernetes.holder_image is missing"),
        ({**SERVICE, **RELAY}, "kubernetes.relay_gateway: '' is not http://HOST:PORT or https:"),
        (
            {**SERVICE, **RELAY, "kubernetes.relay_gateway": "gateway:7071"},
            "kubernetes.relay_gateway: 'gateway:7071' is not http",
        ),
        (
            {**SERVICE, **RELAY, "kubernetes.relay_gateway": "https://gateway:7071"},
            "kubernetes.relay_certificate is missing: relays trust no other one",
        ),
        ({**SERVICE, "kubernetes.kubeconfig": "/nowhere"}, "cannot read /nowhere"),
        ({**SERVICE, "kubernetes.cpu": "many"}, "kubernetes.cpu = 'many'"),
        ({**SERVICE, "kubernetes.run_as_user": "0"}, "kubernetes.run_as_user = '0'"),
        ({**SERVICE, "kubernetes.host_ports": "all"}, "kubernetes.host_ports: 'all' is not a port"),
    ],
)
def test_a_wrong_setting_of_a_cluster_is_named(
    tmp_path: Path, flags: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        made(tmp_path, {"cluster": "kubernetes", **flags})


def cluster_target(tmp_path: Path, settings: str) -> KubernetesTarget:
    """One whose API server does not exist."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        """{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]}"""
    )
    file = tmp_path / "settings.toml"
    file.write_text(
        f"""cluster = "kubernetes"
        state_dir = "{tmp_path}"
        [kubernetes]
        kubeconfig = "{kubeconfig}"
        service = "scheduler.jobs.svc:7070"
        image = "trainer:1"
        {settings}"""
    )
    target = target_of(load(file, {}, {}), time.time, "0.0.0.0:7070", "", JobSecrets(tmp_path))
    assert isinstance(target, KubernetesTarget)
    return target


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ("", {"bob", "eve"}),
        ("[users.bob]\nuid = 1001", {"eve"}),
        ("[users.bob]\nuid = 1001\n[users.eve]\nuid = 1001", {"eve"}),
        ("[users.bob]\nuid = 1001\n[users.eve]\nuid = 1002", set()),
        ("[users.bob]\nuid = 1000\n[users.ada]\nuid = 5", {"eve"}),
        ('[users.bob]\nnamespace = "bobs"\n[users.eve]\nnamespace = "eves"', set()),
        ('data = "host:/srv"\n[users.bob]\nnamespace = "bobs"', {"bob", "eve"}),
        ('data = "pvc:own"\n[users.bob]\nnamespace = "bobs"', {"eve"}),
        ("shared_uids = true", set()),
    ],
)
def test_of_users_who_could_change_each_other_s_files_only_the_first_is_accepted(
    tmp_path: Path, settings: str, refused: set[str]
) -> None:
    target, users = cluster_target(tmp_path, settings), ["ada", "bob", "eve"]
    assert {user for user in users if target.refuses(user, lambda: users)} == refused
    assert target.refuses("ada", lambda: []) is None, "she is the first"


def test_a_user_who_is_refused_is_told_with_whom_and_what_would_help(tmp_path: Path) -> None:
    assert cluster_target(tmp_path, "").refuses("bob", lambda: ["ada"]) == (
        "jobs of bob would have the same uid as those of ada (1000): an admin must give one of "
        "them a uid in [users], or set kubernetes.shared_uids"
    )


def test_a_port_that_the_cluster_does_not_open_is_refused_before_the_job_is_accepted(
    tmp_path: Path,
) -> None:
    wish, target = spec("a", ports=((22, 22),)), cluster_target(tmp_path, "")
    with pytest.raises(Impossible, match="--port_mapping 22:22: this cluster opens only the ports"):
        target.preview(JobId("job-1"), wish, ())
    allowed = cluster_target(tmp_path, 'host_ports = "22"')
    assert allowed.preview(JobId("job-1"), wish, ()).command


def test_on_one_machine_the_client_of_kubernetes_is_never_loaded(tmp_path: Path) -> None:
    program = (
        "import sys, scheduler.daemon.command, tests.daemon.test_targets as test, pathlib;"
        f"test.made(pathlib.Path({str(tmp_path)!r}), {{}});"
        "assert 'kubernetes' not in sys.modules"
    )
    root = Path(__file__).parent.parent.parent
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
