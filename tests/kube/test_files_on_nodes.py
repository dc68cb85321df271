"""scheduler-files and --volume on real nodes: a claim, a folder of the nodes, and their rights."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.conftest import IMAGE
from tests.kube.nodes import Nodes
from tests.kube.trainings import Lab
from tests.support import BIN, eventually

SIZE = 40_000_000


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(nodes, namespace, tmp_path)
    yield lab
    lab.end()


@pytest.fixture
def claim(lab: Lab, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The claim `data`, which is bound to a folder that all nodes have."""
    folder = tmp_path / "claim"
    folder.mkdir()
    folder.chmod(0o777)
    volume, common = f"{namespace}-data", {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}}
    meta = {"name": volume}
    lab.control.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
    )
    asked = {**common, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
    lab.control.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": asked,
        },
        namespace,
    )
    yield folder
    lab.control.kubectl("delete", "pv", volume, "--wait=false")


@pytest.fixture
def at_home(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context for the cluster."""
    contexts = tmp_path / "config" / "epoch-scheduler" / "config.yaml"
    contexts.parent.mkdir(parents=True)
    volumes = f"['data:/data', '{lab.shared}:/shared:ro']"
    keys = f"type: kubernetes, server: '{lab.daemon.address}', image: '{IMAGE}', volumes: {volumes}"
    contexts.write_text(f"contexts:\n  gke: {{{keys}}}\n")
    contexts.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.usefixtures("at_home")
def test_files_of_a_cluster_are_listed_copied_and_removed_as_a_job_would(
    lab: Lab, claim: Path, tmp_path: Path
) -> None:
    daemon = lab.start(volumes=["pvc:data", f"host:{lab.shared}"])
    (claim / "out").mkdir()
    (claim / "out").chmod(0o777)
    (claim / "out" / "big").write_bytes(os.urandom(SIZE))
    (claim / "out" / "passwd").symlink_to("/etc/passwd")
    (claim / "secret").write_text("of root")
    (claim / "secret").chmod(0o600)
    (lab.shared / "note").write_text("hello")

    listed = daemon.run("scheduler-files", "ls", "gke:/data")
    assert listed.returncode == 0, listed.stderr
    assert "out/" in listed.stdout
    assert "secret" in listed.stdout

    copy = tmp_path / "copy"
    done = daemon.run("scheduler-files", "get", "gke:/data/out", str(copy))
    assert (done.returncode, done.stdout) == (
        1,
        f"copied 1 file (38.1 MiB) to {copy}; 1 was left out\n",
    ), done.stderr
    assert "passwd: a link that leaves the folder" in done.stderr
    assert _digest(copy / "big") == _digest(claim / "out" / "big")
    again = daemon.run("scheduler-files", "get", "gke:/data/out/big", f"{copy}/")
    assert "1 was there already" in again.stdout, again.stderr

    for action in ("get", "put"):  # what a job of the user's may not do
        words = {
            "get": ("gke:/data/secret", str(copy)),
            "put": (str(copy / "big"), "gke:/shared/big"),
        }
        refused = daemon.run("scheduler-files", action, *words[action])
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1, refused.stderr
        why = {"get": "Permission denied", "put": "Read-only file system"}[action]
        assert why in refused.stderr

    put = daemon.run("scheduler-files", "put", str(copy), "gke:/data/up")
    assert put.returncode == 0, put.stderr
    assert _digest(claim / "up" / "big") == _digest(copy / "big")
    assert (claim / "up" / "big").stat().st_uid == 1000
    assert daemon.run("scheduler-files", "rm", "gke:/data/up", "--yes").returncode == 0
    assert not (claim / "up").exists()
    missing = daemon.run("scheduler-files", "ls", "gke:/data/up")
    assert (missing.returncode, missing.stderr) == (
        2,
        "scheduler-files: gke:/data/up: no such file or folder\n",
    )

    (job,) = daemon.state_of()["jobs"]
    assert (job["name"], job["state"]) == ("files", "RUNNING"), "one for all of them"


@pytest.mark.usefixtures("at_home")
def test_an_interrupted_copy_goes_on_and_files_of_jobs_are_reached_before_and_after_their_end(
    lab: Lab, claim: Path, tmp_path: Path
) -> None:
    daemon = lab.start(volumes=["pvc:data", f"host:{lab.shared}"])
    source = tmp_path / "big"
    source.write_bytes(os.urandom(5 * SIZE))
    assert daemon.run("scheduler-files", "ls", "gke:/data").returncode == 0
    words: list[str | Path] = [BIN / "scheduler-files", "put", source, "gke:/data/big"]

    def partial() -> int:
        return sum(each.stat().st_size for each in claim.glob("*.part"))

    with subprocess.Popen(words) as process:
        eventually(lambda: partial() > SIZE // 10)
        process.kill()
    there = partial()
    assert 0 < there < 5 * SIZE
    done = daemon.run("scheduler-files", "put", str(source), "gke:/data/big")
    assert done.returncode == 0, done.stderr
    assert _digest(claim / "big") == _digest(source)

    flags = ("--image_name", IMAGE, "--num_gpus", "0", "--snapshots_dir", str(lab.shared))
    script = "echo weights > /snapshots/model.pt; sleep 10000"
    job = daemon.submit(*flags, "demo", "--", "sh", "-c", script)
    lab.wait_until_running(job)
    eventually((lab.shared / "model.pt").exists)
    for state in ("RUNNING", "CANCELED"):
        lab.wait_until(job, lambda job, state=state: job.state == state)  # type: ignore[misc]
        told = daemon.run(
            "scheduler-files", "get", "gke:job://demo/model.pt", f"{tmp_path}/{state}/"
        )
        assert told.returncode == 0, told.stderr
        assert (tmp_path / state / "model.pt").read_text() == "weights\n"
        daemon.run("scheduler-cancel-job", job)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
