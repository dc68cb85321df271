"""An API server with controllers, and the image: built once and unpacked once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy import container, image
from tests.deploy.container import Container
from tests.kube.cluster import shared_control_plane
from tests.kube.control import ControlPlane


class Image(NamedTuple):
    root: Path  # its files, unpacked
    config: dict[str, Any]  # in the format of OCI


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Image:
    if why := image.missing() or container.missing():
        pytest.skip(why)
    root = tmp_path_factory.mktemp("image")
    return Image(root, image.unpack(image.archive(), root))


@pytest.fixture
def daemon(unpacked: Image, tmp_path: Path) -> Iterator[Container]:
    with Container(unpacked.root, unpacked.config, tmp_path / "state") as started:
        yield started


@pytest.fixture(scope="module")
def control() -> Iterator[ControlPlane]:
    """An API server with controllers, so that Deployments get pods, and namespaces end."""
    control, _, _ = shared_control_plane()
    control.start()
    control.controllers.start()
    yield control
    control.controllers.kill()
