"""Images with an old library in real pods: each job finishes with every epoch done once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.kube.conftest import ROOT
from tests.kube.network import HOST
from tests.kube.nodes import Nodes
from tests.kube.processes import free_port
from tests.kube.trainings import SLOW_SECONDS, Lab
from tests.legacy.test_images import kept, opened
from tests.legacy.test_renewal import NEW, OLD, libraries
from tests.support import Gate, eventually

EPOCHS = 4
OLD_IMAGES = {  # by name: the generation, and the script in tests/legacy
    **{
        generation: (generation, "train.py")
        for generation in ("G0", "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G7b", "G8")
    },
    **{f"{generation}-renewed": (generation, "renewed.py") for generation in ("G1", "G5", "G8")},
}
MOST = ("--estimated_memory", "9000")


@pytest.fixture
def lab(
    nodes: Nodes, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """A lab with a GPU for each of them."""
    address = f"{HOST}:{free_port()}"
    monkeypatch.setenv("SCHEDULER_LEGACY__LISTEN", address)
    monkeypatch.setenv("SCHEDULER_LEGACY__SERVICE", address)
    monkeypatch.setenv("SCHEDULER_RULES__STOP_GRACE_SECONDS", "60")
    lab = Lab(nodes, namespace, tmp_path)
    lab.offer(nodes.nodes[0], *(f"GPU-{number}" for number in range(len(OLD_IMAGES))))
    lab.start(cpu="20m")
    yield lab
    lab.end()


def train(lab: Lab, gate: Gate, name: str) -> str:
    generation, script = OLD_IMAGES[name]
    package = lab.shared / generation / "kubernetesdlprofile"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    source = OLD.format(root="/custom", generation=generation)
    (package / "kubeprofiler.py").write_text(source)
    told = {
        "GENERATION": generation,
        "IMAGE": f"/custom/{generation}",
        "PYTHONPATH": f"/custom/{generation}",
        "LEGACY": os.environ["SCHEDULER_LEGACY__LISTEN"],
        "CHECKPOINT": f"/custom/{name}.checkpoint",
    }
    words = [word for key, value in told.items() for word in ("--env", f"{key}={value}")]
    words += [*MOST, "--num_gpus", "1", "--max_epochs", str(EPOCHS), "--project", name]
    return lab.train(gate, name, *words, command=("python3", f"/custom/tests/legacy/{script}"))


def _was_renewed(lab: Lab, job_id: str) -> bool:
    """The last lines of a pod may be kept a little after its job has ended."""
    return libraries(lab.daemon, job_id) == ["its own", NEW]


def test_old_images_do_every_epoch_once(lab: Lab) -> None:
    """All at once: the daemon is restarted in their second epoch, and all are preempted."""
    shutil.copytree(ROOT / "tests" / "legacy", lab.shared / "tests" / "legacy")
    gates = {name: lab.gate(name) for name in OLD_IMAGES}
    jobs = {name: train(lab, gate, name) for name, gate in gates.items()}
    for gate in gates.values():
        gate.await_ring(SLOW_SECONDS)
        gate.open()
    for name, gate in gates.items():
        gate.await_ring(SLOW_SECONDS)
        lab.wait_until(jobs[name], lambda job: job.HasField("heard_at"))
    lab.daemon.kill()
    lab.daemon.start()
    for job_id in jobs.values():
        lab.wait_until_running(job_id)
    short, all_cards = lab.gate("urgent"), ("--num_gpus", str(len(jobs)))
    urgent = lab.train(short, "urgent", *MOST, *all_cards, "--priority", "10", "--max_epochs", "1")
    for name, gate in gates.items():
        lab.wait_until(jobs[name], lambda job: job.state == "STOPPING")
        gate.open()
    with ExitStack() as stack:
        for gate in gates.values():
            stack.enter_context(opened(gate))
        lab.wait_until_running(urgent)
        short.open()
        lab.wait_until_ended(urgent, epochs=1)
        for job_id in jobs.values():
            lab.wait_until(job_id, lambda job: job.state == "FINISHED")
    done = {name: kept(lab.shared / f"{name}.checkpoint") for name in jobs}
    assert done == {name: list(range(1, EPOCHS + 1)) for name in jobs}
    for name in jobs:
        if name.endswith("renewed"):
            eventually(partial(_was_renewed, lab, jobs[name]))
            assert lab.wait_until_ended(jobs[name], epochs=EPOCHS) == 2
