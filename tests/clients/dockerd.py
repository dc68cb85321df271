"""Debian's dockerd, without systemd or rules of a firewall, and with a bridge of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cache import absent
from tests.support import eventually

CLIENT = Path("/usr/bin/docker")  # of the same version
HOST = "10.213.7.1"  # this machine, for what a build runs
BRIDGE = "docker0"  # it can make no other


def missing() -> str | None:
    if os.geteuid() != 0:
        return "dockerd needs root"
    if Path("/sys/class/net", BRIDGE).exists():
        return "a dockerd of this machine has the bridge"
    return absent("dockerd", "ip") or (None if CLIENT.exists() else f"no {CLIENT}")


@contextmanager
def dockerd() -> Iterator[str]:
    """Gives its DOCKER_HOST."""
    with tempfile.TemporaryDirectory(prefix="dockerd-") as name:  # paths of sockets must be short
        folder = Path(name)
        address, log = f"unix://{folder}/docker.sock", folder / "log"
        words: list[str | Path] = [
            *("dockerd", "--host", address, "--pidfile", folder / "pid", "--bip", f"{HOST}/24"),
            *("--data-root", folder / "data", "--exec-root", folder / "exec"),
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            *("--storage-driver", "vfs"),
        ]
        own = {"PATH": os.environ["PATH"]}
        with log.open("wb") as said:
            process = subprocess.Popen(words, stdout=said, stderr=said, env=own)
        try:
            eventually(lambda: process.poll() is not None or _answers(address))
            assert process.poll() is None, log.read_text()
            yield address
        finally:
            process.terminate()
            process.wait()
            subprocess.run(["umount", "--recursive", folder / "data"], capture_output=True)
            subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True)


def _answers(address: str) -> bool:
    look: list[str | Path] = [CLIENT, "--host", address, "version"]
    return subprocess.run(look, capture_output=True).returncode == 0


needs_docker = pytest.mark.skipif(missing() is not None, reason=str(missing()))
