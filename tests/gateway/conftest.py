from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.serving_http import Served, gateway, served_for
from tests.kube.certificates import Authority


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_for(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def served_without_series(served: Served) -> Iterator[Served]:
    with gateway(f"127.0.0.1:{served.daemon.server.port}") as made:
        yield Served(served.daemon, made)
