from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.serving_http import Served, gateway
from tests.kube.certificates import Authority
from tests.serving import serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests of a module: each makes its own jobs."""
    folder = tmp_path_factory.mktemp("gateway")
    with (
        serving(tmp_path_factory.mktemp("daemon")) as daemon,
        gateway(f"127.0.0.1:{daemon.server.port}", "--folder", str(folder)) as made,
    ):
        yield Served(daemon, made)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def served_without_series(served: Served) -> Iterator[Served]:
    with gateway(f"127.0.0.1:{served.daemon.server.port}") as made:
        yield Served(served.daemon, made)
