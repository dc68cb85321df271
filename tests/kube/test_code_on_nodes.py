"""A package of code in real pods: fetched with the job's token, and read-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.conftest import IMAGE, ROOT
from tests.kube.images import python_image
from tests.kube.nodes import Nodes
from tests.kube.trainings import Lab

SCHEDULER = "docker.io/epoch-scheduler/fetcher:test"
PROGRAM = """\
import os
import lib
print("runs", lib.VERSION, os.getcwd(), os.environ["CODE_DIR"], flush=True)
for path in ("train.py", "new", "/code/lib.py"):
    try:
        open(path, "a").close()
        print("written", path)
    except OSError as error:
        print("refused", path)
"""


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(nodes, namespace, tmp_path)
    yield lab
    lab.end()


@pytest.fixture
def image(nodes: Nodes) -> str:
    packages = ("google", "grpc", "typing_extensions.py", ROOT / "scheduler")
    path = python_image(SCHEDULER, packages)
    for node in nodes.nodes:
        node.load(path)
    return SCHEDULER


def submit(lab: Lab, code: str | Path, name: str) -> str:
    words = ("--image_name", IMAGE, "--num_gpus", "0", "--code", code, name)
    return lab.daemon.submit(*words, "--", "python3", "train.py")


def test_a_pod_runs_what_its_job_was_submitted_with(lab: Lab, image: str, tmp_path: Path) -> None:
    code = tmp_path / "vision"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    (code / "lib.py").write_text("VERSION = 'old'\n")
    (code / "weights").write_bytes(b"0123456789" * 300_000)
    daemon = lab.start(code_image=image)
    package = daemon.run("scheduler-upload-code", code).stdout.strip()
    (code / "lib.py").write_text("VERSION = 'new'\n")
    old, new = submit(lab, package, "old"), submit(lab, code, "new")
    for job, version in ((old, "old"), (new, "new")):
        ended = lab.wait_until(job, lambda job: job.state in ("FINISHED", "FAILED"))
        assert ended.state == "FINISHED", ended.reason
        said = daemon.run("scheduler-get-logs", job).stdout
        assert f"runs {version} /code /code" in said
        assert (said.count("refused"), said.count("written")) == (3, 0)


def test_a_package_that_cannot_be_fetched_ends_the_job_and_is_named(
    lab: Lab, image: str, tmp_path: Path
) -> None:
    code = tmp_path / "vision"
    code.mkdir()
    (code / "train.py").write_text("x" * 1000)
    daemon = lab.start(code_image=image)
    package = daemon.run("scheduler-upload-code", code).stdout.strip()
    for path in (lab.daemon.state / "packages" / "contents").glob("*/*"):
        if path.name != package[7:]:
            path.write_bytes(b"y" * 1000)  # a disk that fails
    job = submit(lab, package, "damaged")
    ended = lab.wait_until(job, lambda job: job.state in ("FINISHED", "FAILED"))
    assert ended.state == "FAILED"
    told = "cannot start: its package of code: train.py: its content is not that of its hash"
    assert told in ended.reason
