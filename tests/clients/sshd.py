"""Debian's sshd on a loopback port, keys only, and an `ssh` that knows it as `login`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.influxd import free_ports
from tests.kube.processes import Process
from tests.support import eventually

SSHD = "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists(SSHD) or shutil.which("ssh") is None,  # noqa: PTH110
    reason="needs root and Debian's openssh-server",
)
_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/id.pub
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin yes
SetEnv {variables}
"""
_CLIENT = """
Host login
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known}
  StrictHostKeyChecking yes
"""


class SshServer:
    """`path`: a folder for the front of PATH, whose `ssh` reads `config`."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder, self.path, self.config = folder, folder / "bin", folder / "config"
        (self.port,) = free_ports(1)
        for name in ("host", "id"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True)
        told = " ".join(f"{name}={value}" for name, value in variables.items())
        (folder / "sshd_config").write_text(
            _CONFIG.format(
                port=self.port,
                folder=folder,
                variables=told,
            )
        )
        public = (folder / "host.pub").read_text().split()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")
        self.path.mkdir()
        (self.path / "ssh").write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n'
        )
        (self.path / "ssh").chmod(0o755)
        self.write_config()
        self._process = Process(
            "sshd",
            [SSHD, "-D", "-e", "-f", folder / "sshd_config"],
            folder / "sshd.log",
        )

    def write_config(self, key: str = "id", known: str = "known", user: str = "root") -> None:
        text = _CLIENT.format(
            port=self.port, key=self.folder / key, known=self.folder / known, user=user
        )
        self.config.write_text(text)

    def start(self) -> SshServer:
        Path("/run/sshd").mkdir(exist_ok=True)
        self._process.start()
        words = ["ssh-keyscan", "-p", str(self.port), "127.0.0.1"]
        eventually(lambda: b"ed25519" in subprocess.run(words, capture_output=True).stdout)
        return self

    def end(self) -> None:
        self._process.stop()
