"""Real nodes on one machine: each has a containerd and a kubelet, isolated from all others.

A node has namespaces of its own for processes, mounts and the network. The kernel removes all of it
when the node's first process ends, which happens at the end of the test run at the latest, even if
that is killed: no pod, mount, interface or route can be left behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from tests.kube import cgroups, node_files
from tests.kube.build import cache, program
from tests.kube.control import READY_SECONDS, ControlPlane
from tests.kube.deviceplugin import RESOURCE
from tests.kube.network import HOST, Switch, address_of, pods_of
from tests.kube.processes import Process
from tests.support import eventually

NEEDED = ("containerd", "ctr", "runc", "ip", "nft", "nsenter", "unshare", "mount")
SPACES = (("mount", "mnt"), ("net", "net"), ("pid", "pid"))
NOTICED_SECONDS = 10  # until the cluster notices that a node is gone


def missing() -> str:
    """Returns why there can be no nodes here; empty if there can."""
    if os.geteuid() != 0:
        return "nodes need root"
    lacking = [name for name in NEEDED if not shutil.which(name)]
    if not (node_files.CNI_PLUGINS / "bridge").exists():
        lacking.append("containernetworking-plugins")
    return f"nodes need {', '.join(lacking)}: .ci/run says what to install" if lacking else ""


class Node:
    """`init` is its first process: when it ends, all of the node is gone, as after a power cut."""

    def __init__(self, number: int, control: ControlPlane, image: str) -> None:
        self.name, self.address, self._number = name_of(number), address_of(number), number
        self._control, self.folder = control, control.folder / self.name
        node_files.write(self.folder, pods_of(number), image, cgroups.create(self.name))
        self.set_gpus({})
        apart = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
        self.init = self._process("init", "unshare", *apart, "bash", self.folder / "init.sh")
        self.containerd = self._within(
            "containerd", "containerd", "--config", self.folder / "containerd.toml"
        )
        self.kubelet = self._within(
            "kubelet",
            *(program("kubelet"), "--config", self.folder / "kubelet.json"),
            *("--kubeconfig", control.kubeconfig_of(f"system:node:{self.name}")),
            *("--hostname-override", self.name, "--node-ip", self.address),
        )
        self.proxy = self._within(
            "proxy",
            *(program("kube-proxy"), "--kubeconfig", control.kubeconfig_of("system:kube-proxy")),
            *("--hostname-override", self.name, "--proxy-mode", "nftables", "--masquerade-all"),
            *("--conntrack-max-per-core", "0", "--conntrack-min", "0"),  # they are the machine's
        )
        self.plugin = self._process(
            "deviceplugin",
            *(sys.executable, "-m", "tests.kube.deviceplugin"),
            *(self.folder / "kubelet" / "device-plugins", self.folder / "gpus"),
        )

    def set_gpus(self, health: Mapping[str, bool]) -> None:
        """Sets the GPUs that the device plugin reports from now on, by UUID."""
        fresh = self.folder / "gpus.new"
        words = {True: "Healthy", False: "Unhealthy"}
        fresh.write_text("".join(f"{gpu} {words[well]}\n" for gpu, well in health.items()))
        fresh.replace(self.folder / "gpus")

    def give(self, *gpus: str) -> None:
        """Sets these healthy GPUs, and waits until the API server knows them."""
        self.set_gpus(dict.fromkeys(gpus, True))

        def known() -> bool:
            allocatable = self._control.get("node", self.name)["status"]["allocatable"]
            return bool(allocatable.get(RESOURCE, "0") == str(len(gpus)))

        eventually(known, READY_SECONDS)

    def start(self, switch: Switch, images: Iterable[Path]) -> None:
        """Starts its dead programs. It is ready a little later."""
        booted = not self.init.alive
        if booted:
            self._boot(switch)
        self.containerd.start()
        eventually(lambda: self._ctr("version"), READY_SECONDS)
        for image in images if booted else ():
            self.load(image)
        for process in (self.kubelet, self.proxy, self.plugin):
            process.start()

    def load(self, image: Path) -> None:
        """Imports the image, which stays until the node loses power."""
        assert self._ctr("--namespace", "k8s.io", "images", "import", image), image

    def stop(self) -> None:
        self.init.kill()
        for process in (self.kubelet, self.proxy, self.containerd, self.plugin):
            process.kill()

    def _boot(self, switch: Switch) -> None:
        (self.folder / "ready").unlink(missing_ok=True)
        self.init.start()
        eventually(self._set_up, READY_SECONDS)
        first = psutil.Process(self.init.pid).children()[0].pid
        spaces = self.folder / "namespaces"
        spaces.unlink(missing_ok=True)
        spaces.symlink_to(f"/proc/{first}/ns")
        switch.plug_in(self._number, first)

    def _process(self, name: str, *words: str | Path) -> Process:
        return Process(f"{self.name}-{name}", [*words], self.folder / f"{name}.log")

    def _enter(self) -> list[str | Path]:
        spaces = self.folder / "namespaces"
        return ["nsenter", *(f"--{kind}={spaces / file}" for kind, file in SPACES)]

    def _within(self, name: str, *words: str | Path) -> Process:
        """A command that enters the node's namespaces. Killing it kills what has entered them."""
        return self._process(name, *self._enter(), "setpriv", "--pdeathsig", "KILL", *words)

    def _ctr(self, *words: str | Path) -> bool:
        done = subprocess.run([*self._enter(), "ctr", *words], capture_output=True)
        return done.returncode == 0

    def _set_up(self) -> bool:
        self.init.check()
        return (self.folder / "ready").exists()


