from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.beside import Beside, hearing, receiving
from tests.relay.receiver import Receiver


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as made:
        yield made


@pytest.fixture
def beside(tmp_path: Path, receiver: Receiver) -> Iterator[Beside]:
    with hearing(tmp_path, receiver) as made:
        yield made
