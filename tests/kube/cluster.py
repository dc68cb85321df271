"""Our port to a cluster as a daemon uses it: under a service account with its permissions."""

from __future__ import annotations

import atexit
import functools
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.cluster import KubernetesCluster
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.permissions import FOR_THE_LEASE, IN_CLUSTER, IN_NAMESPACE
from scheduler.clusters.kubernetes.volumes import VolumeSource
from scheduler.core.errors import Unavailable
from scheduler.core.model import Event, JobId, JobSpec, Launch, Observed, Pod, Share
from tests.kube.control import ControlPlane, Rule
from tests.kube.kubelet import Kubelet
from tests.support import eventually

# What deploy/ grants, verb by verb.
RULES: tuple[Rule, ...] = tuple(rule.written() for rule in (*IN_NAMESPACE, *FOR_THE_LEASE))
CLUSTER_RULES: tuple[Rule, ...] = tuple(rule.written() for rule in IN_CLUSTER)


class StartedCluster:
    """The cluster, and its observations so far."""

    def __init__(self, kubeconfig: Path, namespace: str, **settings: Any) -> None:
        self.namespace, shape = namespace, settings.pop("shape", {})
        checked = {name: settings.pop(name) for name in ("before_changes",) if name in settings}
        self.server = KubernetesClient(kubeconfig, settings.pop("request_seconds", 2.0), **checked)
        self.told: list[Observed] = []
        self.cluster = KubernetesCluster(
            self.server,
            PodTemplate(
                "scheduler:7070", namespace, "none:1", custom=VolumeSource.parse("host:/"), **shape
            ),
            settings.pop("clock", time.time),
            **{"list_every_seconds": 10.0, **settings},
        )
        self.perform = self.cluster.perform

    def observe(self) -> Observed:
        seen: list[Observed] = []

        def looked() -> bool:
            try:
                seen.append(self.cluster.observe())
            except Unavailable:
                return False
            return True

        eventually(looked)
        return seen[0]

    def put(self, event: Event) -> None:
        assert isinstance(event, Observed)
        self.told.append(event)


@contextmanager
def started_cluster(kubeconfig: Path, namespace: str, **settings: Any) -> Iterator[StartedCluster]:
    made = StartedCluster(kubeconfig, namespace, **settings)
    made.cluster.start(made.put)
    try:
        yield made
    finally:
        made.cluster.stop()


def daemon_kubeconfig(
    control: ControlPlane,
    namespace: str,
    rules: Sequence[Rule] = RULES,
    cluster_rules: Sequence[Rule] = CLUSTER_RULES,
) -> Path:
    """The kubeconfig of a daemon in this namespace."""
    return control.account(namespace, "scheduler", rules, cluster_rules)


@functools.cache
def shared_control_plane() -> tuple[ControlPlane, str, Path]:
    """For callers without the fixtures of this folder: a control plane, a namespace, a kubeconfig.

    It ends with this process, however that ends.
    """
    folder = tempfile.TemporaryDirectory(prefix="kube-")
    control = ControlPlane(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(control.stop)
    control.start()
    control.namespace("shared")
    return control, "shared", daemon_kubeconfig(control, "shared")


def launch_on(made: StartedCluster) -> Launch:
    """A new job on part of the first GPU."""
    node = next(node for node in made.observe().nodes if node.name.endswith(made.namespace))
    spec = JobSpec(name="j", user="ada", command=("sleep", "1000"), max_epochs=3)
    share = Share(node.name, node.gpus[0].uuid, 1000)
    return Launch(JobId(str(uuid.uuid4())), 1, spec, (share,), 0, 3, "secret-of-the-job")


def with_fields(launch: Launch, **fields: Any) -> Launch:
    """The launch of such a job."""
    return replace(launch, spec=replace(launch.spec, **fields))


def pods_of(launch: Launch, seen: Observed) -> list[Pod]:
    key = launch.job_id, launch.attempt
    return [pod for pod in seen.pods if (pod.job_id, pod.attempt) == key]


def wait_until_over(made: StartedCluster, launch: Launch) -> Pod:
    """How it ended."""
    found: list[Pod] = []

    def ended() -> bool:
        found[:] = [pod for pod in pods_of(launch, made.observe()) if not pod.alive]
        return bool(found)

    eventually(ended)
    return found[0]


def wait_until(
    made: StartedCluster, kubelet: Kubelet, true: Callable[[Observed], object]
) -> Observed:
    """Waits until this is true, while the kubelet works. Returns the observed pods."""
    seen: list[Observed] = []

    def look() -> object:
        kubelet.step()
        seen[:] = [made.observe()]
        return true(seen[0])

    eventually(look)
    return seen[0]
