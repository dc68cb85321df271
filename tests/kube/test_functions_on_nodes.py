"""Functions, and the runs of a Hydra multirun, as jobs in real pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.conftest import IMAGE, ROOT
from tests.kube.images import python_image
from tests.kube.nodes import Nodes
from tests.kube.trainings import SLOW_SECONDS, Lab

# Pods run as this user, to whom the files of the calls belong.
CALLS = """\
import json, math, os, socket, sys
from epoch_scheduler_client import Client, JobExecutor, JobFailed, JobSpec

client = Client.from_environment()
os.setgroups([]); os.setgid(1000); os.setuid(1000)
image, folder = sys.argv[1:]
spec = JobSpec("call", image=image, num_gpus=0, volumes=[f"{folder}:{folder}"])
with JobExecutor(client, spec, folder) as executor:
    there, refused = executor.submit(socket.gethostname), executor.submit(math.sqrt, -1.0)
    ended = executor.submit(os._exit, 7)
    told = [there.result(), type(refused.exception()).__name__, str(ended.exception())]
print(json.dumps([*told, os.listdir(folder)]))
"""
MULTIRUN = """\
import socket
import hydra
from hydra.core.config_store import ConfigStore

@hydra.main(version_base=None, config_path=None, config_name="base")
def main(config):
    print("runs on", socket.gethostname())
    if config.lr == "bad":
        raise ValueError("no such rate")
    return float(config.lr)

ConfigStore.instance().store(name="base", node={"lr": 0.1})
main()
"""
HYDRA = "docker.io/epoch-scheduler/hydra:test"


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    for parent in (tmp_path, *tmp_path.parents[:3]):  # /tmp may be one of them
        parent.chmod(parent.stat().st_mode | 0o011)
    lab = Lab(nodes, namespace, tmp_path)
    yield lab
    lab.end()


def test_functions_run_in_pods_and_return_their_results(lab: Lab) -> None:
    lab.start(volumes=[f"host:{lab.shared}"])
    done = called(lab, sys.executable, "-c", CALLS, IMAGE, lab.shared)
    assert done.returncode == 0, done.stderr
    there, refused, ended, left = json.loads(done.stdout)
    assert there.startswith("gs-")  # the name of a pod
    assert refused == "ValueError"
    assert "is FAILED: exit code 7" in ended
    assert left == []


def test_a_folder_that_pods_may_not_see_is_named(lab: Lab) -> None:
    lab.start()
    done = called(lab, sys.executable, "-c", CALLS, IMAGE, lab.shared)
    assert f"jobs may not mount {lab.shared} (a folder of the cluster's nodes" in done.stderr


def called(lab: Lab, *words: str | Path, umask: int = -1) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SCHEDULER_SERVER": lab.daemon.address}
    paths = [str(ROOT), str(ROOT / "integrations" / "hydra"), os.environ.get("PYTHONPATH", "")]
    environment |= {
        "SCHEDULER_TOKEN": lab.daemon.token("root"),
        "PYTHONPATH": ":".join(filter(None, paths)),
    }
    return subprocess.run(
        [*map(str, words)],
        cwd=lab.shared,
        env=environment,
        capture_output=True,
        text=True,
        umask=umask,
        timeout=SLOW_SECONDS,
    )


def test_a_multirun_of_hydra_runs_in_pods(lab: Lab) -> None:
    """Pods are another user than the launcher: the folder is for all."""
    clients = Path(os.environ["CLIENTS"])
    (library,) = clients.parent.parent.glob("lib/python3*/site-packages")
    names = ("antlr4", "hydra", "hydra_core-*", "omegaconf", "packaging", "yaml", "_yaml")
    packages: list[str | Path] = [path for name in names for path in library.glob(name)]
    packages.append(ROOT / "integrations" / "hydra" / "hydra_plugins")
    image = python_image(HYDRA, packages)
    for node in lab.nodes.nodes:
        node.load(image)
    lab.start(volumes=[f"host:{lab.shared}"])
    (lab.shared / "train.py").write_text(MULTIRUN)
    spec = "+hydra.launcher.spec"
    asked = [
        *("train.py", "-m", "hydra/launcher=epoch_scheduler", f"{spec}.num_gpus=0"),
        *(f"{spec}.image={HYDRA}", f"{spec}.volumes=['{lab.shared}:{lab.shared}']"),
    ]
    done = called(lab, clients, *asked, "lr=.1,.2", umask=0)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = lab.daemon.state_of()["jobs"]
    assert [job["state"] for job in jobs] == ["FINISHED", "FINISHED"]
    for job in jobs:
        assert "runs on gs-" in lab.daemon.run("scheduler-get-logs", job["id"]).stdout
    done = called(lab, clients, *asked, "lr=.1,bad", umask=0)
    assert done.returncode == 1
    assert "(submitted before)" in done.stdout
    assert "is FAILED: exit code 1; its log: ValueError: no such rate" in done.stderr
