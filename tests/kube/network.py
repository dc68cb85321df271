"""The network between this machine and the nodes: a switch in a network namespace of its own.

This machine has a cable to it with the address `HOST`, and so has each node; they are numbered from
1. Nodes, their pods and this machine reach each other, and nothing else. All of it is gone when the
switch's only process ends.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kube.processes import Process
from tests.support import eventually

HOST = "10.88.0.1"
LINK = "epochtest0"


def address_of(node: int) -> str:
    return f"10.88.0.{10 + node}"


def pods_of(node: int) -> str:
    """The addresses of its pods."""
    return f"10.244.{node}.0/24"


class Switch:
    def __init__(self, folder: Path, nodes: int) -> None:
        self._nodes = range(1, nodes + 1)
        words: list[str | Path] = ["unshare", "--net", "--", "sleep", "infinity"]
        self._process = Process("switch", words, folder / "switch.log")

    def start(self) -> None:
        if self._process.alive:
            return
        eventually(_unlinked)  # that of a run that was just killed may still exist
        self._process.start()
        eventually(self._apart)
        ip("link", "add", LINK, "type", "veth", "peer", "name", "host", "netns", str(self.pid))
        ip("address", "add", f"{HOST}/24", "dev", LINK)
        ip("link", "set", LINK, "up")
        ip("link", "add", "bridge", "type", "bridge", within=self.pid)
        ip("link", "set", "bridge", "up", within=self.pid)
        ip("link", "set", "host", "master", "bridge", "up", within=self.pid)

    def stop(self) -> None:
        self._process.kill()
        eventually(_unlinked)

    @property
    def pid(self) -> int:
        return self._process.pid

    def plug_in(self, node: int, pid: int) -> None:
        """A cable to the network namespace of this process."""
        name = f"node{node}"
        end = ("type", "veth", "peer", "name", "eth0", "netns", str(pid))
        eventually(lambda: not self._has(name))  # that of a former life may still exist
        ip("link", "add", name, *end, within=self.pid)
        ip("link", "set", name, "master", "bridge", "up", within=self.pid)
        ip("link", "set", "lo", "up", within=pid)
        ip("address", "add", f"{address_of(node)}/24", "dev", "eth0", within=pid)
        ip("link", "set", "eth0", "up", within=pid)
        ip("route", "replace", pods_of(node), "via", address_of(node))
        for other in self._nodes:
            if other != node:
                ip("route", "add", pods_of(other), "via", address_of(other), within=pid)

    def _has(self, name: str) -> bool:
        return f" {name}@" in ip("-oneline", "link", within=self.pid)

    def _apart(self) -> bool:
        self._process.check()
        return namespace_of(self.pid) != namespace_of(os.getpid())


def _unlinked() -> bool:
    return not Path("/sys/class/net", LINK).exists()


def ip(*words: str, within: int | None = None) -> str:
    """The command that runs the given one in the network namespace of a process."""
    enter = ["nsenter", "--net", "--target", str(within)] if within else []
    done = subprocess.run([*enter, "ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def namespace_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())