class Nodes:
    """A control plane with controllers, a scheduler and a name server, and real nodes.

    They have these images, by their names; the first one does nothing by default.
    """

    def __init__(self, folder: Path, count: int, images: Mapping[str, Path]) -> None:
        self._images = images
        self.switch = Switch(folder, count)
        names = [name_of(number) for number in range(1, count + 1)]
        self.control = ControlPlane(folder, HOST, names, NOTICED_SECONDS)
        node_files.write_names(folder / "Corefile", self.control.admin)
        words: list[str | Path] = [program("coredns"), "-conf", folder / "Corefile"]
        self.names = Process("coredns", words, folder / "coredns.log")
        pause = next(iter(images))
        self.nodes = [Node(number, self.control, pause) for number in range(1, count + 1)]

    def start(self) -> None:
        """Starts what is not alive, and waits until all nodes are ready."""
        self.switch.start()
        self.control.start()
        self.control.controllers.start()
        self.control.scheduler.start()
        self.names.start()
        with ThreadPoolExecutor() as each:
            images = self._images.values()
            list(each.map(lambda node: node.start(self.switch, images), self.nodes))
        eventually(self._ready, READY_SECONDS)
        eventually(self._told_names, READY_SECONDS)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.names.kill()
        self.control.stop()
        self.switch.stop()

    def _ready(self) -> bool:
        found = self.control.get("nodes")["items"]
        ready = [
            node
            for node in found
            for condition in node["status"]["conditions"]
            if (condition["type"], condition["status"]) == ("Ready", "True")
        ]
        return len(ready) == len(self.nodes)

    def _told_names(self) -> bool:
        self.names.check()
        with suppress(OSError), socket.create_connection((HOST, 53), timeout=1):
            return True
        return False


@contextmanager
def running(folder: Path, count: int, images: Mapping[str, Path]) -> Iterator[Nodes]:
    """A lock: only one test run at a time has nodes, because all runs use the same addresses."""
    with (cache() / "nodes.lock").open("w") as lock, ExitStack() as after:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cgroups.remove()  # those of a run that was killed
        after.callback(cgroups.remove)
        made = Nodes(folder, count, images)
        after.callback(made.stop)
        made.start()
        yield made


def name_of(number: int) -> str:
    return f"node-{number}"
