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
from tests.legacy.conftest import NVIDIA_SMI, weights
from tests.legacy.test_images import opened
from tests.legacy.test_renewal import NEW, libraries
from tests.support import Gate, eventually

EPOCHS = 4
OLD_IMAGES = {  # by name: the generation, and how its job is submitted
    **{
        generation: (generation, ("--keep_library",))
        for generation in ("G1", "G2", "G3", "G4", "G5", "G6", "G7b", "G8")
    },
    **{f"{generation}-renewed": (generation, ()) for generation in ("G1", "G5", "G8")},
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
    generation, flags = OLD_IMAGES[name]
    told = {
        "GENERATION": generation,
        "IMAGE": "/custom/tests/legacy/images",
        "PYTHONPATH": "/custom/tests/legacy/images",
        "PATH": "/custom/bin:/usr/local/bin:/usr/bin:/bin",
        "LEGACY": os.environ["SCHEDULER_LEGACY__LISTEN"],
    }
    words = [word for key, value in told.items() for word in ("--env", f"{key}={value}")]
    words += [*MOST, "--num_gpus", "1", "--max_epochs", str(EPOCHS), "--project", name, *flags]
    return lab.train(gate, name, *words, command=("python3", "/custom/tests/legacy/train.py"))


def _was_renewed(lab: Lab, job_id: str) -> bool:
    """The last lines of a pod may be kept a little after its job has ended."""
    return libraries(lab.daemon, job_id) == ["its own", NEW]


def test_old_images_do_every_epoch_once(lab: Lab) -> None:
    """All at once: the daemon is restarted in their second epoch, and all are preempted."""
    shutil.copytree(ROOT / "tests" / "legacy", lab.shared / "tests" / "legacy")
    smi = lab.shared / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
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
    done = {name: weights(lab.shared, job_id) for name, job_id in jobs.items()}
    assert done == {name: list(range(1, EPOCHS + 1)) for name in jobs}
    for name in jobs:
        if name.endswith("renewed"):
            eventually(partial(_was_renewed, lab, jobs[name]))
            assert lab.wait_until_ended(jobs[name], epochs=EPOCHS) == 2
