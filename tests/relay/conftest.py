from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.beside import Beside
from tests.relay.receiver import Receiver


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path).start()
    yield made
    made.kill()


@pytest.fixture
def beside(tmp_path: Path, receiver: Receiver) -> Iterator[Beside]:
    """It can hear, but is not started yet."""
    made = Beside(tmp_path / "job" / "1", receiver.url, linger_seconds=60.0)
    yield made
    made.close()
