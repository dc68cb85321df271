from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from scheduler.access.identity import user_name
from tests.gateway.argo.argo_server import ArgoServer
from tests.gateway.serving_http import gateway
from tests.support import Daemon


@pytest.fixture(scope="module")
def argo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgoServer]:
    """A daemon that runs jobs, and a gateway in front of it."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon") / "state", "2x16384").start()
    try:
        with gateway(daemon.address) as served:
            yield ArgoServer(daemon, served, user_name(os.geteuid()))
    finally:
        daemon.end()
