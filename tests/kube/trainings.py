"""A daemon on a cluster of real nodes, their GPUs, and trainings that gates control."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scheduler import run_logs
from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.permissions import FOR_VOLUMES
from scheduler.core.model import Gpu, JobId
from scheduler.v1 import scheduler_pb2
from tests.kube.cluster import RULES, daemon_kubeconfig
from tests.kube.conftest import IMAGE
from tests.kube.network import HOST
from tests.kube.nodes import Node, Nodes
from tests.kube.processes import free_port
from tests.support import Daemon, Gate, Jobs, eventually

# A job that waits at a gate must not count as silent, and retries must happen at once.
SETTINGS = """
cluster = "kubernetes"
heartbeat_seconds = 600
[rules]
backoff_seconds = 0.5
[kubernetes]
runtime_class = ""
stop_grace_seconds = 1
list_every_seconds = 10
"""
OUT_OF_SERVICE = (
    "node.kubernetes.io/out-of-service"  # it makes Kubernetes give up a node's pods at once
)
SLOW_SECONDS = 180.0  # nodes are slow on a single processor


class Lab:
    def __init__(self, nodes: Nodes, namespace: str, folder: Path) -> None:
        self.nodes, self.control, self._namespace = nodes, nodes.control, namespace
        self._folder, self._gates, self._lost = folder, list[Gate](), list[str]()
        self.shared = folder / "shared"  # which all nodes have, and every user may write to
        self.shared.mkdir()
        self.shared.chmod(0o777)
        address = f"{HOST}:{free_port()}"
        self._given = {
            "kubeconfig": str(
                daemon_kubeconfig(
                    self.control, namespace, (*RULES, *(rule.written() for rule in FOR_VOLUMES))
                )
            ),
            "namespace": namespace,
            "service": address,
            "custom": "host:/",
            "snapshots": "host:/",
            "cpu": "100m",
            "image_pull_policy": "Never",
        }
        self.daemon = Daemon(folder / "state", "0", "--config", str(folder / "settings.toml"))
        self.daemon.address = address

    def start(self, **settings: str | float | list[str]) -> Daemon:
        """Runs the daemon, with these additional settings of the cluster."""
        given = {**self._given, **settings}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in given.items()]
        (self._folder / "settings.toml").write_text(SETTINGS + "".join(lines))
        return self.daemon.start()

    def end(self) -> None:
        """Restores the nodes, once the namespace is deleted."""
        self.daemon.end()
        for gate in self._gates:
            gate.close()
        self.control.start()
        self.control.kubectl("annotate", "nodes", "--all", f"{pods.GPUS}-")
        for name in self._lost:
            self.control.kubectl("taint", "node", name, f"{OUT_OF_SERVICE}-")

    # --- nodes and GPUs -------------------------------------------------------------------------

    def offer(self, node: Node, *uuids: str) -> None:
        """GPUs of 16 GiB that jobs may share."""
        cards = [Gpu(uuid, index, "t4", 16_384, 512) for index, uuid in enumerate(uuids)]
        told = f"{pods.GPUS}={pods.gpus_annotation(cards)}"
        self.control.kubectl("annotate", "node", node.name, told, "--overwrite")

    def add_foreign_pod(self, node: Node, **asked: str) -> None:
        """A foreign pod; there is one at a time."""
        container = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "resources": {"limits": asked},
        }
        spec = {
            "nodeName": node.name,
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        }
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "somebody"}, "spec": spec}
        self.control.apply(made, self._namespace)
        words = ("wait", "pod/somebody", "--for=jsonpath={.status.phase}=Running")
        self.control.kubectl(*words, f"--timeout={SLOW_SECONDS:.0f}s", "-n", self._namespace)

    def delete_foreign_pod(self) -> None:
        self.control.kubectl("delete", "pod", "somebody", "--namespace", self._namespace)

    def lose(self, node: Node) -> None:
        """For good: it has no power, and an administrator has marked it as out of service."""
        node.init.kill()
        self.control.kubectl("taint", "node", node.name, f"{OUT_OF_SERVICE}=gone:NoExecute")
        self._lost.append(node.name)

    def create_account_of_agents(self) -> None:
        words = ("create", "serviceaccount", "epoch-scheduler-agent")
        self.control.kubectl(*words, "--namespace", self._namespace)

    def gate(self, name: str) -> Gate:
        self._gates.append(Gate(self.shared / f"{name}.gate"))
        return self._gates[-1]

    # --- trainings ------------------------------------------------------------------------------

    def train(
        self,
        gate: Gate,
        name: str,
        *flags: str,
        command: Sequence[str] = ("python3", "/train.py"),
    ) -> str:
        """Submits a job and returns its id. Each of its epochs ends when the gate is opened."""
        folders = ("--snapshots_dir", str(self.shared), "--custom_dir", str(self.shared))
        told = ("--env", f"GATE=/custom/{gate.path.name}")
        words = ("--image_name", IMAGE, *folders, *told, *flags, name, "--", *command)
        return self.daemon.submit(*words)

    def wait_until(
        self, job_id: str, true: Callable[[scheduler_pb2.Job], bool]
    ) -> scheduler_pb2.Job:
        """Waits until this is true of the job, and returns it."""
        jobs = self.daemon.wait(lambda jobs: any(map(true, _of(job_id, jobs))), SLOW_SECONDS)
        (job,) = _of(job_id, jobs)
        return job

    def wait_until_running(self, job_id: str, attempt: int = 1) -> dict[str, Any]:
        """The job's first pod."""
        self.wait_until(job_id, lambda job: (job.attempt, job.state) == (attempt, "RUNNING"))
        return self.pod(job_id, attempt)

    def wait_until_counted(self, job_id: str, epochs: int) -> None:
        self.wait_until(job_id, lambda job: job.epochs_done == epochs)

    def wait_until_ended(self, job_id: str, epochs: int) -> int:
        """Waits until it has succeeded, in this number of attempts."""
        job = self.wait_until(job_id, lambda job: job.state in ("FINISHED", "FAILED"))
        assert (job.state, job.epochs_done) == ("FINISHED", epochs), job.reason
        return job.attempt

    def wait_until_logged(self, job_id: str, *lines: str) -> None:
        """Checks that these are the lines about epochs of all its runs and ranks, each once, and no
        others."""
        eventually(lambda: len(self._logged_epochs(job_id)) >= len(lines), SLOW_SECONDS)
        assert self._logged_epochs(job_id) == sorted(lines)

    def pod(self, job_id: str, attempt: int = 1, rank: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.control.get("pod", *self._named(job_id, attempt, rank))
        return found

    def delete(self, job_id: str, attempt: int = 1, rank: int = 0) -> None:
        """Deletes a pod without the scheduler."""
        self.control.kubectl("delete", "pod", *self._named(job_id, attempt, rank))

    def force_delete(self, job_id: str) -> None:
        """Deletes it from the API server at once, without waiting for its kubelet."""
        self.control.kubectl("delete", "pod", *self._named(job_id, 1, 0), "--force")

    def remaining_objects(self) -> list[Any]:
        """The objects of runs."""
        kinds = "pods,configmaps,secrets,services"
        words = ("--selector", f"{pods.MANAGED_BY}={pods.OURS}", "--namespace", self._namespace)
        return list(self.control.get(kinds, *words)["items"])

    def _named(self, job_id: str, attempt: int, rank: int) -> tuple[str, str, str]:
        return pods.pod_name((JobId(job_id), attempt), rank), "--namespace", self._namespace

    def _logged_epochs(self, job_id: str) -> list[str]:
        files = run_logs.files(self.daemon.state / "logs", JobId(job_id))
        said = b"".join(file.path.read_bytes() for file in files).decode()
        return sorted(line for line in said.splitlines() if line.endswith("done"))


def epochs(first: int, last: int) -> list[str]:
    """The lines that train.py prints for these epochs."""
    return [f"epoch {number} done" for number in range(first, last + 1)]


def _of(job_id: str, jobs: Jobs) -> list[scheduler_pb2.Job]:
    return [job for job in jobs.values() if job.id == job_id]
