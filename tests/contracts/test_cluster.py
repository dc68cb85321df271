"""What every cluster adapter promises the loop: one suite for all adapters.

A new adapter is a class with `perform`, `observe` and `let(seconds)`, made by a context manager
that takes a folder of its own, in `ADAPTERS`. It has at least one GPU.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from scheduler.access.identity import user_name
from scheduler.core.model import Action, JobId, JobSpec, Launch, Observed, Pod, Remove, Share
from simulator.lives.world import World
from tests.clusters.machine import Machine, machine
from tests.kube.cluster import StartedCluster, shared_control_plane, started_cluster
from tests.kube.kubelet import Kubelet
from tests.simulator.calm import world
from tests.support import eventually


class Adapter(Protocol):
    def perform(self, action: Action) -> None: ...
    def observe(self) -> Observed: ...
    def let(self, seconds: float) -> None:
        """Lets the cluster's own time pass, if it has one, so that something happens."""


class Local:
    def __init__(self, made: Machine) -> None:
        self.perform = made.cluster.perform
        self.observe = made.cluster.observe

    def let(self, seconds: float) -> None:
        """Does nothing: real processes need real time, see `until`."""


@contextmanager
def local(folder: Path) -> Iterator[Adapter]:
    with machine(folder / "state") as made:
        yield Local(made)


class Simulated:
    def __init__(self, made: World) -> None:
        self.perform = made.perform
        self.observe = made.observe
        self.let = made.pass_time


@contextmanager
def simulated(folder: Path) -> Iterator[Adapter]:
    yield Simulated(world())


class Kubernetes:
    """Pods on a real API server, run by a simulated kubelet: see tests/kube/kubelet.py."""

    def __init__(self, made: StartedCluster, kubelet: Kubelet) -> None:
        self.perform = made.perform
        self.observe = made.observe
        self._kubelet = kubelet

    def let(self, seconds: float) -> None:
        self._kubelet.step()


@contextmanager
def kubernetes(folder: Path) -> Iterator[Adapter]:
    control, namespace, kubeconfig = shared_control_plane()
    kubelet = Kubelet(control, namespace)
    kubelet.add_node("n1")
    try:
        with started_cluster(kubeconfig, namespace) as made:
            yield Kubernetes(made, kubelet)
    finally:
        kubelet.remove_node("n1")
        kubelet.clear()


ADAPTERS: dict[str, Callable[[Path], AbstractContextManager[Adapter]]] = {
    "local": local,
    "simulated": simulated,
    "kubernetes": kubernetes,
}
MARKS = {"kubernetes": pytest.mark.kube}  # needs what `make kube` builds


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in ADAPTERS])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
    with ADAPTERS[request.param](tmp_path) as made:
        yield made


def until(cluster: Adapter, true: Callable[[Observed], object]) -> Observed:
    seen: list[Observed] = []

    def look() -> object:
        cluster.let(5.0)
        seen[:] = [cluster.observe()]
        return true(seen[0])

    eventually(look)
    return seen[0]


def launch_on(cluster: Adapter, *command: str) -> Launch:
    """A job of its own on part of the first GPU."""
    (node, *_) = cluster.observe().nodes
    spec = JobSpec(
        name="j",
        user=user_name(os.geteuid()),
        command=command or ("sleep", "1000"),
        max_epochs=3,
    )
    job_id = JobId(str(uuid.uuid4()))
    return Launch(job_id, 1, spec, (Share(node.name, node.gpus[0].uuid, 1000),), 0, 3, "token")


def of(launch: Launch, seen: Observed) -> list[Pod]:
    key = launch.job_id, launch.attempt
    return [pod for pod in seen.pods if (pod.job_id, pod.attempt) == key]


def test_it_shows_its_nodes_and_their_gpus(cluster: Adapter) -> None:
    nodes = cluster.observe().nodes
    assert nodes
    assert all(node.ready for node in nodes)
    assert all(gpu.capacity_mib > 0 for node in nodes for gpu in node.gpus)


def test_a_launch_shows_under_its_own_name_and_shares(cluster: Adapter) -> None:
    launch = launch_on(cluster)
    cluster.perform(launch)
    (pod,) = of(launch, until(cluster, lambda seen: of(launch, seen)))
    assert pod.alive
    assert (pod.job_id, pod.attempt, pod.shares) == (launch.job_id, 1, launch.shares)


def test_a_launch_shows_in_every_look_begun_later(cluster: Adapter) -> None:
    launches = [launch_on(cluster) for _ in range(5)]
    for number, launch in enumerate(launches):
        cluster.perform(launch)
        shown = {pod.job_id for pod in cluster.observe().pods}
        assert shown == {launch.job_id for launch in launches[: number + 1]}


def test_a_repeated_launch_is_one_launch(cluster: Adapter) -> None:
    launch = launch_on(cluster)
    for _ in range(3):
        cluster.perform(launch)
    assert len(of(launch, until(cluster, lambda seen: of(launch, seen)))) == 1


def test_two_attempts_are_two_runs(cluster: Adapter) -> None:
    first = launch_on(cluster)
    second = replace(first, attempt=2)
    cluster.perform(first)
    cluster.perform(second)
    cluster.perform(Remove(first.job_id, 1))
    seen = until(cluster, lambda seen: not any(pod.alive for pod in of(first, seen)))
    assert [pod.alive for pod in of(second, seen)] == [True]


def test_a_removed_run_is_soon_no_longer_alive(cluster: Adapter) -> None:
    launch = launch_on(cluster)
    cluster.perform(launch)
    cluster.perform(Remove(launch.job_id, 1))
    until(cluster, lambda seen: not any(pod.alive for pod in of(launch, seen)))


def test_a_run_that_is_over_is_forgotten_when_removed(cluster: Adapter) -> None:
    launch = launch_on(cluster)
    cluster.perform(launch)
    cluster.perform(Remove(launch.job_id, 1))

    def gone(seen: Observed) -> bool:
        for pod in of(launch, seen):
            cluster.perform(Remove(pod.job_id, pod.attempt))
        return not of(launch, seen)

    until(cluster, gone)
    cluster.perform(Remove(launch.job_id, 1))
    assert of(launch, cluster.observe()) == []


def test_removing_what_is_not_there_does_nothing(cluster: Adapter) -> None:
    there = launch_on(cluster)
    cluster.perform(there)
    cluster.perform(Remove(JobId(str(uuid.uuid4())), 7))
    (pod,) = cluster.observe().pods
    assert (pod.job_id, pod.alive) == (there.job_id, True)


def test_looks_go_forward_in_time(cluster: Adapter) -> None:
    first = cluster.observe()
    cluster.let(5.0)
    assert cluster.observe().at >= first.at


def test_what_did_not_change_is_the_same_object(cluster: Adapter) -> None:
    launch = launch_on(cluster)
    cluster.perform(launch)
    seen = until(cluster, lambda seen: [p for p in of(launch, seen) if p.state == "running"])
    again = cluster.observe()
    assert again.pods[0] is seen.pods[0]
    assert again.nodes[0] is seen.nodes[0]
