"""A real API server for all tests of a run, and a namespace of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.control import ControlPlane
from tests.kube.proxy import Proxy

HERE = Path(__file__).parent
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They run when they are asked for: `make test-kube`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.kube)


@pytest.fixture(scope="session")
def _control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    control = ControlPlane(tmp_path_factory.mktemp("kube"))
    try:
        control.start()
        yield control
    finally:
        control.stop()


@pytest.fixture
def control(_control_plane: ControlPlane) -> ControlPlane:
    """etcd and the API server, alive and ready, whatever the test before did to them."""
    _control_plane.start()
    return _control_plane


@pytest.fixture
def namespace(control: ControlPlane) -> Iterator[str]:
    """The name of a namespace that no other test has."""
    name = f"test-{next(_numbers)}"
    control.namespace(name)
    yield name
    control.start()  # the test may have killed it
    control.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def proxy(control: ControlPlane) -> Iterator[Proxy]:
    """Before the API server, doing nothing until it is told to."""
    with Proxy(control).running() as proxy:
        yield proxy
