"""A real API server for all tests of a worker, and a namespace of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster import daemon_kubeconfig
from tests.kube.control import ControlPlane
from tests.kube.images import python_image
from tests.kube.kubelet import Kubelet
from tests.kube.nodes import Nodes, missing, running
from tests.kube.processes import Process
from tests.kube.proxy import Proxy

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IMAGE = "docker.io/epoch-scheduler/python:test"  # with the library for training scripts
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They run only on request: `make test-kube`, and those with nodes `make test-node`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.kube)
            if "nodes" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def _control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    control = ControlPlane(tmp_path_factory.mktemp("kube"))
    try:
        control.start()
        yield control
    finally:
        control.stop()


@pytest.fixture(scope="session")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if reason := missing():
        pytest.skip(reason)
    library = ROOT / "kubernetesdlprofile" / "kubernetesdlprofile"
    training = {"/train.py": ROOT / "tests" / "e2e" / "train.py"}
    packages: list[str | Path] = ["grpc", "typing_extensions.py", library]
    image = python_image(IMAGE, packages, training, command=["sleep", "infinity"])
    with running(tmp_path_factory.mktemp("nodes"), 2, {IMAGE: image}) as nodes:
        yield nodes


@pytest.fixture
def nodes(_nodes: Nodes) -> Nodes:
    """Two real nodes without GPUs, alive and ready again after each test."""
    _nodes.start()
    for node in _nodes.nodes:
        node.give()
    return _nodes


@pytest.fixture
def control(request: pytest.FixtureRequest) -> ControlPlane:
    """etcd and the API server, alive and ready again after each test.

    With nodes, they are those of the nodes: then a scheduler and controllers run as well.
    """
    if "nodes" in request.fixturenames:
        nodes: Nodes = request.getfixturevalue("nodes")
        return nodes.control
    control: ControlPlane = request.getfixturevalue("_control_plane")
    control.start()
    return control


@pytest.fixture
def controllers(control: ControlPlane) -> Iterator[None]:
    """Garbage is collected, namespaces end, and nodes that are ready lose the taint of new ones."""
    yield from _during_a_test(control.controllers)


@pytest.fixture
def scheduler(control: ControlPlane) -> Iterator[None]:
    """Pods find a node."""
    yield from _during_a_test(control.scheduler)


@pytest.fixture
def kwok(control: ControlPlane) -> Iterator[None]:
    """Simulates the nodes with the annotation `kwok.x-k8s.io/node: fake`, and their pods."""
    yield from _during_a_test(control.kwok)


def _during_a_test(process: Process) -> Iterator[None]:
    """It would disturb tests that simulate it themselves."""
    process.start()
    yield
    process.kill()


@pytest.fixture(scope="module")
def _shared(request: pytest.FixtureRequest) -> tuple[str, Path] | None:
    """A module's NAMESPACE, if it has one, and a daemon's kubeconfig: made once for all tests."""
    name: str | None = getattr(request.module, "NAMESPACE", None)
    if name is None:
        return None
    control: ControlPlane = request.getfixturevalue("_control_plane")
    control.namespace(name)
    return name, daemon_kubeconfig(control, name)


@pytest.fixture
def namespace(control: ControlPlane, _shared: tuple[str, Path] | None) -> Iterator[str]:
    """The name of a namespace for this test alone, or for a module that has a NAMESPACE."""
    if _shared:
        yield _shared[0]
        return
    name = f"test-{next(_numbers)}"
    control.namespace(name)
    yield name
    control.start()  # the test may have killed it
    control.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubeconfig(control: ControlPlane, namespace: str, _shared: tuple[str, Path] | None) -> Path:
    """The kubeconfig of a daemon in this namespace, with its permissions."""
    return _shared[1] if _shared else daemon_kubeconfig(control, namespace)


@pytest.fixture
def kubelet(control: ControlPlane, namespace: str) -> Iterator[Kubelet]:
    """Simulates a node for the pods in this namespace."""
    with Kubelet(control, namespace).at_work() as kubelet:
        yield kubelet


@pytest.fixture
def proxy(control: ControlPlane) -> Iterator[Proxy]:
    """A proxy before the API server; it changes nothing until a fault is injected."""
    with Proxy(control).running() as proxy:
        yield proxy
