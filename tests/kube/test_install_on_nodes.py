"""deploy/kubernetes on a real node: the image in its pod, and a user who connects from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.deploy import image
from tests.deploy.installing import installed, left
from tests.deploy.manifests import DAEMON
from tests.kube.conftest import IMAGE
from tests.kube.control import ControlPlane
from tests.kube.nodes import Nodes
from tests.support import BIN, eventually

SLOW_SECONDS = 180.0  # nodes are slow on a single processor
PORT = 30443  # of components/tls
DEPLOYED = f"deployment/{DAEMON}"


@pytest.fixture
def outside(nodes: Nodes, control: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs it, and gives this process a user's token."""
    if why := image.missing():
        pytest.skip(why)
    archive = image.archive()
    for node in nodes.nodes:
        node.load(archive)
    nodes.nodes[0].give("GPU-0")
    address = nodes.nodes[0].address
    certificate, key = control.authority.issue("people", address)
    here = "--namespace", DAEMON
    with installed(control, "overlays/test"):
        pair = "--cert", certificate, "--key", key
        control.kubectl(*here, "create", "secret", "tls", f"{DAEMON}-tls", *pair)
        control.kubectl(*here, "rollout", "status", DEPLOYED, f"--timeout={SLOW_SECONDS:.0f}s")
        inside = "exec", DEPLOYED, "--", "scheduler-daemon"
        token = control.kubectl(*here, *inside, "token", "issue", "ada")
        monkeypatch.setenv("SCHEDULER_SERVER", f"{address}:{PORT}")
        monkeypatch.setenv("SCHEDULER_CA", str(control.authority.certificate))
        monkeypatch.setenv("SCHEDULER_TOKEN", token.strip())
        yield
    eventually(lambda: not left(control), SLOW_SECONDS)


def test_the_four_commands_work_from_outside_through_the_service(outside: None) -> None:
    training = ("--image_name", IMAGE, "--max_epochs", "2")
    first = run("run-scheduler", *training, "first", "--", "python3", "-c", EPOCHS).strip()
    eventually(lambda: "FINISHED" in run("scheduler-state", first), SLOW_SECONDS)
    assert "2/2" in run("scheduler-state", "--nlast", "1")
    eventually(lambda: "epoch 2 done" in run("scheduler-get-logs", first))
    second = run("run-scheduler", *training, "second", "--", "sleep", "1000").strip()
    eventually(lambda: "RUNNING" in run("scheduler-state", "second"), SLOW_SECONDS)
    run("scheduler-cancel-job", "second")
    eventually(lambda: "CANCELED" in run("scheduler-state", second), SLOW_SECONDS)


def run(name: str, *words: str) -> str:
    done = subprocess.run([BIN / name, *words], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


EPOCHS = """
from kubernetesdlprofile import kubeprofiler
prof = kubeprofiler.KubeProfiler()
for epoch in range(prof.EPOCHS_DONE, prof.EPOCHS):
    prof.start_epoch()
    prof.end_epoch()
    print("epoch", epoch + 1, "done")
prof.end()
"""
