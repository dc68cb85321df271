"""A user with a namespace of their own has their pods there, and it is still one cluster."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.cluster import KubernetesCluster
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.namespaces import Namespaces
from scheduler.clusters.kubernetes.permissions import IN_NAMESPACE
from scheduler.core.errors import Unavailable
from scheduler.core.model import Event, JobId, JobSpec, Launch, Observed, PodState, Remove, Share
from tests.kube.control import RBAC, ControlPlane
from tests.kube.kubelet import Kubelet
from tests.support import Daemon, eventually


@pytest.fixture
def own(control: ControlPlane, namespace: str, kubeconfig: Path) -> Iterator[str]:
    """Another namespace, with the same permissions for the daemon."""
    name = f"{namespace}-own"
    control.namespace(name)
    rules = [rule.written() for rule in IN_NAMESPACE]
    role = {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "scheduler"}, "rules": rules}
    control.apply(role, name)
    control.apply(
        {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": "scheduler"},
            "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": "scheduler"},
            "subjects": [{"kind": "ServiceAccount", "name": "scheduler", "namespace": namespace}],
        },
        name,
    )
    yield name
    control.kubectl("delete", "namespace", name, "--wait=false")


class Told:
    """All observations that were put, in their order."""

    def __init__(self, spaces: Namespaces) -> None:
        self.looks: list[Observed] = []
        self._lock = threading.Lock()
        spaces.start(self.put)

    def put(self, event: Event) -> None:
        assert isinstance(event, Observed)
        with self._lock:
            self.looks.append(event)


@pytest.fixture
def spaces(kubeconfig: Path, namespace: str, own: str, kubelet: Kubelet) -> Iterator[Namespaces]:
    def of(name: str) -> KubernetesCluster:
        server, shape = (
            KubernetesClient(kubeconfig, 5.0),
            PodTemplate("scheduler:7070", name, "none:1"),
        )
        return KubernetesCluster(server, shape, time.time, list_every_seconds=10.0)

    everybody, hers = of(namespace), of(own)
    made = Namespaces(everybody, [hers], lambda spec: hers if spec.user == "ada" else everybody)
    yield made
    made.stop()


def launch(user: str, node: str) -> Launch:
    """A job on part of a GPU, beside other jobs."""
    spec = JobSpec(name="j", user=user, command=("sleep", "1000"), max_epochs=3)
    share = Share(node, "GPU-1", 1000)
    return Launch(JobId(str(uuid.uuid4())), 1, spec, (share,), 0, 3, "secret-of-the-job")


def until(spaces: Namespaces, true: Callable[[Observed], object]) -> None:
    def look() -> object:
        try:
            return true(spaces.observe())
        except Unavailable:
            return False

    eventually(look)


def test_each_job_is_in_the_namespace_of_its_user(
    spaces: Namespaces, control: ControlPlane, kubelet: Kubelet, own: str
) -> None:
    told = Told(spaces)
    hers, his = launch("ada", kubelet.node), launch("bob", kubelet.node)
    until(spaces, lambda seen: seen.nodes)
    for action in (hers, his, hers, his):
        spaces.perform(action)
    shared, alone = kubelet, Kubelet(control, own)
    eventually(lambda: len(shared.pods()) == len(alone.pods()) == 1)
    for where, job in ((alone, hers), (shared, his)):
        (pod,) = where.pods()
        assert pod["metadata"]["labels"]["epoch-scheduler.io/job"] == job.job_id

    alone.step()
    shared.step()

    def running(seen: Observed) -> bool:
        states = {pod.job_id: pod.state for pod in seen.pods}
        return states == dict.fromkeys((hers.job_id, his.job_id), PodState.RUNNING)

    until(spaces, running)
    eventually(lambda: running(told.looks[-1]))

    spaces.perform(Remove(hers.job_id, 1))

    def only_his(seen: Observed) -> bool:
        alone.step()
        return {pod.job_id for pod in seen.pods} == {his.job_id}

    until(spaces, only_his)
    eventually(lambda: not alone.owners())
    assert shared.pods()
    looks = [look.at for look in told.looks]
    assert looks == sorted(looks)


def test_the_settings_say_who_has_a_namespace_of_their_own(
    control: ControlPlane,
    kubeconfig: Path,
    namespace: str,
    kubelet: Kubelet,
    own: str,
    tmp_path: Path,
) -> None:
    settings = tmp_path / "scheduler.toml"
    settings.write_text(f"""
        cluster = "kubernetes"
        [kubernetes]
        kubeconfig = "{kubeconfig}"
        namespace = "{namespace}"
        service = "127.0.0.1:7070"
        [users.ada]
        namespace = "{own}"
        uid = 1001
    """)
    daemon = Daemon(tmp_path / "state", "0", "--config", str(settings)).start()
    try:
        for user in ("ada", "bob"):
            words = ("--image", "none:1", "--num_gpus", "0", f"of-{user}", "--", "true")
            daemon.submit(*words, user=user)
        alone = Kubelet(control, own)
        for where, name, uid in ((alone, "of-ada", 1001), (kubelet, "of-bob", 1000)):
            eventually(where.pods)
            (pod,) = where.pods()
            assert pod["metadata"]["annotations"]["epoch-scheduler.io/name"] == name
            assert pod["spec"]["securityContext"]["runAsUser"] == uid
        words = ("--image", "none:1", "--num_gpus", "0", "of-eve", "--", "true")
        refused = daemon.run("run-scheduler", *words, user="eve")
        said = "run-scheduler: jobs of eve would have the same uid as those of bob (1000): an admin"
        assert (refused.returncode, refused.stderr.count("\n")) == (4, 1)
        assert refused.stderr.startswith(said)
    finally:
        daemon.end()
