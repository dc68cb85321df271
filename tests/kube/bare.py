"""A kubelet simulated with real processes: each pod's command runs directly on this machine.

It is for tests of trainings while their scheduler is killed: only the containers are simulated.
"""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError
from scheduler.clusters.kubernetes.pods import Claim, KubePod, Meta
from scheduler.core.model import RunKey
from tests.kube.control import ControlPlane
from tests.kube.kubelet import GPUS, Kubelet
from tests.kube.processes import Process

STEP_SECONDS = 0.05
HEARTBEAT_SECONDS = 10.0  # controllers treat a node as gone after some 50
GONE = 404


class BareKubelet(Kubelet):
    """One node. `snapshots` is the folder that its pods know as /snapshots."""

    def __init__(self, control: ControlPlane, namespace: str, snapshots: Path) -> None:
        super().__init__(control, namespace)
        self._snapshots, self._logs = snapshots, control.folder
        self._runs: dict[str, Process] = {}  # by the pod's uid
        self._ended = threading.Event()
        self.overbooked = 0  # observations in which pods had more of a GPU than there is
        self.failed: ApiError | None = None

    @contextmanager
    def at_work(self) -> Iterator[BareKubelet]:
        with super().at_work():
            thread = threading.Thread(target=self._work, name="kubelet")
            thread.start()
            try:
                yield self
            finally:
                self._ended.set()
                thread.join()
                for run in self._runs.values():
                    run.kill()
        if self.failed:
            raise self.failed

    def alive(self) -> set[RunKey]:
        """Runs that go on, with pods that were not deleted."""
        live = _live(self.pods())
        return {whose.key for meta, whose in live if meta.deletion_timestamp is None}

    def step(self) -> None:
        there = self.pods()
        self.overbooked += _overbooked(there)
        for pod in there:
            self._serve(pod)
        for uid in self._runs.keys() - {pod["metadata"]["uid"] for pod in there}:
            self._runs.pop(uid).kill()

    def _work(self) -> None:
        heard = time.monotonic()
        while not (self._ended.wait(STEP_SECONDS) or self.failed):
            try:
                if time.monotonic() > heard + HEARTBEAT_SECONDS:
                    heard = time.monotonic()
                    self.set_ready(self.node)
                self.step()
            except ApiError as error:
                if not (error.passing or error.code == GONE):  # else the next observation is better
                    self.failed = error

    def _serve(self, pod: Mapping[str, Any]) -> None:
        name, uid, phase = pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["phase"]
        run = self._runs.get(uid)
        if "deletionTimestamp" in pod["metadata"]:
            if run:
                run.kill()
            self.forget(name)
        elif run is None and phase == "Pending":
            self._runs[uid] = run = self._start_pod(pod)
            self.run(name)
        elif run and phase == "Pending":
            self.run(name)
        elif run and phase == "Running" and (code := run.exit_code) is not None:
            self.end(name, code if code >= 0 else 128 - code)

    def _start_pod(self, pod: Mapping[str, Any]) -> Process:
        (container,) = pod["spec"]["containers"]
        told = {name: value for each in container["envFrom"] for name, value in self._secret(each)}
        told |= {each["name"]: str(each.get("value", "")) for each in container["env"]}
        told["KUBEPROFILER_SNAPSHOTS"] = str(self._snapshots)
        words = ["env", *(f"{name}={value}" for name, value in told.items()), *container["command"]]
        name = pod["metadata"]["name"]
        run = Process(name, words, self._logs / f"{name}.log")
        run.start()
        return run

    def _secret(self, source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        secret = self._get(f"{self._namespace}/secrets/{source['secretRef']['name']}")
        return ((name, b64decode(value).decode()) for name, value in secret["data"].items())


def _live(there: list[dict[str, Any]]) -> Iterator[tuple[Meta, Claim]]:
    for pod in there:
        kube = msgspec.convert(pod, KubePod)
        whose = pods.claim(kube.metadata)
        if whose and not pods.is_over(kube):
            yield kube.metadata, whose


def _overbooked(there: list[dict[str, Any]]) -> bool:
    """According to the annotations of live pods."""
    taken: Counter[str] = Counter()
    for _, whose in _live(there):
        for share in whose.shares:
            taken[share.gpu] += share.memory_mib
    return any(taken[card.uuid] > card.capacity_mib for card in GPUS)
