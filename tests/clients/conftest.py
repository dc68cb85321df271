"""A Slurm for all tests of a worker, and a user of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.slurmd import SlurmCluster, SlurmUser, folder_for_all
from tests.support import Gate


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    with folder_for_all("slurm-") as folder:
        made = SlurmCluster(folder)
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
