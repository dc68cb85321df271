"""The commands of docs/operations.md, from install to uninstall, as they are written there.

The test itself starts and stops the daemon in place of systemd, because a test run is not the init
process of a machine. Commands that need a registry are not run. On Kubernetes the API server and
its controllers are real; commands that need a shell in a pod are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.deploy.installing import left
from tests.deploy.manifests import DAEMON, container
from tests.kube.build import program
from tests.kube.control import ControlPlane
from tests.kube.processes import Process, free_port
from tests.support import eventually

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "operations.md").read_text()
BY_SYSTEMD = ("systemctl", "journalctl")
NEED_MORE = re.compile(r"docker|.* (exec|logs|rollout status) ")  # a registry, or a pod that runs


def commands(section: str) -> list[str]:
    """All commands of a section, in their order."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)
    assert blocks, section
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def sh(line: str, folder: Path, **environment: str) -> None:
    done = subprocess.run(
        ["sh", "-euc", line],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"


# --- on a machine -------------------------------------------------------------------------------


class Machine:
    """The machine's folders that are written to, below a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.moved: Mapping[str, Path] = {
            path: folder / path.strip("/")
            for path in (
                "/opt/epoch-scheduler",
                "/var/lib/epoch-scheduler",
                "/etc/systemd/system",
                "/etc/epoch-scheduler.toml",
                "/usr/local/bin",
            )
        }
        for path in ("/opt", "/var/lib", "/etc/systemd/system", "/usr/local/bin"):
            (folder / path.strip("/")).mkdir(parents=True)
        self._address = f"127.0.0.1:{free_port()}"
        flags = ("--state_dir", self.state, "--listen", self._address, "--gpus", "1x16384")
        words: list[str | Path] = [self.bin / "scheduler-daemon", *flags]
        self._daemon = Process("scheduler-daemon", words, folder / "log")

    @property
    def bin(self) -> Path:
        return self.moved["/opt/epoch-scheduler"] / "bin"

    @property
    def state(self) -> Path:
        return self.moved["/var/lib/epoch-scheduler"]

    def follow(self, section: str, only: str = "") -> None:
        """Runs the commands of a section, or those that contain this text."""
        for line in commands(section):
            if line.startswith("kubectl"):
                return  # the rest is about clusters
            if only in line and not line.startswith(BY_SYSTEMD):
                for path, here in self.moved.items():
                    line = line.replace(path, str(here))
                backup = str(self._folder / "backup.db")
                sh(re.sub(r"(?<![/\w])backup\.db", backup, line), ROOT)

    def start(self) -> None:
        self._daemon.start()
        eventually(lambda: subprocess.run(self._words("scheduler-state")).returncode == 0)

    def stop(self) -> None:
        self._daemon.stop()

    def run(self, *words: str) -> str:
        done = subprocess.run(self._words(*words), capture_output=True, text=True, check=True)
        return done.stdout

    def _words(self, name: str, *words: str) -> list[str | Path]:
        return [self.bin / name, "--server", self._address, *words]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "machine")
    yield machine
    machine.stop()


@pytest.mark.slow
def test_on_a_machine_it_is_installed_backed_up_restored_and_uninstalled(machine: Machine) -> None:
    machine.follow("Install on a machine")
    assert (machine.moved["/etc/systemd/system"] / "epoch-scheduler.service").exists()
    machine.start()
    machine.run("run-scheduler", "--hold", "known", "--", "true")
    machine.follow("Backup and restore", only="scheduler-admin")
    machine.run("run-scheduler", "--hold", "too-late", "--", "true")
    machine.stop()
    machine.follow("Backup and restore", only="install ")
    machine.follow("Backup and restore", only="rm -f")
    machine.start()
    listed = machine.run("scheduler-state")
    assert "known" in listed
    assert "too-late" not in listed
    machine.stop()
    machine.follow("Uninstall")
    for path in ("/opt/epoch-scheduler", "/var/lib/epoch-scheduler"):
        assert not machine.moved[path].exists()
    assert not list(machine.moved["/etc/systemd/system"].iterdir())


# --- on Kubernetes ------------------------------------------------------------------------------


@pytest.mark.kube
def test_on_kubernetes_it_is_installed_put_to_sleep_woken_and_uninstalled(
    control: ControlPlane, tmp_path: Path
) -> None:
    eventually(lambda: not left(control))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(program("kubectl"))
    for name, file in zip(
        ("tls.crt", "tls.key"), control.authority.issue("people", "lab.example"), strict=True
    ):
        (tmp_path / name).symlink_to(file)

    def follow(section: str, only: str = "") -> None:
        for line in commands(section):
            if "kubectl" in line and only in line and not NEED_MORE.match(line):
                sh(
                    line,
                    tmp_path,
                    KUBECONFIG=str(control.admin),
                    PATH=f"{tmp_path}/bin:{os.environ['PATH']}",
                    HOME=str(tmp_path),  # where kubectl has its cache
                )

    def revisions() -> int:
        return len(control.get("replicasets", "--namespace", DAEMON)["items"])

    def command() -> list[str] | None:
        deployment = control.get("deployment", DAEMON, "--namespace", DAEMON)
        given: list[str] | None = container(deployment).get("command")
        return given

    follow("Install on Kubernetes")
    control.get("secret", f"{DAEMON}-tls", "--namespace", DAEMON)
    eventually(lambda: revisions() == 1)
    follow("Backup and restore", only=" patch ")
    assert command() == ["sleep", "infinity"]
    eventually(lambda: revisions() == 2)
    follow("Backup and restore", only=" undo ")
    assert command() is None
    follow("Uninstall")
    eventually(lambda: not left(control))
