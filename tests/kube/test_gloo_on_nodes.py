"""S19 with PyTorch: a process in each of two pods on two nodes, which synchronise by gloo."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.frameworks.conftest import Example, trained, trained_alone
from tests.frameworks.test_frameworks import apart, python_with
from tests.kube.conftest import IMAGE, ROOT
from tests.kube.images import libraries, python_image
from tests.kube.nodes import Nodes
from tests.kube.trainings import Lab

pytestmark = pytest.mark.frameworks

TORCH = "docker.io/epoch-scheduler/torch:test"  # all that PyTorch loads, but not PyTorch itself
EPOCHS = 200  # some 10 s, so that it is not at the end when it is preempted
WHERE = "import sysconfig; print(sysconfig.get_path('platlib'))"
MOST = ("--estimated_memory", "9000")


def test_two_pods_that_make_room_train_as_one_machine_does(
    nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    example = Example("pytorch_ddp", python_with("pytorch_ddp"), gpus=2)
    packages = subprocess.check_output([example.python, "-c", WHERE], text=True).strip()
    image = torch_image(Path(packages))
    lab = Lab(nodes, namespace, tmp_path)
    (lab.shared / "train.py").write_bytes(example.script.read_bytes())
    for node in nodes.nodes:
        node.load(image)
        lab.offer(node, f"GPU-of-{node.name}")
    try:
        daemon = lab.start(data=f"host:{packages}")
        job_id = lab.train(
            lab.gate("none"),  # it waits for none
            "gang",
            *("--image_name", TORCH),
            *("--num_gpus", "2", "--max_epochs", str(EPOCHS), *MOST),
            *("--env", "PYTHONPATH=/data", "--env", "OMP_NUM_THREADS=1"),
            command=("python3", "/custom/train.py"),
        )
        lab.wait_until(job_id, lambda job: job.epochs_done >= 1)
        homes = {lab.pod(job_id, rank=rank)["spec"]["nodeName"] for rank in (0, 1)}
        assert homes == {node.name for node in nodes.nodes}
        daemon.submit("--image_name", IMAGE, "--priority", "10", *MOST, "urgent", "--", "true")
        assert lab.wait_until_ended(job_id, EPOCHS) == 2, "it went on in new pods"
        said = daemon.run("scheduler-get-logs", job_id).stdout
    finally:
        lab.end()
    pieces = trained(said, lab.shared / job_id)
    whole = trained_alone(example, tmp_path / "alone", EPOCHS)
    assert pieces.log == whole.log, "each epoch once, with the very loss"
    assert apart(whole, pieces) == 0.0, "bit for bit"


def torch_image(packages: Path) -> Path:
    """PyTorch is too large for an image, so it is mounted as /data."""
    loaded = libraries(packages.glob("torch/lib/*.so")).items()
    files = {f"/{path}": source for path, source in loaded if not source.is_relative_to(packages)}
    library = ROOT / "kubernetesdlprofile" / "kubernetesdlprofile"
    return python_image(TORCH, ["grpc", "typing_extensions.py", library], files)
