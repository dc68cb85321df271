"""A Slurm for all tests of a worker, and a user of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.slurmd import SlurmCluster, SlurmUser
from tests.support import Gate


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    made = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        yield made.start()
    finally:
        made.end()


@pytest.fixture
def user(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmUser]:
    yield SlurmUser(cluster, tmp_path)
    cluster.cancel_all()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()
