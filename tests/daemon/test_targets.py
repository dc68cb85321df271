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
from scheduler.core.errors import ConfigError
from scheduler.core.model import JobId
from scheduler.daemon.config import load
from scheduler.daemon.targets import LocalTarget, target_of
from tests.builders import spec

SERVICE = {"kubernetes.service": "scheduler.jobs.svc:7070"}


def made(tmp_path: Path, flags: dict[str, str]) -> object:
    config = load(None, {}, {"state_dir": str(tmp_path), "gpus": "1x16384", **flags})
    return target_of(config, time.time, "0.0.0.0:7070")


def test_it_is_this_machine_unless_another_is_named(tmp_path: Path) -> None:
    here = made(tmp_path, {})
    assert isinstance(here, LocalTarget)
    assert here.about()["gpus"] == "pretended 16384 MiB"


def test_a_preview_tells_all_but_the_token(tmp_path: Path) -> None:
    job_id, wish = JobId("job-1"), spec("a", script_path="/custom/train.py", image="torch")
    here = made(tmp_path, {})
    assert isinstance(here, LocalTarget)
    wish = replace(wish, user=user_name(os.geteuid()), memory_mib=4000)
    preview = here.preview(job_id, wish, here.cluster.observe().nodes)
    assert preview.command[-1] == "/custom/train.py"
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
        ({**SERVICE, "kubernetes.kubeconfig": "/nowhere"}, "cannot read /nowhere"),
        ({**SERVICE, "kubernetes.cpu": "many"}, "kubernetes.cpu = 'many'"),
        ({**SERVICE, "kubernetes.run_as_user": "0"}, "kubernetes.run_as_user = '0'"),
    ],
)
def test_a_wrong_setting_of_a_cluster_is_named(
    tmp_path: Path, flags: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        made(tmp_path, {"cluster": "kubernetes", **flags})


def test_on_one_machine_the_client_of_kubernetes_is_never_loaded(tmp_path: Path) -> None:
    program = (
        "import sys, scheduler.daemon.command, tests.daemon.test_targets as test, pathlib;"
        f"test.made(pathlib.Path({str(tmp_path)!r}), {{}});"
        "assert 'kubernetes' not in sys.modules"
    )
    root = Path(__file__).parent.parent.parent
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
