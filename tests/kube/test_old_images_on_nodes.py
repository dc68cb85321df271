"""Images with an old library in real pods: each finishes with every epoch done once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kube.conftest import ROOT
from tests.kube.network import HOST
from tests.kube.nodes import Nodes
from tests.kube.processes import free_port
from tests.kube.trainings import SLOW_SECONDS, Lab
from tests.legacy.test_images import kept, opened
from tests.legacy.test_renewal import NEW, OLD, libraries

EPOCHS = 4
Old = Callable[[str, str, str], str]


@pytest.fixture
def lab(
    nodes: Nodes, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    address = f"{HOST}:{free_port()}"
    monkeypatch.setenv("SCHEDULER_LEGACY__LISTEN", address)
    monkeypatch.setenv("SCHEDULER_LEGACY__SERVICE", address)
    monkeypatch.setenv("SCHEDULER_RULES__STOP_GRACE_SECONDS", "60")
    lab = Lab(nodes, namespace, tmp_path)
    lab.offer(nodes.nodes[0], "GPU-only")
    lab.start()
    yield lab
    lab.end()


@pytest.fixture
def old(lab: Lab) -> Old:
    """A training: its name, its generation, its script in tests/legacy."""
    shutil.copytree(ROOT / "tests" / "legacy", lab.shared / "tests" / "legacy")
    legacy = os.environ["SCHEDULER_LEGACY__LISTEN"]

    def train(name: str, generation: str, script: str) -> str:
        package = lab.shared / generation / "kubernetesdlprofile"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        source = OLD.format(root="/custom", generation=generation)
        (package / "kubeprofiler.py").write_text(source)
        told = {
            "GENERATION": generation,
            "IMAGE": f"/custom/{generation}",
            "PYTHONPATH": f"/custom/{generation}",
            "LEGACY": legacy,
            "CHECKPOINT": f"/custom/{name}.checkpoint",
        }
        words = [word for key, value in told.items() for word in ("--env", f"{key}={value}")]
        most = "--estimated_memory", "9000", "--max_epochs", str(EPOCHS)
        command = ("python3", f"/custom/tests/legacy/{script}")
        return lab.train(lab.gate(name), name, *most, *words, command=command)

    return train


def makes_room_and_ends(lab: Lab, job_id: str) -> None:
    """After its first epoch, and a restart of the daemon in its second."""
    gate = lab.gates[-1]
    gate.await_ring(SLOW_SECONDS)
    gate.open()
    gate.await_ring(SLOW_SECONDS)
    lab.until(job_id, lambda job: job.HasField("heard_at"))
    lab.daemon.kill()
    lab.daemon.start()
    lab.until_runs(job_id)
    short = lab.gate("urgent")
    most = "--estimated_memory", "9000", "--priority", "10", "--max_epochs", "1"
    urgent = lab.train(short, "urgent", *most)
    lab.until(job_id, lambda job: job.state == "STOPPING")
    gate.open()
    with opened(gate):
        lab.until_runs(urgent)
        short.open()
        lab.until_ended(urgent, epochs=1)
        lab.until(job_id, lambda job: job.state == "FINISHED")


@pytest.mark.parametrize(
    "generation", ["G0", "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G7b", "G8"]
)
def test_every_epoch_is_done_once(lab: Lab, old: Old, generation: str) -> None:
    job_id = old("old", generation, "train.py")
    makes_room_and_ends(lab, job_id)
    assert kept(lab.shared / "old.checkpoint") == list(range(1, EPOCHS + 1))


@pytest.mark.parametrize("generation", ["G1", "G5", "G8"])
def test_the_second_run_has_the_library_of_today(lab: Lab, old: Old, generation: str) -> None:
    job_id = old("old", generation, "renewed.py")
    makes_room_and_ends(lab, job_id)
    assert lab.until_ended(job_id, epochs=EPOCHS) == 2
    assert kept(lab.shared / "old.checkpoint") == list(range(1, EPOCHS + 1))
    assert libraries(lab.daemon, job_id) == ["its own", NEW]
