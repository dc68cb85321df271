from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.machine import Machine, machine


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path / "state") as made:
        yield made
