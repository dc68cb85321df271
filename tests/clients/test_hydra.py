"""The launcher with the real Hydra."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Daemon, eventually

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT}:{ROOT / 'integrations' / 'hydra'}"

TRAIN = """
import time
import hydra
from hydra.core.config_store import ConfigStore

@hydra.main(version_base=None, config_path=None, config_name="base")
def main(config):
    open("ran", "a").write("x")
    time.sleep(config.seconds)
    if config.lr == "bad":
        raise ValueError("no such rate")
    return float(config.lr)

ConfigStore.instance().store(name="base", node={"lr": 0.1, "seconds": 0})
main()
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "0").start()
    yield made
    made.end()


class Script:
    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon, self.folder = daemon, folder
        (folder / "train.py").write_text(TRAIN)
        paths = os.environ.get("PYTHONPATH", "")
        self.paths = f"{PATHS}:{paths}" if paths else PATHS

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "SCHEDULER_SERVER": self.daemon.address}
        environment["PYTHONPATH"] = self.paths
        spec = "+hydra.launcher.spec"
        return subprocess.Popen(
            [
                *(os.environ["CLIENTS"], "train.py", "-m", "hydra/launcher=epoch_scheduler"),
                *(f"{spec}.num_gpus=0", f"{spec}.env.PYTHONPATH='{self.paths}'", *words),
            ],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        with self.start(*words) as process:
            said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def states(self) -> list[str]:
        return sorted(job["state"] for job in self.daemon.state_of()["jobs"])


@pytest.fixture
def script(daemon: Daemon, tmp_path: Path) -> Script:
    return Script(daemon, tmp_path)


def test_each_combination_is_a_job_and_the_same_command_submits_none_again(script: Script) -> None:
    code, said = script.run("lr=.1,.01")
    assert code == 0, said
    assert script.states() == ["FINISHED", "FINISHED"]
    ids = [job["id"] for job in script.daemon.state_of()["jobs"]]
    assert all(job_id in said for job_id in ids)
    ran = list(script.folder.glob("multirun/*/*/*/.hydra/overrides.yaml"))
    assert sorted(path.read_text() for path in ran) == ["- lr=0.01\n", "- lr=0.1\n"]
    code, said = script.run("lr=.1,.01,.001")
    assert (code, said.count("submitted before")) == (0, 2), said
    assert len(script.states()) == 3


def test_interrupting_the_command_ends_no_job_and_it_goes_on(script: Script) -> None:
    process = script.start("lr=.1,.2", "seconds=3")
    eventually(lambda: script.states() == ["RUNNING", "RUNNING"])
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert script.states() == ["RUNNING", "RUNNING"], said
    code, said = script.run("lr=.1,.2", "seconds=3")
    assert (code, said.count("submitted before")) == (0, 2), said
    assert script.states() == ["FINISHED", "FINISHED"]


def test_a_failure_is_told_and_the_same_command_tries_it_again(script: Script) -> None:
    for attempt in (1, 2):
        code, said = script.run("lr=.1,bad")
        assert code == 1
        assert "is FAILED: exit code 1; its log: ValueError: no such rate" in said
        assert script.states() == ["FAILED"] * attempt + ["FINISHED"]


def test_detached_jobs_are_not_waited_for(script: Script) -> None:
    code, said = script.run("lr=.1,.2", "seconds=1000", "hydra.launcher.detach=true")
    assert code == 0, said
    eventually(lambda: script.states() == ["RUNNING", "RUNNING"])
