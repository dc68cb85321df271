"""A container of an unpacked image, run by runc as strictly as deploy/kubernetes asks for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

from tests.cache import absent
from tests.kube.processes import Process, free_port
from tests.support import eventually

READY_SECONDS = 60.0
STATE = "/var/lib/epoch-scheduler"


def missing() -> str | None:
    """Returns why no container can be run here; empty if one can."""
    if os.geteuid() != 0:
        return "runc is run by root alone"
    return absent("runc")


class Container:
    """The daemon of an image, with two pretended GPUs and this folder as its state.

    It has a read-only root, no capability, and the machine's network. Its process is the image's
    entry point under the image's user.
    """

    def __init__(self, root: Path, config: dict[str, Any], state: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._name = f"epoch-scheduler-{uuid.uuid4().hex[:8]}"
        self._user = dict(zip(("uid", "gid"), map(int, config["User"].split(":")), strict=True))
        self._bundle = state.parent / self._name
        self._bundle.mkdir()
        state.mkdir(exist_ok=True)
        os.chown(state, self._user["uid"], self._user["gid"])
        flags = ("--listen", self.address, "--gpus", "2x16384")
        told = _bundle(root, config["Env"], [*config["Entrypoint"], *flags], self._user, state)
        (self._bundle / "config.json").write_text(json.dumps(told))
        words: list[str | Path] = ["runc", "run", "--bundle", self._bundle, self._name]
        self._process = Process("runc", words, self._bundle / "log")

    def __enter__(self) -> Container:
        self._process.start()
        eventually(self._ready, READY_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["runc", "delete", "--force", self._name], check=False, capture_output=True)
        self._process.stop()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command inside, as the same user."""
        inside = ("runc", "exec", "--env", f"SCHEDULER_SERVER={self.address}", self._name)
        return subprocess.run([*inside, *words], capture_output=True, text=True, check=False)

    def said(self) -> str:
        return self._process.last_lines()

    def stop(self) -> None:
        """Stops it as Kubernetes does."""
        number = str(int(signal.SIGTERM))
        subprocess.run(["runc", "kill", self._name, number], check=True)
        eventually(lambda: not self._process.alive)

    def _ready(self) -> bool:
        self._process.check()
        return "ready " in self.said()


def _bundle(
    root: Path, environment: list[str], words: list[str], user: dict[str, int], state: Path
) -> dict[str, Any]:
    def mount(target: str, kind: str, source: str, *options: str) -> dict[str, Any]:
        return {"destination": target, "type": kind, "source": source, "options": list(options)}

    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "args": words,
            "cwd": "/",
            "env": environment,
            "user": user,
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "mounts": [
            mount("/proc", "proc", "proc"),
            mount("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755"),
            mount("/dev/shm", "tmpfs", "shm", "nosuid", "nodev", "mode=1777"),
            mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
            mount(STATE, "bind", str(state), "bind", "rw"),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }
